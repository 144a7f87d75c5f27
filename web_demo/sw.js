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
    event.request.cache === 'only-if-cached' ||
    origin !== scope.location.origin ||
    /^\/(f|p|a)\/|^\/api\/(session|results)/.test(pathname);
  if (!passes) event.respondWith(answer(event, pathname));
});

/**
 * @param {ScopeEvent} event
 * @param {string} pathname
 * @returns {Promise<Response>}
 */
async function answer(event, pathname) {
  try {
    const response = await fetch(event.request);
    if (response.ok) event.waitUntil(put(pathname, response.clone()));
    return response;
  } catch (error) {
    const known = await caches.match(pathname, { cacheName: PAGES, ignoreSearch: true });
    if (known) return known;
    throw error;
  }
}

/**
 * Keep what was loaded before this worker was there. It is taken from the browser's cache alone:
 * where that keeps nothing, the next visit's passes through here.
 *
 * @param {string[]} urls
 */
async function keep(urls) {
  const options = /** @type {const} */ ({ cache: 'only-if-cached', mode: 'same-origin' });
  await Promise.allSettled(
    urls.map(async (url) => {
      const response = await fetch(url, options);
      if (response.ok) await put(url, response);
    }),
  );
}

/**
 * @param {string} pathname
 * @param {Response} response
 */
async function put(pathname, response) {
  const cache = await caches.open(PAGES);
  await cache.put(pathname, response).catch(() => undefined); // a refused quota
}
