/**
 * @file Keeps the pages for visits without the server, through a service worker where the
 * browser allows one; what they show is kept apart (see `keeping.js`).
 */

/** What a measuring worker loads, which the page does not see. */
const WORKER_FILES = [
  '/shared/worker.js',
  '/shared/guarded-fetch.js',
  '/shared/optional-input.js',
  '/measure/worker.js',
  '/measure/core.js',
  '/measure/memory.js',
  '/measure/tensors.js',
];

/** Whether the browser may still allow a service worker. */
let allowed = window.isSecureContext;

/** Keep what has been loaded so far; whoever calls need not wait. */
export async function keepPages() {
  if (!allowed) return;
  try {
    await navigator.serviceWorker.register('/sw.js');
    const { active } = await navigator.serviceWorker.ready;
    active?.postMessage({ type: 'keep', urls: loadedUrls() });
  } catch {
    // A certificate that a person had to accept allows none: the pages come from the server.
    allowed = false;
  }
}

/** @returns {string[]} what this page and its workers were made of */
function loadedUrls() {
  const loaded = performance.getEntriesByType('resource').map(({ name }) => new URL(name));
  const own = loaded.filter(
    ({ origin, pathname }) =>
      origin === location.origin && !/^\/(f|p|a)\/|^\/api\/(session|results)/.test(pathname),
  );
  const paths = [location.pathname, ...own.map(({ pathname }) => pathname), ...WORKER_FILES];
  return [...new Set(paths)];
}
