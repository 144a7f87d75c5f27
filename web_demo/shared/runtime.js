/**
 * @file The runtime's own download, and what this browser can do with it.
 */

import { findKeeping, moduleUrl } from './keeping.js';
import { Problem, problemOf } from './problems.js';
import { Stopped } from './model-worker.js';

const WASM = 'ort-wasm-simd-threaded.wasm';
const SCRIPTS = ['ort.wasm.min.mjs', 'ort-wasm-simd-threaded.mjs'];

// (module (func (result v128) (i32.const 0) (i8x16.splat) (i8x16.popcnt))): SIMD, no more.
const SIMD_MODULE = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0],
  ...[65, 0, 253, 15, 253, 98, 11],
);

/**
 * Make sure that this browser can run models at all.
 *
 * @throws {Problem} it cannot; the words say what is missing
 */
export function requireAbilities() {
  if (typeof WebAssembly !== 'object' || typeof Worker !== 'function') {
    throw new Problem(
      'This browser has no WebAssembly, which computes the model.',
      'Use a current version of Chrome, Edge, Firefox or Safari.',
    );
  }
  if (!WebAssembly.validate(SIMD_MODULE)) {
    throw new Problem(
      'This browser has no WebAssembly SIMD, which the runtime needs.',
      'Update the browser, or use a current Chrome, Edge, Firefox or Safari 16.4.',
    );
  }
}

/** @returns {number} compute threads that make sense here, as the runtime chooses them itself */
export function defaultThreads() {
  if (!globalThis.crossOriginIsolated) return 1;
  return Math.min(4, Math.ceil((navigator.hardwareConcurrency || 1) / 2));
}

/**
 * Bring the runtime into whatever this browser keeps it in, so that its download is seen, and
 * that starting it afterwards is none.
 *
 * @param {import('./catalogue.js').Catalogue} catalogue
 * @param {object} options
 * @param {AbortSignal} [options.signal]
 * @param {(share: number) => void} [options.onProgress] from 0 to 1
 * @returns {Promise<{ runtime: string, wasmPaths: { mjs: string, wasm: string } }>} where a
 *   worker finds it
 */
export async function fetchRuntime(catalogue, { signal, onProgress }) {
  const { files } = catalogue.packages['onnxruntime-web'];
  try {
    const [[runtime, mjs], wasm] = await Promise.all([
      Promise.all(SCRIPTS.map((name) => moduleUrl(files[name]))),
      fetchWasm(files[WASM], signal, onProgress),
    ]);
    return { runtime, wasmPaths: { mjs, wasm } };
  } catch (error) {
    if (signal?.aborted) throw new Stopped();
    throw problemOf(error);
  }
}

/**
 * @param {import('./catalogue.js').ServedFile} file
 * @param {AbortSignal | undefined} signal
 * @param {((share: number) => void) | undefined} onProgress
 * @returns {Promise<string>} its URL, or that of a copy where nothing would keep it
 */
async function fetchWasm({ url, bytes }, signal, onProgress) {
  const { store, browserKeeps } = await findKeeping();
  const { href } = new URL(url, location.href);
  if (!browserKeeps && (await store?.match(href))) return href;
  const response = await fetch(href, { signal });
  if (!response.ok || !response.body) throw problemOf(`${url} answers ${response.status}`);
  const pieces = [];
  let loaded = 0;
  const reader = response.body.getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    loaded += piece.value.length;
    if (!browserKeeps) pieces.push(piece.value);
    onProgress?.(Math.min(1, loaded / bytes));
  }
  if (loaded !== bytes) throw problemOf(`${url} ended after ${loaded} of ${bytes} bytes`);
  if (browserKeeps) return href;
  const content = new Blob(pieces, { type: 'application/wasm' });
  const kept = await store?.put(href, new Response(content)).then(
    () => true,
    () => false, // a refused quota
  );
  return kept ? href : URL.createObjectURL(content);
}
