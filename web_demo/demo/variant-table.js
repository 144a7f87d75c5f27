/**
 * @file The table of versions: what each costs and gives, filled as they are tried.
 */

import { isBaseline, kindOf, plainName, transferBytes } from '../shared/catalogue.js';
import { element, setText } from '../shared/dom.js';
import { formatBytes, formatTime, median, plural } from '../shared/format.js';
import { firstVisitMs } from './first-visit.js';

/** @typedef {import('../shared/catalogue.js').Variant} Variant */

/**
 * What is known of a version so far.
 *
 * @typedef {object} Figures
 * @property {number} [firstMs] until the first answer, download included
 * @property {number} [downloadMs] part of it
 * @property {number[]} [runsMs]
 * @property {number | null} [heapBytes]
 */

/** @typedef {'idle' | 'loading' | 'active'} RowState */

/** One version's row. */
export class VariantRow {
  /** @type {RowState} */
  #state = 'idle';

  /** @param {Variant} variant @param {(row: VariantRow) => void} onUse */
  constructor(variant, onUse) {
    this.variant = variant;
    /** @type {Figures} */
    this.figures = {};
    const download = transferBytes(variant);
    this.progress = element('progress', { max: 1, hidden: true, 'aria-hidden': 'true' });
    this.problem = element('span', { class: 'row-problem' });
    this.first = this.#figure('First answer');
    this.each = this.#figure('Each answer');
    this.heap = this.#figure('Memory');
    this.action = element('td', { role: 'cell' });
    const packed = download < variant.file_bytes;
    const words = packed ? `${formatBytes(variant.file_bytes)} unpacked` : '\u00a0';
    const unpacked = element('span', { class: 'sub' }, words);
    this.element = element(
      'tr',
      { role: 'row', 'data-variant': variant.variant },
      element(
        'th',
        { scope: 'row', role: 'rowheader' },
        plainName(variant.variant),
        element('span', { class: 'sub' }, `${variant.variant} · ${kindOf(variant.variant)}`),
        this.progress,
        this.problem,
      ),
      element(
        'td',
        { class: 'number', role: 'cell', 'data-label': 'Download' },
        formatBytes(download),
        unpacked,
      ),
      this.first,
      this.each,
      this.heap,
      this.action,
    );
    this.button = element('button', { type: 'button', onclick: () => onUse(this) });
    this.badge = element('span', { class: 'badge' }, 'In use');
    this.show('idle');
  }

  /** @returns {boolean} */
  get isBaseline() {
    return isBaseline(this.variant.variant);
  }

  /**
   * @param {RowState} state
   * @param {string} [problem] why it is not in use, in one sentence
   */
  show(state, problem = '') {
    this.#state = state;
    this.progress.hidden = state !== 'loading';
    this.element.toggleAttribute('data-active', state === 'active');
    setText(this.problem, problem);
    const words = state === 'loading' ? 'Cancel' : this.figures.firstMs ? 'Use' : 'Try';
    setText(this.button, words);
    this.button.setAttribute('aria-label', `${words}: ${this.variant.variant}`);
    const wanted = state === 'active' ? this.badge : this.button;
    if (this.action.firstChild !== wanted) {
      const focused = document.activeElement === this.button;
      this.action.replaceChildren(wanted);
      if (focused && state === 'active') {
        // A button that had the focus must not let it fall to the top of the page.
        this.badge.tabIndex = -1;
        this.badge.focus({ preventScroll: true });
      }
    }
  }

  /** @returns {RowState} */
  get state() {
    return this.#state;
  }

  /** @param {number | null} share null: no figure for what is done */
  showProgress(share) {
    if (share === null) this.progress.removeAttribute('value');
    else this.progress.value = share;
  }

  /** @param {Figures} figures what is new */
  fill(figures) {
    Object.assign(this.figures, figures);
    const { firstMs, downloadMs, runsMs, heapBytes } = this.figures;
    if (figures.firstMs !== undefined && firstMs !== undefined && downloadMs !== undefined) {
      const before = firstVisitMs(this.variant, firstMs);
      const words =
        before === null
          ? `${formatTime(downloadMs)} download`
          : `${formatTime(before)} at the first visit`;
      put(this.first, formatTime(firstMs), words);
      this.first.dataset.ms = String(firstMs);
      this.first.dataset.firstVisitMs = String(before ?? firstMs);
    }
    if (runsMs?.length) put(this.each, formatTime(median(runsMs)), `of ${plural(runsMs.length, 'run')}`);
    if (heapBytes) put(this.heap, formatBytes(heapBytes), '');
  }

  /**
   * @param {string} label
   * @returns {HTMLTableCellElement}
   */
  #figure(label) {
    return element('td', { class: 'number', role: 'cell', 'data-label': label }, '–');
  }
}

/**
 * Show some rows only on request.
 *
 * @param {HTMLButtonElement} button
 * @param {VariantRow[]} rows
 */
export function offerMore(button, rows) {
  if (!rows.length) return;
  /** @param {boolean} open */
  const show = (open) => {
    for (const row of rows) row.element.hidden = !open;
    button.setAttribute('aria-expanded', String(open));
    setText(button, open ? 'Show fewer versions' : `Show ${plural(rows.length, 'more version')}`);
  };
  button.hidden = false;
  button.onclick = () => show(button.getAttribute('aria-expanded') !== 'true');
  show(false);
}

/**
 * @param {HTMLElement} cell
 * @param {string} text
 * @param {string} sub
 */
function put(cell, text, sub) {
  cell.replaceChildren(text, element('span', { class: 'sub' }, sub || '\u00a0'));
}
