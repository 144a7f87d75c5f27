/**
 * @file The benchmark's course: plan, runs one after the other, results sent and shown.
 */

import { byId, element, setText, showProblem } from '../shared/dom.js';
import { formatBytes, formatTime, median, plural } from '../shared/format.js';
import { loadVariant, locationOf } from '../shared/loading.js';
import { Problem, problemOf } from '../shared/problems.js';
import { findToken, readRecords, sendRecords } from '../shared/session.js';
import { CrashMarker, Visibility, Wakefulness, coolDown } from './guards.js';
import { PlanForm } from './plan-form.js';
import { estimateBytes, memoryBudget, referenceOf } from './plan.js';
import { RunProtocol } from './protocol.js';
import { Outcome, speedUp, toMarkdown } from './records.js';
import { describeCase, showChart, showDevices, showRows } from './results-view.js';

/** @typedef {import('../shared/catalogue.js').Catalogue} Catalogue */
/** @typedef {import('../shared/device.js').DeviceInfo} DeviceInfo */
/** @typedef {import('./records.js').Measurement} Measurement */
/** @typedef {import('./results-view.js').Shown} Shown */
/** @typedef {import('./plan.js').Arm} Arm */

const POLL_MS = 5000;
const SHOWN_DEVICES = 24;
const PHONE_PAUSE_S = 15;
const PAUSE_S = 2;
const PATIENCE_MS = 120_000;

export class BenchPage {
  #catalogue;

  #device;

  #form;

  /** @type {Shown[]} finished, or ended by a crash */
  #finished = [];

  /** @type {Shown[]} being measured */
  #current = [];

  #marker = new CrashMarker();

  #wakefulness = new Wakefulness();

  #visibility = new Visibility((hidden) => {
    byId('hidden-note', HTMLElement).hidden = !hidden || !this.#control;
  });

  /** @type {AbortController | null} while measuring */
  #control = null;

  /** @type {Set<Measurement>} not at the server, with the name the device has now */
  #unsent = new Set();

  /** @type {string | null} */
  #etag = null;

  #drawing = 0;

  /**
   * @param {Catalogue} catalogue
   * @param {DeviceInfo} device
   */
  constructor(catalogue, device) {
    this.#catalogue = catalogue;
    this.#device = device;
    this.#form = new PlanForm(catalogue.artifacts, device);
  }

  async prepare() {
    this.#form.onStart(() => this.#measure());
    this.#form.onLabel(() => this.#rename());
    byId('stop-button', HTMLButtonElement).onclick = () => this.#control?.abort();
    byId('send-button', HTMLButtonElement).onclick = () => this.#send();
    byId('markdown-button', HTMLButtonElement).onclick = () => this.#copy(toMarkdown(this.#records));
    byId('json-button', HTMLButtonElement).onclick = () =>
      this.#copy(this.#records.map((record) => `${JSON.stringify(record)}\n`).join(''));
    document.body.dataset.state = 'ready';
    await this.#reportCrash();
    if (await findToken()) {
      await this.#poll();
      setInterval(() => document.hidden || this.#poll(), POLL_MS);
    }
  }

  /** @returns {Measurement[]} */
  get #records() {
    return this.#finished.map(({ record }) => record);
  }

  async #measure() {
    const { runs, effort, refused } = this.#form;
    const control = new AbortController();
    this.#control = control;
    this.#form.open = false;
    this.#visibility.reset();
    byId('running', HTMLElement).hidden = byId('results', HTMLElement).hidden = false;
    byId('crash-note', HTMLElement).hidden = true;
    document.body.dataset.state = 'running';
    byId('stop-button', HTMLButtonElement).focus({ preventScroll: true });
    byId('running', HTMLElement).scrollIntoView({ block: 'nearest' });
    await this.#wakefulness.begin();
    this.#tellRefused(refused);
    try {
      for (const [index, { arms }] of runs.entries()) {
        if (control.signal.aborted) break;
        if (index) await this.#rest(control.signal);
        await this.#measureRun(arms, effort, index, runs.length, control.signal);
      }
    } catch (error) {
      showProblem(byId('page-problem', HTMLElement), problemOf(error));
    } finally {
      await this.#wakefulness.end();
      this.#control = null;
      this.#form.open = true;
      byId('running', HTMLElement).hidden = true;
      document.body.dataset.state = control.signal.aborted ? 'stopped' : 'done';
      this.#announce(control.signal.aborted);
    }
  }

  /**
   * What this device would not bear is a result too, and sent with the first of the others.
   *
   * @param {Arm[]} arms
   */
  #tellRefused(arms) {
    const run = `web-${randomName()}`;
    const budget = formatBytes(memoryBudget(this.#device));
    for (const arm of arms) {
      const outcome = new Outcome(arm);
      const need = formatBytes(estimateBytes(arm.variant));
      outcome.refuse(
        `needs about ${need} of memory, and this device is likely to end a page beyond ${budget}`,
      );
      const record = outcome.record(this.#stamp(run));
      this.#finished.push({ record, speedUp: NaN, pending: false });
      this.#unsent.add(record);
    }
  }

  /**
   * @param {string} run
   * @returns {import('./records.js').Stamp}
   */
  #stamp(run) {
    return { tool: this.#catalogue.tool, run, device: this.#device, label: this.#form.label };
  }

  /**
   * @param {Arm[]} arms
   * @param {import('./protocol.js').Effort} effort
   * @param {number} index
   * @param {number} count
   * @param {AbortSignal} signal
   */
  async #measureRun(arms, effort, index, count, signal) {
    const run = `web-${randomName()}`;
    const recordOf = (/** @type {Outcome} */ outcome) => outcome.record(this.#stamp(run));
    const part = count > 1 ? `Round ${index + 1} of ${count}: ` : '';
    const [{ case: first }] = arms;
    const shape = `${plural(first.threads, 'thread')}, ${plural(first.sequence, 'token')}`;
    const protocol = new RunProtocol(arms, effort, {
      signal,
      open: (arm, thorough, onProgress) =>
        this.#open(arm, { thorough, signal, onProgress }),
      tell: (words, share) => {
        setText(byId('running-words', HTMLElement), `${part}${shape}: ${words}`);
        byId('running-bar', HTMLProgressElement).value = (index + share) / count;
      },
      whileVisible: () => this.#visibility.wait(signal),
      danger: (outcome) => {
        if (!outcome) this.#marker.clear();
        else this.#marker.set(crashed(recordOf(outcome)));
      },
      changed: () => {
        this.#current = present(protocol.outcomes, recordOf, true);
        this.#draw();
      },
    });
    await protocol.measure();
    this.#current = [];
    const done = present(protocol.outcomes, recordOf, false);
    this.#finished.push(...done.filter(({ record }) => record.error || record.samples_ms.length));
    for (const { record } of done) if (this.#records.includes(record)) this.#unsent.add(record);
    this.#draw();
    await this.#send();
  }

  /**
   * @param {Arm} arm
   * @param {{ thorough: boolean, signal: AbortSignal,
   *   onProgress: (progress: import('../shared/loading.js').LoadProgress) => void }} how
   */
  #open({ artifact, variant, sizes, case: { threads } }, { thorough, ...how }) {
    const reference = artifact.reference && locationOf(artifact.reference);
    return loadVariant({
      ...how,
      catalogue: this.#catalogue,
      variant,
      patienceMs: PATIENCE_MS,
      open: {
        threads,
        inputs: artifact.inputs.specs,
        sizes,
        reference: thorough ? reference : null,
        tolerance: thorough ? variant.tolerance : null,
        warmFirst: thorough,
      },
    });
  }

  /** @param {AbortSignal} signal */
  async #rest(signal) {
    const seconds = this.#device.phone ? PHONE_PAUSE_S : PAUSE_S;
    await coolDown(seconds, signal, (left) => {
      setText(byId('running-words', HTMLElement), `Letting the device cool down: ${left} s`);
    });
  }

  /** Draw what there is, at most once per frame. */
  #draw() {
    cancelAnimationFrame(this.#drawing);
    this.#drawing = requestAnimationFrame(() => {
      const results = [...this.#finished, ...this.#current];
      byId('results', HTMLElement).hidden = !results.length;
      showRows(byId('rows', HTMLElement), results);
      showChart(byId('chart', HTMLElement), results);
    });
  }

  /** @param {boolean} stopped */
  #announce(stopped) {
    const [best] = this.#records
      .filter(({ status }) => status === 'measured')
      .sort((a, b) => median(a.samples_ms) - median(b.samples_ms));
    const fastest = best
      ? `Fastest: ${best.case.variant} with ${describeCase(best)}, ${formatTime(median(best.samples_ms))}.`
      : 'Nothing was measured.';
    setText(byId('spoken', HTMLElement), `${stopped ? 'Stopped' : 'Done'}. ${fastest}`);
  }

  /** Tell what the page was ended by before, and send it. */
  async #reportCrash() {
    const record = this.#marker.take();
    if (!record?.case) return;
    this.#finished.push({ record, speedUp: NaN, pending: false });
    this.#unsent.add(record);
    const note = byId('crash-note', HTMLElement);
    note.hidden = false;
    note.replaceChildren(
      element(
        'p',
        {},
        `The browser ended this page while it measured ${record.case.variant} ` +
          `(${formatBytes(record.model.file_bytes)}), most likely for want of memory. ` +
          'That is a result too, and it is kept below.',
      ),
    );
    this.#draw();
    await this.#send();
  }

  /** The device got another name: what was sent is sent again, which replaces it. */
  async #rename() {
    for (const { record } of this.#finished) {
      record.device.label = this.#form.label;
      this.#unsent.add(record);
    }
    if (this.#finished.length) await this.#send();
  }

  async #send() {
    const problem = byId('send-problem', HTMLElement);
    const button = byId('send-button', HTMLButtonElement);
    const sending = [...this.#unsent];
    if (!sending.length) return;
    try {
      await sendRecords(sending);
      for (const record of sending) this.#unsent.delete(record);
      setText(byId('sent', HTMLElement), `${plural(this.#finished.length, 'result')} sent to the server.`);
      showProblem(problem, null);
      button.hidden = true;
      await this.#poll();
    } catch (error) {
      setText(byId('sent', HTMLElement), '');
      showProblem(problem, problemOf(error));
      button.hidden = false;
    }
  }

  /** Show what all devices sent. */
  async #poll() {
    try {
      const answer = await readRecords(this.#etag);
      if (!answer) return;
      this.#etag = answer.etag;
      const records = answer.records.slice(-SHOWN_DEVICES);
      showDevices(byId('device-rows', HTMLElement), records);
      byId('devices', HTMLElement).hidden = !records.length;
    } catch (error) {
      // What this device has to send says so in its own place; the list only stays as it was.
      if (!(error instanceof Problem)) throw error;
    }
  }

  /** @param {string} text */
  async #copy(text) {
    const byHand = byId('copy-by-hand', HTMLElement);
    try {
      await navigator.clipboard.writeText(text);
      byHand.hidden = true;
      setText(byId('sent', HTMLElement), 'Copied.');
    } catch {
      // No clipboard over plain http, or not allowed.
      const area = byId('copy-text', HTMLTextAreaElement);
      byHand.hidden = false;
      area.value = text;
      area.focus();
      area.select();
    }
  }
}

/**
 * @param {Outcome[]} outcomes
 * @param {(outcome: Outcome) => Measurement} recordOf
 * @param {boolean} pending
 * @returns {Shown[]}
 */
function present(outcomes, recordOf, pending) {
  const arms = outcomes.map(({ arm }) => arm);
  const all = (/** @type {Outcome} */ { samples, live }) => [...samples, ...live];
  return outcomes.map((outcome) => {
    const reference = referenceOf(outcome.arm, arms);
    const other = outcomes.find(({ arm }) => arm === reference);
    return {
      record: { ...recordOf(outcome), samples_ms: all(outcome) },
      speedUp: other ? speedUp(all(outcome), all(other)) : NaN,
      pending,
    };
  });
}

/**
 * @param {Measurement} record
 * @returns {Measurement} what to report if the page is ended now
 */
function crashed(record) {
  return {
    ...record,
    status: 'failed',
    error: 'the browser ended the page while it was measured; it most likely ran out of memory',
    flags: ['likely out of memory'],
    samples_ms: [],
    session_runs: [],
  };
}

/** @returns {string} random; `randomUUID` is missing over plain http */
function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
