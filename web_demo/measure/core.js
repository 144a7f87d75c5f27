/**
 * @file Opens one model in onnxruntime-web, and measures it. Knows neither page nor Node: a
 * shell around it brings messages in and out and reads files.
 *
 * A realm (worker or process) opens one model, once: what is cold is cold only once, a runtime
 * that failed to start cannot be started again, and the heap never shrinks.
 *
 * Messages to it: {@link OpenRequest}, `{type: 'run'}`, {@link ComputeRequest},
 * `{type: 'memory'}`. Each is answered in order, by {@link Opened}, {@link Ran},
 * {@link Computed}, {@link MemoryAnswer} or {@link Failed}; while a model is opened,
 * {@link Progress} comes before the answer. A shell that is ready says {@link Ready}.
 */

import { heapBytes, watchMemory } from './memory.js';
import { NOT_RUN, OutputCheck, decodeTensor, drawFeeds, encodeTensor } from './tensors.js';

/** @typedef {import('./tensors.js').TensorData} TensorData */
/** @typedef {import('./tensors.js').Tensor} Tensor */
/** @typedef {Record<string, Tensor>} Feeds */

/**
 * Open a model. Locations are what the shell can read: URLs, or paths in Node.
 *
 * @typedef {object} OpenRequest
 * @property {'open'} type
 * @property {string} runtime URL of onnxruntime-web's module
 * @property {{ mjs: string, wasm: string }} [wasmPaths] URLs of what it loads, unless beside it
 * @property {string} model location of the model
 * @property {{ path: string, location: string }[]} [externalData] files that hold its weights;
 *   `path` is the name the model knows
 * @property {number} threads compute threads; more than 1 needs cross-origin isolation
 * @property {Record<string, TensorData>} [feeds] what to run it on, or else:
 * @property {import('./tensors.js').InputSpec[]} [inputs] what to draw inputs for,
 * @property {Record<string, number>} [sizes] and the size of each symbolic dimension
 * @property {string | null} [reference] location of the reference vectors
 * @property {number | null} [tolerance] largest relative error against them
 * @property {boolean} [warmFirst] also open a second session, and time its first run
 * @property {number} [maximumHeapBytes] most the heap may claim
 */

/**
 * Run once, and hand out the outputs.
 *
 * @typedef {object} ComputeRequest
 * @property {'compute'} type
 * @property {Record<string, TensorData>} [feeds] other inputs than the opened ones
 */

/**
 * Everything that happens once; fields as in the record schema.
 *
 * @typedef {object} Times
 * @property {number} runtime_start
 * @property {number} session_create
 * @property {number} cold_first
 * @property {number | null} warm_first
 */

/**
 * Memory in bytes; fields as in the record schema.
 *
 * @typedef {object} Memory
 * @property {number | null} added_rss
 * @property {number | null} peak_rss
 * @property {number | null} wasm_heap
 */

/**
 * What the realm tells of itself.
 *
 * @typedef {object} Ready
 * @property {'ready'} type
 * @property {string | null} userAgent
 * @property {number | null} cores
 * @property {number | null} memoryBytes
 * @property {boolean | null} crossOriginIsolated
 * @property {number} timerResolutionMs
 */

/**
 * @typedef {object} Opened
 * @property {'opened'} type
 * @property {Times} times
 * @property {Memory} memory after the cold first run
 * @property {import('./tensors.js').Check} check
 * @property {number} threadsUsed
 * @property {string} runtimeVersion
 */

/** @typedef {{ type: 'ran', ms: number }} Ran */
/** @typedef {{ type: 'computed', ms: number, outputs: Record<string, TensorData> }} Computed */
/** @typedef {{ type: 'memory', memory: Memory }} MemoryAnswer */
/** @typedef {{ type: 'error', message: string }} Failed */

/**
 * @typedef {object} Progress
 * @property {'progress'} type
 * @property {'download' | 'runtime' | 'session' | 'first run' | 'check' | 'second session'} step
 * @property {number} [loaded] bytes so far
 * @property {number} [total] bytes in all, where known
 */

/** @typedef {OpenRequest | ComputeRequest | { type: 'run' } | { type: 'memory' }} Request */
/** @typedef {Ready | Opened | Ran | Computed | MemoryAnswer | Failed | Progress} Answer */

/**
 * What a shell does for the core.
 *
 * @typedef {object} Shell
 * @property {(answer: Answer) => void} answer
 * @property {(location: string) => Promise<Uint8Array<ArrayBuffer>>} read the content of a file
 * @property {(locations: string[]) => Promise<void>} [prefetch] bring files near, so that
 *   reading them is no download; its time is not measured
 * @property {() => void} [forget] reading is over
 * @property {() => { rss: number, peak: number } | null} [processMemory]
 */

// Inference of `y = Abs(x)`: the smallest model there is, to start the runtime with.
const TINY_MODEL =
  'CAg6OQoNCgF4EgF5IgNBYnM6ABIEdGlueVoQCgF4EgsKCQgBEgUKAxIBbmIQCgF5EgsKCQgBEgUKAxIBbkIECgAQEg==';

const SESSION_OPTIONS = { executionProviders: ['wasm'] };

/**
 * Describe this realm.
 *
 * @returns {Ready}
 */
export function describeRealm() {
  const { navigator, crossOriginIsolated } = /** @type {any} */ (globalThis);
  return {
    type: 'ready',
    userAgent: navigator?.userAgent ?? null,
    cores: navigator?.hardwareConcurrency ?? null,
    // Browsers tell it in GiB, rounded to a power of two and cut off.
    memoryBytes: navigator?.deviceMemory ? navigator.deviceMemory * 2 ** 30 : null,
    crossOriginIsolated: crossOriginIsolated ?? null,
    timerResolutionMs: timerResolution(),
  };
}

/**
 * Serve requests, in their order.
 *
 * @param {Shell} shell
 * @returns {(request: Request) => void}
 */
export function serve(shell) {
  /** @type {OpenModel | undefined} */
  let model;
  /** @type {Promise<void>} */
  let last = Promise.resolve();

  /**
   * @param {Request} request
   * @returns {Promise<Answer>}
   */
  const perform = async (request) => {
    if (request.type === 'open') {
      if (model) throw new Error('a model is open already: use a worker for each');
      model = new OpenModel(shell);
      return model.open(request);
    }
    if (!model) throw new Error('no model is open');
    if (request.type === 'run') return { type: 'ran', ms: (await model.run()).ms };
    if (request.type === 'compute') return model.compute(request);
    if (request.type === 'memory') return { type: 'memory', memory: model.memory() };
    throw new Error(`unknown request ${JSON.stringify(request)}`);
  };

  return (request) => {
    last = last
      .then(() => perform(request))
      .catch((error) => ({ type: /** @type {const} */ ('error'), message: explain(error) }))
      .then(shell.answer);
  };
}

/** One model in one session. */
class OpenModel {
  #shell;

  /** @type {any} the module onnxruntime-web */
  #ort;

  /** @type {any} */
  #session;

  /** @type {Feeds} */
  #feeds = {};

  /** @type {number | null} */
  #rssBefore = null;

  /** @type {number | null} */
  #addedRss = null;

  /** @param {Shell} shell */
  constructor(shell) {
    this.#shell = shell;
  }

  /**
   * @param {OpenRequest} request
   * @returns {Promise<Opened>}
   */
  async open(request) {
    const external = request.externalData ?? [];
    this.#progress('download');
    await this.#shell.prefetch?.([request.model, ...external.map(({ location }) => location)]);
    this.#progress('runtime');
    const runtimeStart = await timed(() => this.#startRuntime(request));
    this.#feeds = this.#makeFeeds(request);
    this.#rssBefore = this.#shell.processMemory?.()?.rss ?? null;
    this.#progress('session');
    const sessionCreate = await timed(() => this.#createSession(request));
    this.#progress('first run');
    const coldFirst = (await this.run()).ms;
    const memory = this.#firstMemory();
    const check = await this.#check(request);
    const warmFirst = request.warmFirst ? await this.#reopen(request) : null;
    this.#shell.forget?.();
    return {
      type: 'opened',
      times: {
        runtime_start: runtimeStart,
        session_create: sessionCreate,
        cold_first: coldFirst,
        warm_first: warmFirst,
      },
      memory,
      check,
      threadsUsed: this.#ort.env.wasm.numThreads,
      runtimeVersion: this.#ort.env.versions.web,
    };
  }

  /**
   * @param {Feeds} [feeds]
   * @returns {Promise<{ ms: number, outputs: Feeds }>}
   */
  async run(feeds = this.#feeds) {
    const start = performance.now();
    const outputs = await this.#session.run(feeds);
    return { ms: performance.now() - start, outputs };
  }

  /**
   * @param {ComputeRequest} request
   * @returns {Promise<Computed>}
   */
  async compute(request) {
    const feeds = request.feeds && this.#decode(request.feeds);
    const { ms, outputs } = await this.run(feeds);
    const encoded = Object.entries(outputs).map(([name, value]) => [name, encodeTensor(value)]);
    return { type: 'computed', ms, outputs: Object.fromEntries(encoded) };
  }

  /** @returns {Memory} */
  memory() {
    const peak = this.#shell.processMemory?.()?.peak ?? null;
    return { added_rss: this.#addedRss, peak_rss: peak, wasm_heap: heapBytes() };
  }

  /** @param {OpenRequest} request */
  async #startRuntime(request) {
    watchMemory(request.maximumHeapBytes);
    this.#ort = await import(request.runtime);
    // All settings come before the first session, which starts WebAssembly.
    this.#ort.env.logLevel = 'error';
    this.#ort.env.wasm.numThreads = request.threads;
    if (request.wasmPaths) this.#ort.env.wasm.wasmPaths = request.wasmPaths;
    const bytes = Uint8Array.from(atob(TINY_MODEL), (character) => character.charCodeAt(0));
    const tiny = await this.#ort.InferenceSession.create(bytes, SESSION_OPTIONS);
    await tiny.release();
  }

  /** @param {OpenRequest} request */
  async #createSession(request) {
    const { read } = this.#shell;
    const externalData = [];
    for (const { path, location } of request.externalData ?? []) {
      externalData.push({ path, data: await read(location) });
    }
    this.#session = await this.#ort.InferenceSession.create(await read(request.model), {
      ...SESSION_OPTIONS,
      ...(externalData.length && { externalData }),
    });
  }

  /**
   * @param {OpenRequest} request
   * @returns {Promise<number>} milliseconds of the second session's first run
   */
  async #reopen(request) {
    this.#progress('second session');
    await this.#session.release();
    await this.#createSession(request);
    return (await this.run()).ms;
  }

  /**
   * @param {OpenRequest} request
   * @returns {Promise<import('./tensors.js').Check>}
   */
  async #check({ reference, tolerance }) {
    if (reference == null || tolerance == null) return NOT_RUN;
    this.#progress('check');
    const document = JSON.parse(new TextDecoder().decode(await this.#shell.read(reference)));
    if (document.schema !== 1) {
      throw new Error(`${reference} has schema ${document.schema}; this version reads 1`);
    }
    /** @type {import('./tensors.js').ReferenceCase[]} */
    const cases = document.cases;
    if (!cases.length) return NOT_RUN;
    const check = new OutputCheck();
    for (const { inputs, outputs } of cases) {
      const actual = await this.run(this.#decode(inputs));
      check.add(this.#decode(outputs), actual.outputs);
    }
    return check.verdict(tolerance);
  }

  /**
   * @param {OpenRequest} request
   * @returns {Feeds}
   */
  #makeFeeds({ feeds, inputs, sizes }) {
    if (feeds) return this.#decode(feeds);
    if (inputs && sizes) return drawFeeds(inputs, sizes, this.#ort.Tensor);
    throw new Error('to open a model takes feeds, or inputs and sizes to draw them for');
  }

  /**
   * @param {Record<string, TensorData>} values
   * @returns {Feeds}
   */
  #decode(values) {
    const { Tensor } = this.#ort;
    const decoded = Object.entries(values).map(([name, value]) => [
      name,
      decodeTensor(value, Tensor),
    ]);
    return Object.fromEntries(decoded);
  }

  /** @returns {Memory} */
  #firstMemory() {
    const now = this.#shell.processMemory?.();
    if (now && this.#rssBefore !== null) this.#addedRss = now.rss - this.#rssBefore;
    return this.memory();
  }

  /** @param {Progress['step']} step */
  #progress(step) {
    this.#shell.answer({ type: 'progress', step });
  }
}

/**
 * @param {() => Promise<void>} action
 * @returns {Promise<number>} milliseconds it took
 */
async function timed(action) {
  const start = performance.now();
  await action();
  return performance.now() - start;
}

/** @returns {number} smallest step of the clock seen, in milliseconds */
function timerResolution() {
  let smallest = Infinity;
  for (let step = 0; step < 10; step += 1) {
    const start = performance.now();
    let now = start;
    while (now === start) now = performance.now();
    smallest = Math.min(smallest, now - start);
  }
  return smallest;
}

/**
 * Say what went wrong in one line.
 *
 * @param {unknown} error
 * @returns {string}
 */
function explain(error) {
  // An exception of C++ that nothing caught arrives as its address.
  if (typeof error === 'number') {
    return 'the runtime failed inside WebAssembly, as it does when memory runs out';
  }
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.trim().split('\n')[0];
}
