/**
 * @file Service worker: the pages from the server while it answers, else as they were kept.
 * Files whose address holds their hash, results and tokens pass it by.
 */

const PAGES = 'albert-export-pages';

/**
 * The part of a service worker's scope that is used here; the checker knows pages only.
 *
 * @typedef {Event & { data?: any, request: Request, waitUntil: (work: Promise<unknown>) => void,
 *   respondWith: (answer: Promise<Response>) => void }} ScopeEvent
 * @typedef {{ location: Location, skipWaiting: () => Promise<void>,
 *   clients: { claim: () => Promise<void> },
 *   addEventListener: (type: string, listen: (event: ScopeEvent) => void) => void }} Scope
 */

const scope = /** @type {Scope} */ (/** @type {unknown} */ (globalThis));

scope.addEventListener('install', () => scope.skipWaiting());
scope.addEventListener('activate', (event) => event.waitUntil(scope.clients.claim()));

scope.addEventListener('message', (event) => {
  if (event.data?.type === 'keep') event.waitUntil(keep(event.data.urls));
});

scope.addEventListener('fetch', (event) => {
  const { origin, pathname } = new URL(event.request.url);
  const passes =
    event.request.method !== 'GET' ||
    origin !== scope.location.origin ||
    /^\/(f|p|a)\/|^\/api\/(session|results)/.test(pathname);
  if (!passes) event.respondWith(answer(event.request, pathname));
});

/**
 * @param {Request} request
 * @param {string} pathname
 * @returns {Promise<Response>}
 */
async function answer(request, pathname) {
  try {
    return await fetch(request);
  } catch (error) {
    const known = await caches.match(pathname, { cacheName: PAGES, ignoreSearch: true });
    if (known) return known;
    throw error;
  }
}

/** @param {string[]} urls */
async function keep(urls) {
  const cache = await caches.open(PAGES);
  // One that is missing must not keep the others out; the browser asks whether each changed.
  await Promise.allSettled(urls.map((url) => cache.add(url)));
}
