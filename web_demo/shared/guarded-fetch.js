/**
 * @file A `fetch` for workers that takes no incomplete file and no web page for a model, and
 * keeps what never changes where the browser would not: it caches nothing from a server whose
 * certificate a person had to accept.
 *
 * A location may end in `#bytes=N`, which says how long the file is: with a content encoding,
 * a file that ends early looks like any other. `&input=NAME` opens an optional input, see
 * `optional-input.js`.
 */

import { KEPT_FILES, isUnchanging } from './keeping.js';
import { openInput } from './optional-input.js';

const original = globalThis.fetch.bind(globalThis);
const keeps = new URL(globalThis.location.href).searchParams.has('keep');

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
  const store = keeps && isUnchanging(url) ? await openStore() : null;
  const known = await store?.match(url);
  if (known) return known;
  let response = await original(url, options);
  if (!response.ok || !response.body) return response;
  const type = response.headers.get('Content-Type') ?? '';
  if (bytes !== null) {
    if (type.startsWith('text/')) throw new Error(`${url} is ${type.split(';')[0]} and no model`);
    response = counted(response, response.body, url, Number(bytes));
  }
  // A refused quota only means that the next visit downloads again.
  store?.put(url, response.clone()).catch(() => undefined);
  return response;
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

/** @returns {Promise<Cache | null>} */
async function openStore() {
  try {
    return await caches.open(KEPT_FILES);
  } catch {
    return null;
  }
}
