/**
 * @file Keeps the pages for visits without the server, where the browser allows it.
 *
 * 1. A service worker keeps the pages; models and runtime stay in the browser's own cache,
 *    which also keeps their compiled code.
 * 2. Where a person had to accept the certificate, browsers allow no service worker and cache
 *    nothing: workers keep the unchanging files themselves (see `guarded-fetch.js`).
 * 3. Over plain http to another machine there is neither; the browser's own cache works.
 */

import { KEPT_FILES } from './keeping.js';

/** What a measuring worker loads, which the page does not see. */
const WORKER_FILES = [
  '/shared/worker.js',
  '/shared/guarded-fetch.js',
  '/shared/keeping.js',
  '/shared/optional-input.js',
  '/measure/worker.js',
  '/measure/core.js',
  '/measure/memory.js',
  '/measure/tensors.js',
];

/** @typedef {{ keeps: boolean }} Keeping whether workers keep unchanging files themselves */

/** @type {Promise<Keeping> | undefined} */
let prepared;

/**
 * Prepare for visits without the server; safe to call again.
 *
 * @returns {Promise<Keeping>}
 */
export function prepareOffline() {
  prepared ??= prepare();
  return prepared;
}

/** @returns {Promise<Keeping>} */
async function prepare() {
  if (!window.isSecureContext) return { keeps: false };
  try {
    await navigator.serviceWorker.register('/sw.js');
  } catch {
    return { keeps: await hasStore() };
  }
  // Nobody waits for it: whether the next visit works offline changes nothing in this one.
  navigator.serviceWorker.ready.then(({ active }) =>
    active?.postMessage({ type: 'keep', urls: loadedUrls() }),
  );
  return { keeps: false };
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

/** @returns {Promise<boolean>} */
async function hasStore() {
  try {
    await caches.open(KEPT_FILES);
    return true;
  } catch {
    return false;
  }
}
