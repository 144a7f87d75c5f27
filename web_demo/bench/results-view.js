/**
 * @file Results as a table and a chart, growing while they are measured.
 */

import { isBaseline, plainName } from '../shared/catalogue.js';
import { element, svg } from '../shared/dom.js';
import { formatBytes, formatTime, median, plural, quantile } from '../shared/format.js';
import { describeSpeedUp } from './records.js';

/** @typedef {import('./records.js').Measurement} Measurement */

/**
 * @typedef {object} Shown
 * @property {Measurement} record
 * @property {number} speedUp against what it is compared with; NaN without
 * @property {boolean} pending still being measured
 */

const ROW = 46;

/** @type {Record<import('./records.js').Flag, string>} */
const FLAGS = {
  spread: 'runs differ much',
  'hidden tab': 'page was hidden',
  'coarse timer': 'coarse clock',
  'failed check': 'answers too far off',
  'unstable warm-up': 'never quite steady',
  'fewer threads': 'fewer threads than asked',
  interrupted: 'stopped early',
  'likely out of memory': 'likely out of memory',
  'too few cores': 'more threads than cores',
};

/**
 * @param {HTMLElement} body
 * @param {Shown[]} results
 */
export function showRows(body, results) {
  body.replaceChildren(...results.map(makeRow));
}

/**
 * @param {Shown} shown
 * @returns {HTMLElement}
 */
function makeRow({ record, speedUp, pending }) {
  const { case: which, samples_ms: samples, times, memory } = record;
  const typical = samples.length ? formatTime(median(samples)) : pending ? '…' : record.status;
  const cells = {
    'Typical run': [typical, samples.length ? `of ${plural(samples.length, 'run')}` : ''],
    'Slowest tenth': [formatTime(quantile(samples, 0.9)), ''],
    'First run': [formatTime(times.cold_first ?? NaN), ''],
    Memory: [memory.wasm_heap ? formatBytes(memory.wasm_heap) : '–', ''],
    'Against unshared': [describeSpeedUp(speedUp), ''],
  };
  return element(
    'tr',
    { role: 'row', 'data-case': `${which.variant} ${which.threads} ${which.sequence}` },
    element(
      'th',
      { scope: 'row', role: 'rowheader' },
      plainName(which.variant),
      element('span', { class: 'sub' }, `${which.variant} · ${describeCase(record)}`),
      record.error && element('span', { class: 'sub failed' }, record.error),
      ...record.flags.map((flag) => element('span', { class: 'flag' }, FLAGS[flag])),
    ),
    ...Object.entries(cells).map(([label, [text, sub]]) =>
      element(
        'td',
        { class: 'number', role: 'cell', 'data-label': label },
        text,
        element('span', { class: 'sub' }, sub),
      ),
    ),
    element('td', { role: 'cell', 'data-label': 'Answers' }, describeCheck(record, pending)),
  );
}

/**
 * @param {Measurement} record
 * @returns {string} threads asked and used, and the length
 */
export function describeCase({ case: { threads, sequence }, threads_used: used }) {
  const asked = plural(threads, 'thread');
  const words = used === null || used === threads ? asked : `${used} of ${asked}`;
  return `${words} · ${plural(sequence, 'token')}`;
}

/**
 * @param {Measurement} record
 * @param {boolean} pending
 * @returns {string}
 */
function describeCheck({ check, case: { variant } }, pending) {
  if (check.status === 'passed') return 'as they should be';
  if (check.status === 'failed') return 'too far off';
  if (isBaseline(variant)) return 'random by design';
  return pending ? '…' : 'not checked';
}

/**
 * Bars of the typical run, with a line up to the slowest tenth.
 *
 * @param {HTMLElement} target
 * @param {Shown[]} results
 */
export function showChart(target, results) {
  const measured = results.filter(({ record }) => record.samples_ms.length);
  const longest = Math.max(...measured.map(({ record }) => quantile(record.samples_ms, 0.9)));
  const height = ROW * measured.length;
  // What all have in common needs no words at every bar.
  const several = new Set(measured.map(({ record }) => describeCase(record))).size > 1;
  target.replaceChildren(
    svg(
      'svg',
      {
        class: 'chart',
        height,
        role: 'img',
        'aria-label': 'Typical time of one run; the table below has the figures.',
      },
      ...measured.flatMap(({ record }, index) =>
        makeBar(record, several ? describeCase(record) : '', index * ROW, longest),
      ),
    ),
  );
}

/**
 * @param {Measurement} record
 * @param {string} shape
 * @param {number} top
 * @param {number} longest
 * @returns {SVGElement[]}
 */
function makeBar(record, shape, top, longest) {
  const { variant } = record.case;
  const typical = median(record.samples_ms);
  const percent = (/** @type {number} */ value) => `${((100 * value) / longest).toFixed(2)}%`;
  const kind = isBaseline(variant) ? 'fill unshared' : 'fill';
  const bar = { x: 0, y: top + 22, height: 12, rx: 4 };
  const line = { class: 'whisker', y1: top + 28, y2: top + 28 };
  return [
    svg(
      'text',
      { x: 0, y: top + 15 },
      `${variant} `,
      svg('tspan', { class: 'chart-sub' }, shape),
    ),
    svg('text', { x: '100%', y: top + 15, 'text-anchor': 'end' }, formatTime(typical)),
    svg('rect', { class: 'track', ...bar, width: '100%' }),
    svg('rect', { class: kind, ...bar, width: percent(typical) }),
    svg('line', {
      ...line,
      x1: percent(typical),
      x2: percent(quantile(record.samples_ms, 0.9)),
    }),
  ];
}

/**
 * @param {HTMLElement} body
 * @param {Measurement[]} records newest last
 */
export function showDevices(body, records) {
  body.replaceChildren(
    ...records.reverse().map((record) =>
      element(
        'tr',
        { role: 'row' },
        element(
          'th',
          { scope: 'row', role: 'rowheader' },
          record.device.label,
          element('span', { class: 'sub' }, record.device.engine),
        ),
        cell('Version', `${record.case.artifact} ${record.case.variant}`),
        cell('Threads', String(record.threads_used ?? record.case.threads), true),
        cell('Tokens', String(record.case.sequence), true),
        cell(
          'Typical run',
          record.status === 'measured' ? formatTime(median(record.samples_ms)) : record.status,
          true,
        ),
        cell('Memory', record.memory.wasm_heap ? formatBytes(record.memory.wasm_heap) : '–', true),
      ),
    ),
  );
}

/**
 * @param {string} label
 * @param {string} text
 * @param {boolean} [number]
 * @returns {HTMLElement}
 */
function cell(label, text, number = false) {
  return element('td', { role: 'cell', class: number && 'number', 'data-label': label }, text);
}
