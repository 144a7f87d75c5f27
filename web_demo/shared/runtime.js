/**
 * @file The runtime's own download, and what this browser can do with it.
 */

import { KEPT_FILES } from './keeping.js';
import { Problem, problemOf } from './problems.js';
import { Stopped } from './model-worker.js';

const WASM = 'ort-wasm-simd-threaded.wasm';

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
 * Bring the runtime into the browser's cache, so that its download is seen, and that starting
 * it afterwards is no download.
 *
 * @param {import('./catalogue.js').Catalogue} catalogue
 * @param {object} options
 * @param {boolean} options.keeps whether unchanging files have to be kept by hand
 * @param {AbortSignal} [options.signal]
 * @param {(share: number) => void} [options.onProgress] from 0 to 1
 */
export async function fetchRuntime(catalogue, { keeps, signal, onProgress }) {
  const { url, bytes } = catalogue.packages['onnxruntime-web'].files[WASM];
  try {
    const store = keeps ? await caches.open(KEPT_FILES).catch(() => null) : null;
    const absolute = new URL(url, location.href);
    if (await store?.match(absolute)) return;
    const response = await fetch(absolute, { signal });
    if (!response.ok || !response.body) throw problemOf(`${url} answers ${response.status}`);
    const copy = store && response.clone();
    const kept = copy && store.put(absolute, copy).catch(() => undefined);
    let loaded = 0;
    const reader = response.body.getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      loaded += piece.value.length;
      onProgress?.(Math.min(1, loaded / bytes));
    }
    if (loaded !== bytes) throw problemOf(`${url} ended after ${loaded} of ${bytes} bytes`);
    await kept;
  } catch (error) {
    if (signal?.aborted) throw new Stopped();
    throw problemOf(error);
  }
}
