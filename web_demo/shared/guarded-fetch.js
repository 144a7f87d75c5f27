/**
 * @file A `fetch` for workers that takes no incomplete file and no web page for a model, and
 * keeps what belongs to models in the store that the page names (see `keeping.js`).
 *
 * A location may end in `#bytes=N`, which says how long the file is: with a content encoding,
 * a file that ends early looks like any other. `&input=NAME` opens an optional input, see
 * `optional-input.js`.
 */

import { openInput } from './optional-input.js';

const original = globalThis.fetch.bind(globalThis);
const storeName = new URL(globalThis.location.href).searchParams.get('store');

/**
 * @param {RequestInfo | URL} input
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
globalThis.fetch = async (input, options) => {
  const url = new URL(input instanceof Request ? input.url : input, globalThis.location.href);
  const asked = new URLSearchParams(url.hash.slice(1));
  url.hash = '';
  const response = await keptOrFetched(url, options, asked.get('bytes'));
  const fed = asked.get('input');
  if (!fed || !response.ok || !response.body) return response;
  return new Response(response.body.pipeThrough(openInput(fed)), response);
};

/**
 * @param {URL} url
 * @param {RequestInit | undefined} options
 * @param {string | null} bytes how many there must be
 * @returns {Promise<Response>}
 */
async function keptOrFetched(url, options, bytes) {
  const store = storeName && /^\/[fp]\//.test(url.pathname) ? await openStore(storeName) : null;
  const known = await store?.match(url);
  if (known) return known;
  // The runtime is not kept here: the page has seen to it.
  if (bytes === null) return original(url, options);
  const response = await original(url, { ...options, cache: store ? 'no-store' : 'default' });
  if (!response.ok || !response.body) return response;
  const type = response.headers.get('Content-Type') ?? '';
  if (type.startsWith('text/')) throw new Error(`${url} is ${type.split(';')[0]} and no model`);
  const whole = counted(response, response.body, url, Number(bytes));
  // A refused quota only means that the next visit downloads again.
  store?.put(url, whole.clone()).catch(() => undefined);
  return whole;
}

/**
 * @param {Response} response
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @param {URL} url
 * @param {number} bytes
 * @returns {Response} the same, which fails in the end if its length is another
 */
function counted(response, body, url, bytes) {
  let loaded = 0;
  /** @type {TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>} */
  const counter = new TransformStream({
    transform(piece, controller) {
      loaded += piece.length;
      controller.enqueue(piece);
    },
    flush() {
      if (loaded !== bytes) throw new Error(`${url} ended after ${loaded} of ${bytes} bytes`);
    },
  });
  return new Response(body.pipeThrough(counter), response);
}

/**
 * @param {string} name
 * @returns {Promise<Cache | null>}
 */
async function openStore(name) {
  try {
    return await caches.open(name);
  } catch {
    return null;
  }
}
