/**
 * @file Brings a variant from the server into a worker of its own, with one progress over
 * everything that has to be downloaded.
 */

import { transferBytes } from './catalogue.js';
import { KEPT_FILES, findKeeping } from './keeping.js';
import { openModel } from './model-worker.js';
import { fetchRuntime } from './runtime.js';

/** @typedef {import('./catalogue.js').Catalogue} Catalogue */
/** @typedef {import('./catalogue.js').Variant} Variant */
/** @typedef {import('./catalogue.js').ServedFile} ServedFile */
/** @typedef {import('../measure/core.js').Progress} CoreProgress */

/**
 * @typedef {object} LoadProgress
 * @property {string} words what is being done
 * @property {number | null} share of the bytes, from 0 to 1; null once they are here
 * @property {number} loadedBytes as they cross the network
 * @property {number} totalBytes
 */

/**
 * @typedef {object} LoadRequest
 * @property {Catalogue} catalogue
 * @property {Variant} variant
 * @property {Omit<import('../measure/core.js').OpenRequest,
 *   'type' | 'runtime' | 'wasmPaths' | 'model' | 'externalData'>} open what else the core is told
 * @property {AbortSignal} signal
 * @property {string} [input] an optional input that will be fed
 * @property {number} [patienceMs]
 * @property {(progress: LoadProgress) => void} [onProgress]
 */

/**
 * @typedef {object} Loaded
 * @property {import('./model-worker.js').ModelWorker} worker
 * @property {import('../measure/core.js').Opened} opened
 * @property {boolean} modest whether it only opened with one thread and less memory
 * @property {number} downloadMs until all bytes were here
 */

/** @type {Record<CoreProgress['step'], string>} */
const WORDS = {
  download: 'Downloading',
  runtime: 'Starting the runtime',
  session: 'Opening the model',
  'first run': 'Running for the first time',
  check: 'Checking its answers',
  'second session': 'Opening the model again',
};

/**
 * Download and open.
 *
 * @param {LoadRequest} request
 * @returns {Promise<Loaded>}
 */
export async function loadVariant(request) {
  const { catalogue, variant, signal, patienceMs } = request;
  const start = performance.now();
  const meter = new Meter(catalogue, variant);
  /** @param {string} words */
  const tell = (words) => request.onProgress?.({ words, ...meter.state() });
  tell(WORDS.download);
  const runtime = await fetchRuntime(catalogue, {
    signal,
    onProgress: (share) => {
      meter.runtimeShare = share;
      tell(WORDS.download);
    },
  });
  meter.runtimeShare = 1;
  let downloadMs = NaN;
  /** @param {CoreProgress} progress */
  const onProgress = (progress) => {
    if (progress.step === 'download') meter.advance(progress.loaded);
    else if (Number.isNaN(downloadMs)) {
      downloadMs = performance.now() - start;
      meter.done = true;
    }
    tell(WORDS[progress.step]);
  };
  const opening = {
    ...request.open,
    ...runtime,
    model: locationOf(variant.model) + (request.input ? `&input=${request.input}` : ''),
    externalData: variant.external_data.map((file) => ({
      path: file.location,
      location: locationOf(file),
    })),
  };
  const store = (await findKeeping()).store && KEPT_FILES;
  const loaded = await openModel(opening, { store, signal, patienceMs, onProgress });
  return { ...loaded, downloadMs };
}

/**
 * @param {ServedFile} file
 * @returns {string} its URL, with its length for the worker's `fetch`
 */
export function locationOf({ url, bytes }) {
  return `${new URL(url, location.href).href}#bytes=${bytes}`;
}

/** Adds up what has come, in bytes as they cross the network. */
class Meter {
  runtimeShare = 0;

  done = false;

  #runtime;

  #files;

  #index = 0;

  #last = 0;

  /**
   * @param {Catalogue} catalogue
   * @param {Variant} variant
   */
  constructor(catalogue, variant) {
    const { files } = catalogue.packages['onnxruntime-web'];
    this.#runtime = transferBytes(files['ort-wasm-simd-threaded.wasm']);
    this.#files = [variant.model, ...variant.external_data];
  }

  /** @param {number | undefined} loaded bytes of the file at hand, unpacked */
  advance(loaded = 0) {
    // The worker loads one file after the other; less than before is the next one.
    if (loaded < this.#last && this.#index < this.#files.length - 1) this.#index += 1;
    this.#last = loaded;
  }

  /** @returns {{ share: number | null, loadedBytes: number, totalBytes: number }} */
  state() {
    const transfers = this.#files.map((file) => transferBytes(file));
    const sum = (/** @type {number[]} */ numbers) => numbers.reduce((a, b) => a + b, 0);
    const totalBytes = this.#runtime + sum(transfers);
    if (this.done) return { share: null, loadedBytes: totalBytes, totalBytes };
    const here = transfers[this.#index] * Math.min(1, this.#last / this.#files[this.#index].bytes);
    const before = sum(transfers.slice(0, this.#index));
    const loadedBytes = Math.round(this.#runtime * this.runtimeShare + before + here);
    return { share: loadedBytes / totalBytes, loadedBytes, totalBytes };
  }
}
