/**
 * @file One model in one worker, seen from the page: requests as promises, with a watchdog.
 */

import { Problem, problemOf } from './problems.js';

/** @typedef {import('../measure/core.js').Ready} Ready */
/** @typedef {import('../measure/core.js').Opened} Opened */
/** @typedef {import('../measure/core.js').OpenRequest} OpenRequest */
/** @typedef {import('../measure/core.js').Computed} Computed */
/** @typedef {import('../measure/core.js').Progress} Progress */
/** @typedef {import('../measure/core.js').Answer} Answer */
/** @typedef {import('../measure/tensors.js').TensorData} TensorData */

/**
 * @typedef {object} Waiting
 * @property {(answer: any) => void} resolve
 * @property {(problem: Error) => void} reject
 * @property {(progress: Progress) => void} [onProgress]
 */

/** Largest heap that is asked for where a browser refused the runtime's own wish of 4 GiB. */
const MODEST_HEAP_BYTES = 512 * 2 ** 20;

/** The work was stopped on purpose. */
export class Stopped extends Error {
  constructor() {
    super('stopped');
    this.name = 'Stopped';
  }
}

/** A worker that opens one model. Close it in the end: only that frees the memory. */
export class ModelWorker {
  /** @type {Waiting[]} oldest first */
  #waiting = [];

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #watchdog;

  /** @type {Error | null} why there will be no more answers */
  #ended = null;

  #worker;

  #patienceMs;

  /** @type {Progress['step'] | null} what it did last while opening */
  step = null;

  /** Milliseconds until the worker answered. */
  startMs = NaN;

  /** @type {Ready | null} */
  ready = null;

  /**
   * @param {string | null} store name of the store that holds models
   * @param {number} patienceMs longest silence before it is given up
   */
  constructor(store, patienceMs) {
    const url = new URL(`worker.js${store ? `?store=${store}` : ''}`, import.meta.url);
    this.#patienceMs = patienceMs;
    this.#worker = new Worker(url, { type: 'module' });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#end(problemOf(event.message || 'the worker could not be started: error loading'));
    };
  }

  /**
   * Start a worker, and wait until it answers.
   *
   * @param {{ store?: string | null, patienceMs?: number, signal?: AbortSignal }} [options]
   * @returns {Promise<ModelWorker>}
   */
  static async start({ store = null, patienceMs = 120_000, signal } = {}) {
    if (signal?.aborted) throw new Stopped();
    const start = performance.now();
    const worker = new ModelWorker(store, patienceMs);
    signal?.addEventListener('abort', () => worker.close(), { once: true });
    worker.ready = await worker.#answer();
    worker.startMs = performance.now() - start;
    return worker;
  }

  /**
   * @param {Omit<OpenRequest, 'type'>} request
   * @param {(progress: Progress) => void} [onProgress]
   * @returns {Promise<Opened>}
   */
  open(request, onProgress) {
    return this.#ask({ type: 'open', ...request }, onProgress);
  }

  /** @returns {Promise<number>} milliseconds of one run */
  async run() {
    return (await this.#ask({ type: 'run' })).ms;
  }

  /**
   * @param {Record<string, TensorData>} [feeds] what it was opened with, unless given
   * @returns {Promise<Computed>}
   */
  compute(feeds) {
    return this.#ask({ type: 'compute', feeds });
  }

  /** @returns {Promise<import('../measure/core.js').Memory>} */
  async memory() {
    return (await this.#ask({ type: 'memory' })).memory;
  }

  /** End it; whoever waits is told that it was stopped. Safe to call again. */
  close() {
    this.#end(new Stopped());
  }

  /**
   * @param {import('../measure/core.js').Request} request
   * @param {(progress: Progress) => void} [onProgress]
   * @returns {Promise<any>}
   */
  #ask(request, onProgress) {
    const answer = this.#answer(onProgress);
    this.#worker.postMessage(request);
    return answer;
  }

  /**
   * @param {(progress: Progress) => void} [onProgress]
   * @returns {Promise<any>}
   */
  #answer(onProgress) {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject, onProgress });
      this.#watch();
    });
  }

  /** @param {Answer} answer */
  #receive(answer) {
    if (answer.type === 'progress') {
      this.step = answer.step;
      this.#waiting[0]?.onProgress?.(answer);
    } else {
      const waiting = this.#waiting.shift();
      if (answer.type === 'error') waiting?.reject(problemOf(answer.message));
      else waiting?.resolve(answer);
    }
    this.#watch();
  }

  #watch() {
    clearTimeout(this.#watchdog);
    if (!this.#waiting.length) return;
    this.#watchdog = setTimeout(() => this.#end(this.#silence()), this.#patienceMs);
  }

  /** @returns {Problem} */
  #silence() {
    const seconds = Math.round(this.#patienceMs / 1000);
    if (this.step === 'download') {
      return new Problem(
        `The download stood still for ${seconds} seconds.`,
        'Check the connection to the server, then try again.',
      );
    }
    return new Problem(
      `The model gave no answer for ${seconds} seconds, so it was ended.`,
      'Try a smaller version, or close other tabs.',
    );
  }

  /** @param {Error} reason */
  #end(reason) {
    if (this.#ended) return;
    this.#ended = reason;
    clearTimeout(this.#watchdog);
    this.#worker.terminate();
    for (const { reject } of this.#waiting.splice(0)) reject(reason);
  }
}

/**
 * Open a model in a worker of its own. Where the runtime does not start, which is what browsers
 * that refuse much shared memory do, it is tried once more, modestly: one thread, less memory.
 *
 * @param {Omit<OpenRequest, 'type'>} request
 * @param {{ store?: string | null, patienceMs?: number, signal?: AbortSignal,
 *   onProgress?: (progress: Progress) => void }} [options]
 * @returns {Promise<{ worker: ModelWorker, opened: Opened, modest: boolean }>}
 */
export async function openModel(request, options = {}) {
  let worker = await ModelWorker.start(options);
  try {
    return { worker, opened: await worker.open(request, options.onProgress), modest: false };
  } catch (error) {
    worker.close();
    if (error instanceof Stopped || worker.step !== 'runtime') throw error;
  }
  worker = await ModelWorker.start(options);
  try {
    const modest = { ...request, threads: 1, maximumHeapBytes: MODEST_HEAP_BYTES };
    return { worker, opened: await worker.open(modest, options.onProgress), modest: true };
  } catch (error) {
    worker.close();
    throw error;
  }
}
