/**
 * @file Shell around the measuring core for a browser: a module worker that holds one model.
 * Messages as {@link import('./core.js')} describes them; files are URLs.
 */

import { describeRealm, serve } from './core.js';

// A warning of the runtime tells its authors something, and nobody here. It is dropped on its way
// out: a session told to log errors alone (`logSeverityLevel: 3`) ran fifty times slower in
// Firefox 140.
for (const name of /** @type {const} */ (['error', 'warn', 'log'])) {
  const original = console[name];
  console[name] = (...words) => {
    if (!/\[W:onnxruntime/.test(String(words[0]))) original(...words);
  };
}

/** @type {Map<string, Uint8Array<ArrayBuffer>>} files that were downloaded, until read for good */
const near = new Map();

/** @param {import('./core.js').Answer} answer */
const answer = (answer) => globalThis.postMessage(answer);

const handle = serve({
  answer,
  read: async (url) => near.get(url) ?? download(url),
  prefetch: async (urls) => {
    for (const url of urls) near.set(url, await download(url, reportProgress));
  },
  forget: () => near.clear(),
});

/** @param {MessageEvent<import('./core.js').Request>} event */
globalThis.onmessage = ({ data }) => handle(data);
answer(describeRealm());

/**
 * @param {number} loaded
 * @param {number | undefined} total
 */
function reportProgress(loaded, total) {
  answer({ type: 'progress', step: 'download', loaded, total });
}

/**
 * Fetch a file, piece by piece.
 *
 * @param {string} url
 * @param {(loaded: number, total: number | undefined) => void} [report]
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function download(url, report) {
  const response = await fetch(url).catch((error) => {
    throw new Error(`${url} cannot be fetched: ${error.message}`);
  });
  if (!response.ok || !response.body) throw new Error(`${url} answers ${response.status}`);
  // With a content encoding, the length is that of the encoded bytes.
  const encoded = response.headers.has('Content-Encoding');
  const length = Number(response.headers.get('Content-Length'));
  const total = encoded || !length ? undefined : length;
  if (!report) return new Uint8Array(await response.arrayBuffer());
  const pieces = [];
  let loaded = 0;
  const reader = response.body.getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    pieces.push(piece.value);
    loaded += piece.value.length;
    report(loaded, total);
  }
  if (total !== undefined && loaded !== total) {
    throw new Error(`${url} ended after ${loaded} of ${total} bytes`);
  }
  const bytes = new Uint8Array(loaded);
  let position = 0;
  for (const piece of pieces) {
    bytes.set(piece, position);
    position += piece.length;
  }
  return bytes;
}
