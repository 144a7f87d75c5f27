/**
 * @file From what happened to one case to its record, in the schema that every tool of this
 * project shares (`exporter/records.py`), and to a table for people.
 */

import { formatBytes, formatTime, median, quantile, significant } from '../shared/format.js';
import { isOutOfMemory } from '../shared/problems.js';

/** @typedef {import('../measure/core.js').Memory} Memory */
/** @typedef {import('../measure/core.js').Opened} Opened */
/** @typedef {import('../measure/core.js').Ready} Ready */
/** @typedef {import('../measure/tensors.js').Check} Check */
/** @typedef {import('./plan.js').Arm} Arm */
/** @typedef {import('./plan.js').Case} Case */
/** @typedef {import('../shared/device.js').DeviceInfo} DeviceInfo */

/**
 * @typedef {'spread' | 'hidden tab' | 'coarse timer' | 'failed check' | 'unstable warm-up' |
 *   'fewer threads' | 'interrupted' | 'likely out of memory' | 'too few cores'} Flag
 */

/** @typedef {'measured' | 'failed' | 'not run'} Status */

/**
 * @typedef {object} Measurement
 * @property {'measurement'} kind
 * @property {2} schema
 * @property {string} tool
 * @property {string} created
 * @property {string} run
 * @property {Case} case
 * @property {{ path: string, sha256: string, file_bytes: number, gzip_bytes: number,
 *   brotli_bytes: number }} model
 * @property {Record<string, any> & { label: string, engine: string }} device
 * @property {Status} status
 * @property {string | null} error
 * @property {number | null} threads_used
 * @property {{ process_start: number | null, runtime_start: number | null,
 *   session_create: number | null, cold_first: number | null, warm_first: number | null }} times
 * @property {number[]} samples_ms
 * @property {number[]} session_runs
 * @property {Memory} memory
 * @property {Check} check
 * @property {Flag[]} flags
 */

/**
 * What the records of one page have in common.
 *
 * @typedef {object} Stamp
 * @property {string} tool version of albert-export
 * @property {string} run name of the interleaved run
 * @property {string} label what a person calls the device
 * @property {DeviceInfo} device
 */

/** @typedef {Opened & { startMs: number, ready: Ready | null }} Session what a fresh worker told */

const SPREAD = 0.25;
const COARSE = 0.05;

/** What is known of one case so far. */
export class Outcome {
  /** @type {Session[]} */
  sessions = [];

  /** @type {Memory[]} at the end of each session */
  memories = [];

  /** @type {number[]} */
  samples = [];

  /** @type {number[]} */
  sessionRuns = [];

  /** @type {number[]} of the session that goes on, for people to see */
  live = [];

  /** @type {string | null} */
  error = null;

  /** Whether it was not even tried. */
  refused = false;

  /** @type {Set<Flag>} */
  flags = new Set();

  /** @param {Arm} arm */
  constructor(arm) {
    this.arm = arm;
  }

  /** @param {string} text why the case ended; its samples until then are kept */
  fail(text) {
    this.error = text.replace(/\s+/g, ' ').trim().slice(0, 2000) || 'unknown failure';
    if (isOutOfMemory(this.error)) this.flags.add('likely out of memory');
  }

  /** @param {string} text why the case is not tried */
  refuse(text) {
    this.error = text;
    this.refused = true;
  }

  /** @param {number[]} samples of one session */
  keep(samples) {
    if (!samples.length) return;
    this.samples.push(...samples);
    this.sessionRuns.push(samples.length);
  }

  /** @returns {Check} a failed check before a passed one before none */
  get check() {
    const order = ['not run', 'passed', 'failed'];
    const [worst] = this.sessions
      .map(({ check }) => check)
      .sort((a, b) => order.indexOf(b.status) - order.indexOf(a.status));
    const none = { status: /** @type {const} */ ('not run'), relative_error: null };
    return worst ?? { ...none, max_abs_error: null, tolerance: null };
  }

  /** @returns {number | null} */
  get threadsUsed() {
    const used = this.sessions.map(({ threadsUsed }) => threadsUsed);
    return used.length ? Math.min(...used) : null;
  }

  /** @returns {number | null} */
  get heapBytes() {
    const heaps = [...this.sessions.map(({ memory }) => memory), ...this.memories]
      .map(({ wasm_heap: heap }) => heap)
      .filter((heap) => heap !== null);
    return heaps.length ? Math.max(...heaps) : null;
  }

  /** @returns {Status} */
  get #status() {
    if (this.error === null) return 'measured';
    return this.refused ? 'not run' : 'failed';
  }

  /**
   * @param {Stamp} stamp
   * @returns {Measurement}
   */
  record({ tool, run, label, device }) {
    const { case: which, variant } = this.arm;
    const last = this.sessions.at(-1);
    const cores = last?.ready?.cores ?? navigator.hardwareConcurrency ?? null;
    const resolution = last?.ready?.timerResolutionMs ?? null;
    return {
      kind: 'measurement',
      schema: 2,
      tool,
      created: new Date().toISOString().replace(/\.\d+Z$/, 'Z'),
      run,
      case: which,
      model: {
        path: variant.model.path,
        sha256: variant.sha256,
        file_bytes: variant.file_bytes,
        gzip_bytes: variant.gzip_bytes,
        brotli_bytes: variant.brotli_bytes,
      },
      device: {
        label: label.trim().slice(0, 200) || device.label,
        cpu: device.cpu,
        system: device.system,
        engine: device.engine,
        runtime: 'onnxruntime-web',
        runtime_version: last?.runtimeVersion ?? 'not started',
        cores,
        usable_cores: cores,
        memory_bytes: device.memoryBytes,
        user_agent: navigator.userAgent.slice(0, 2000),
        cross_origin_isolated: globalThis.crossOriginIsolated ?? null,
        timer_resolution_ms: resolution,
      },
      status: this.#status,
      error: this.error,
      threads_used: this.threadsUsed,
      times: {
        process_start: middle(this.sessions.map(({ startMs }) => startMs)),
        runtime_start: middle(this.sessions.map(({ times }) => times.runtime_start)),
        session_create: middle(this.sessions.map(({ times }) => times.session_create)),
        cold_first: middle(this.sessions.map(({ times }) => times.cold_first)),
        warm_first: middle(this.sessions.map(({ times }) => times.warm_first)),
      },
      samples_ms: this.samples,
      session_runs: this.sessionRuns,
      memory: { added_rss: null, peak_rss: null, wasm_heap: this.heapBytes },
      check: this.check,
      flags: [...new Set([...this.flags, ...this.#seen(cores, resolution)])].sort(),
    };
  }

  /**
   * @param {number | null} cores
   * @param {number | null} resolution
   * @returns {Flag[]} what follows from the figures
   */
  #seen(cores, resolution) {
    /** @type {Flag[]} */
    const flags = [];
    const { threads } = this.arm.case;
    if (this.check.status === 'failed') flags.push('failed check');
    if (this.threadsUsed !== null && this.threadsUsed < threads) flags.push('fewer threads');
    if (cores !== null && threads > cores) flags.push('too few cores');
    if (this.samples.length) {
      const center = median(this.samples);
      const spread = quantile(this.samples, 0.75) - quantile(this.samples, 0.25);
      if (spread > SPREAD * center) flags.push('spread');
      if ((resolution ?? 0) > COARSE * center) flags.push('coarse timer');
    }
    return flags;
  }
}

/**
 * How much faster a case is than another of its run: the median over runs taken side by side.
 *
 * @param {readonly number[]} candidate
 * @param {readonly number[]} reference
 * @returns {number} NaN without pairs
 */
export function speedUp(candidate, reference) {
  const pairs = Math.min(candidate.length, reference.length);
  const ratios = candidate.slice(0, pairs).map((ms, index) => reference[index] / ms);
  return median(ratios.filter(Number.isFinite));
}

/**
 * A table for a message or an issue.
 *
 * @param {Measurement[]} records
 * @returns {string}
 */
export function toMarkdown(records) {
  const device = records[0]?.device;
  const rows = records.map(({ case: which, ...record }) => {
    const { samples_ms: samples } = record;
    const used = record.threads_used ?? '–';
    const cells = [
      `${which.artifact} ${which.variant}`,
      `${used} of ${which.threads}`,
      which.sequence,
      record.status === 'measured' ? formatTime(median(samples)) : `${record.status}: ${record.error}`,
      formatTime(quantile(samples, 0.9)),
      formatTime(record.times.cold_first ?? NaN),
      record.memory.wasm_heap ? formatBytes(record.memory.wasm_heap) : '–',
      record.check.status,
      record.flags.join(', ') || '–',
    ];
    return `| ${cells.map((cell) => escapeCell(String(cell))).join(' | ')} |`;
  });
  return [
    device ? `${escapeCell(device.label)} (${escapeCell(device.engine)})` : '',
    '',
    '| version | threads | tokens | median | 90 % | first run | heap | check | flags |',
    '|---|---|---:|---:|---:|---:|---:|---|---|',
    ...rows,
    '',
  ].join('\n');
}

/**
 * @param {number} ratio
 * @returns {string} such as `2.3 × faster`
 */
export function describeSpeedUp(ratio) {
  if (!Number.isFinite(ratio)) return '–';
  if (ratio > 0.97 && ratio < 1.03) return 'about equal';
  return ratio > 1 ? `${significant(ratio)} × faster` : `${significant(1 / ratio)} × slower`;
}

/**
 * @param {(number | null)[]} values
 * @returns {number | null} median of what is known
 */
function middle(values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  return known.length ? median(/** @type {number[]} */ (known)) : null;
}

/**
 * @param {string} text
 * @returns {string}
 */
function escapeCell(text) {
  return text.replace(/[\\|<>`*_[\]]/g, '\\$&').replace(/\s+/g, ' ');
}
