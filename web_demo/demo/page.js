/**
 * @file The demo's state and what is shown of it: nothing loaded, loading, answering, failed.
 */

import { runtimeTransferBytes, transferBytes } from '../shared/catalogue.js';
import { byId, element, setText, showProblem } from '../shared/dom.js';
import { formatBytes, formatTime, plural } from '../shared/format.js';
import { readJson } from '../shared/keeping.js';
import { loadVariant } from '../shared/loading.js';
import { Stopped } from '../shared/model-worker.js';
import { keepPages } from '../shared/offline.js';
import { problemOf } from '../shared/problems.js';
import { defaultThreads } from '../shared/runtime.js';
import { EXAMPLES } from './examples.js';
import { numbersOf, readOutputs } from './outputs.js';
import { Predictor } from './predictor.js';
import { showReading, showTokens } from './result-view.js';
import { offerText } from './text-field.js';
import { layOut, pack, prepareReader, smallSizes } from './text.js';
import { VariantRow, offerMore } from './variant-table.js';

/** @typedef {import('../shared/catalogue.js').Catalogue} Catalogue */
/** @typedef {import('../shared/catalogue.js').ArtifactEntry} ArtifactEntry */
/** @typedef {import('../shared/catalogue.js').Variant} Variant */
/** @typedef {import('../measure/tensors.js').TensorData} TensorData */

/**
 * @typedef {object} Question
 * @property {string} text as it was typed
 * @property {Record<string, TensorData>} [feeds] the same for the model
 * @property {number} tokens
 * @property {boolean} cut
 */

const TIMED_RUNS = 8;
const TIMED_MS = 2000;

export class DemoPage {
  #catalogue;

  #artifact;

  /** @type {VariantRow[]} */
  #rows;

  /** @type {import('./text.js').Reader | null} */
  #reader = null;

  /** @type {any} the model's config.json */
  #config = null;

  /** @type {AbortController | null} of what is being loaded or in use */
  #control = null;

  /** @type {VariantRow | null} loading or in use */
  #row = null;

  /** @type {Predictor<Question> | null} */
  #predictor = null;

  /** @type {import('../measure/tensors.js').InputSpec | undefined} */
  #depthSpec;

  #text = byId('text', HTMLTextAreaElement);

  #depth = byId('depth', HTMLInputElement);

  #startButton = byId('start-button', HTMLButtonElement);

  #problem = byId('answer-problem', HTMLElement);

  /**
   * @param {Catalogue} catalogue
   * @param {ArtifactEntry} artifact
   * @param {{ main: Variant[], more: Variant[] }} variants
   */
  constructor(catalogue, artifact, { main, more }) {
    this.#catalogue = catalogue;
    this.#artifact = artifact;
    const rows = byId('rows', HTMLElement);
    const use = (/** @type {VariantRow} */ row) => this.#toggle(row);
    this.#rows = [...main, ...more].map((variant) => new VariantRow(variant, use));
    rows.append(...this.#rows.map((row) => row.element));
    offerMore(byId('more-button', HTMLButtonElement), this.#rows.slice(main.length));
  }

  /** Read what belongs to the model, and let people begin. */
  async prepare() {
    this.#offerDepth();
    const { config } = this.#artifact;
    [this.#reader, this.#config] = await Promise.all([
      prepareReader(this.#catalogue, this.#artifact),
      config ? readJson(config) : null,
    ]);
    offerText(this.#reader, this.#text, () => this.#changed());
    const [first] = this.#rows;
    const download = runtimeTransferBytes(this.#catalogue) + transferBytes(first.variant);
    setText(this.#startButton, `Start · ${formatBytes(download)}`);
    this.#startButton.disabled = false;
    this.#startButton.onclick = () => this.#load(this.#row ?? first);
    byId('cancel-button', HTMLButtonElement).onclick = () => this.#cancel();
    this.#readText();
    this.#showState('start');
  }

  /** @param {VariantRow} row */
  #toggle(row) {
    if (row.state === 'loading') this.#cancel();
    else this.#load(row);
  }

  #cancel() {
    this.#leave();
    byId('start-note', HTMLElement).textContent = 'Stopped. Nothing is loaded now.';
    this.#showState('start');
    this.#startButton.focus({ preventScroll: true });
  }

  /** End what is loading or in use. */
  #leave() {
    this.#control?.abort();
    this.#row?.show('idle');
    this.#control = this.#predictor = null;
  }

  /** @param {VariantRow} row */
  async #load(row) {
    this.#leave();
    const control = new AbortController();
    this.#control = control;
    this.#row = row;
    row.show('loading');
    showProblem(this.#problem, null);
    this.#showState('progress');
    const start = performance.now();
    try {
      const loaded = await loadVariant({
        catalogue: this.#catalogue,
        variant: row.variant,
        open: { threads: defaultThreads(), warmFirst: false, ...this.#exampleInputs() },
        input: this.#depthOf(row)?.name ?? this.#exitOf(row)?.name,
        signal: control.signal,
        onProgress: (progress) => !control.signal.aborted && this.#showProgress(progress),
      });
      await this.#use(row, loaded, control.signal, start);
      keepPages();
    } catch (error) {
      // Whoever stopped it has already shown what comes next.
      if (!(error instanceof Stopped || control.signal.aborted)) this.#fail(row, error);
    }
  }

  /**
   * @param {VariantRow} row
   * @param {import('../shared/loading.js').Loaded} loaded
   * @param {AbortSignal} signal
   * @param {number} start when it was asked for
   */
  async #use(row, { worker, opened, modest, downloadMs }, signal, start) {
    const predictor = new Predictor(
      (/** @type {Question} */ { feeds }) => worker.compute(feeds),
      (question, computed) => this.#showAnswer(row, question, computed),
    );
    this.#predictor = predictor;
    await predictor.ask(this.#question());
    if (signal.aborted) return;
    row.fill({ firstMs: performance.now() - start, downloadMs });
    row.show('active');
    this.#showState('result');
    this.#tellThreads(opened.threadsUsed, modest);
    await this.#time(row, worker);
  }

  /**
   * Time the same example in every version. What is typed meanwhile comes first.
   *
   * @param {VariantRow} row
   * @param {import('../shared/model-worker.js').ModelWorker} worker
   */
  async #time(row, worker) {
    /** @type {number[]} */
    const runsMs = [];
    const start = performance.now();
    while (runsMs.length < TIMED_RUNS && performance.now() - start < TIMED_MS) {
      runsMs.push(await worker.run());
    }
    const { wasm_heap: heapBytes } = await worker.memory();
    row.fill({ runsMs, heapBytes });
  }

  /**
   * @param {VariantRow} row
   * @param {unknown} error
   */
  #fail(row, error) {
    const problem = problemOf(error);
    this.#leave();
    row.show('idle', problem.message);
    const again = element('button', { type: 'button', onclick: () => this.#load(row) }, 'Try again');
    showProblem(this.#problem, problem, again);
    this.#showState('problem');
  }

  /** @returns {Question} what is typed, for the model */
  #question() {
    const { ids, cut } = this.#readText();
    const drawn = this.#reader?.mode === 'drawn';
    const feeds = drawn ? undefined : this.#feeds(ids);
    return { text: this.#text.value, feeds, tokens: ids.length, cut };
  }

  /**
   * @param {number[]} ids
   * @returns {Record<string, TensorData>}
   */
  #feeds(ids) {
    const padId = this.#config?.pad_token_id ?? 0;
    const feeds = layOut(this.#artifact, ids, padId);
    const depth = this.#row && this.#depthOf(this.#row);
    if (depth) feeds[depth.name] = pack('int64', [], [this.#depth.valueAsNumber]);
    const exit = this.#row && this.#exitOf(this.#row);
    if (exit) feeds[exit.name] = pack(exit.dtype, [], [exit.value]);
    return feeds;
  }

  /**
   * @param {VariantRow} row
   * @returns {import('../measure/tensors.js').InputSpec | undefined} the input for the number of
   *   passes; unshared models have no loop, and so none
   */
  #depthOf(row) {
    return row.isBaseline ? undefined : this.#depthSpec;
  }

  /**
   * @param {VariantRow} row
   * @returns {{ name: string, dtype: string, value: number } | undefined} the input that says when
   *   to leave the layers early, where that was calibrated
   */
  #exitOf(row) {
    const { early_exit: early, inputs } = this.#artifact;
    const value = row.variant.exit_value;
    const spec = inputs.specs.find(({ name }) => name === early?.input);
    if (!spec || value == null || this.#reader?.mode === 'drawn') return undefined;
    return { name: spec.name, dtype: spec.dtype, value };
  }

  /** @returns {Pick<import('../measure/core.js').OpenRequest, 'feeds' | 'inputs' | 'sizes'>} */
  #exampleInputs() {
    if (this.#reader?.mode === 'text') {
      return { feeds: this.#feeds(this.#reader.encode(EXAMPLES[0]).ids) };
    }
    const { specs } = this.#artifact.inputs;
    if (this.#reader?.mode === 'ids') {
      const upper = specs.find(({ role }) => role === 'ids')?.upper ?? 16;
      return { feeds: this.#feeds(Array.from({ length: 16 }, (_, index) => index % upper)) };
    }
    return { inputs: specs, sizes: smallSizes(this.#artifact) };
  }

  /**
   * Split what is typed into tokens, and show them.
   *
   * @returns {import('./text.js').Encoded}
   */
  #readText() {
    const field = byId('text-problem', HTMLElement);
    try {
      const encoded = this.#reader?.encode(this.#text.value) ?? { ids: [], tokens: [], cut: false };
      setText(field, '');
      showTokens(byId('tokens', HTMLElement), encoded.tokens, (token) => /^[[<].*[\]>]$/.test(token));
      return encoded;
    } catch (error) {
      const problem = problemOf(error);
      setText(field, `${problem.message} ${problem.advice}`);
      throw problem;
    }
  }

  /** Something was typed, picked or moved. */
  #changed() {
    if (!this.#predictor) {
      this.#quietly(() => this.#readText());
      return;
    }
    const predictor = this.#predictor;
    this.#quietly(() => {
      byId('result', HTMLElement).classList.add('waiting');
      predictor.ask(this.#question()).catch((error) => {
        if (error instanceof Stopped || !this.#row || this.#predictor !== predictor) return;
        this.#fail(this.#row, error);
      });
    });
  }

  /** @param {() => void} act its problem is already beside the field */
  #quietly(act) {
    try {
      act();
    } catch {
      byId('result', HTMLElement).classList.remove('waiting');
    }
  }

  /**
   * @param {VariantRow} row
   * @param {Question} question
   * @param {import('../measure/core.js').Computed} computed
   */
  #showAnswer(row, question, { outputs, ms }) {
    const result = byId('result', HTMLElement);
    const answer = byId('answer', HTMLElement);
    const { layers_used: used, ...answers } = outputs;
    const reading = readOutputs(answers, this.#config);
    const spoken = showReading(answer, reading);
    if (reading.kind === 'classes') {
      answer.dataset.label = reading.classes[0].label;
      answer.dataset.share = String(reading.classes[0].share);
    }
    const caveat = byId('caveat', HTMLElement);
    caveat.hidden = !row.isBaseline;
    setText(
      caveat,
      'This version has random weights: it shows what it costs. Its answers mean nothing.',
    );
    const counted = question.tokens ? `${plural(question.tokens, 'token')} in ` : '';
    const cut = question.cut ? ' The end of the text did not fit and was not read.' : '';
    const all = this.#artifact.early_exit?.layers;
    const passes = used && all ? ` ${numbersOf(used)[0]} of ${all} passes through the layer.` : '';
    setText(byId('answer-facts', HTMLElement), `${counted}${formatTime(ms)}.${passes}${cut}`);
    setText(byId('spoken', HTMLElement), spoken);
    result.classList.remove('waiting');
    result.dataset.text = question.text;
  }

  /** @param {import('../shared/loading.js').LoadProgress} progress */
  #showProgress({ words, share, loadedBytes, totalBytes }) {
    const bar = byId('progress-bar', HTMLProgressElement);
    if (share === null) bar.removeAttribute('value');
    else bar.value = share;
    this.#row?.showProgress(share);
    const bytes = `${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}`;
    setText(byId('progress-words', HTMLElement), share === null ? `${words} …` : `${words} ${bytes}`);
  }

  /** @param {'start' | 'progress' | 'result' | 'problem'} state */
  #showState(state) {
    for (const name of ['start', 'progress', 'result']) byId(name, HTMLElement).hidden = name !== state;
    const elastic = state === 'result' && this.#row && this.#depthOf(this.#row);
    byId('depth-field', HTMLElement).hidden = !elastic;
    document.body.dataset.state = state;
  }

  /**
   * @param {number} used
   * @param {boolean} modest
   */
  #tellThreads(used, modest) {
    const asked = defaultThreads();
    const why = modest ? ', since this browser refuses more memory' : '';
    const words = `The model runs on ${plural(used, 'thread')} of ${asked} asked for${why}.`;
    setText(byId('threads-note', HTMLElement), words);
  }

  #offerDepth() {
    this.#depthSpec = this.#artifact.inputs.specs.find(
      ({ optional, shape, dtype }) => optional && !shape.length && dtype === 'int64',
    );
    const passes = this.#artifact.layout?.loops?.[0]?.iterations;
    // Where layers are left early, each text finds its own depth.
    if (!passes || this.#artifact.early_exit) this.#depthSpec = undefined;
    if (!this.#depthSpec) return;
    this.#depth.max = this.#depth.value = String(passes);
    const output = byId('depth-value', HTMLOutputElement);
    const show = () => setText(output, `${this.#depth.value} of ${passes}`);
    show();
    this.#depth.oninput = () => {
      show();
      this.#changed();
    };
  }
}
