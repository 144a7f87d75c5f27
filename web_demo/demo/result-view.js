/**
 * @file Shows an answer, and the tokens that the model read.
 */

import { element, setText } from '../shared/dom.js';
import { formatShare, significant } from '../shared/format.js';

/** @typedef {import('./outputs.js').Classes} Classes */
/** @typedef {import('./outputs.js').Summary} Summary */

const SHOWN_CLASSES = 5;
const SHOWN_TOKENS = 160;

/**
 * @param {HTMLElement} target
 * @param {Classes | Summary} reading
 * @returns {string} the same in one sentence, to be spoken
 */
export function showReading(target, reading) {
  return reading.kind === 'classes' ? showClasses(target, reading) : showSummary(target, reading);
}

/**
 * @param {HTMLElement} target
 * @param {Classes} reading
 * @returns {string}
 */
function showClasses(target, { classes }) {
  const [best] = classes;
  const share = formatShare(best.share);
  const shown = classes.slice(0, SHOWN_CLASSES);
  // Kept elements let the bars move, and lay nothing out anew.
  if (target.querySelectorAll('.classes li').length !== shown.length) {
    target.replaceChildren(
      element(
        'p',
        { class: 'verdict' },
        element('span', { 'data-part': 'label' }),
        ' ',
        element('span', { class: 'verdict-share', 'data-part': 'share' }),
      ),
      element('ol', { class: 'classes' }, ...shown.map(makeClass)),
    );
  }
  setPart(target, 'label', best.label);
  setPart(target, 'share', share);
  const items = target.querySelectorAll('.classes li');
  shown.forEach(({ label, share: part }, index) => {
    setPart(items[index], 'name', label);
    setPart(items[index], 'part', formatShare(part));
    const bar = items[index].querySelector('.meter > div');
    if (bar instanceof HTMLElement) bar.style.width = `${part * 100}%`;
  });
  return `${best.label}, ${share}`;
}

/** @returns {HTMLElement} */
function makeClass() {
  return element(
    'li',
    {},
    element(
      'div',
      { class: 'class-words' },
      element('span', { 'data-part': 'name' }),
      element('span', { 'data-part': 'part' }),
    ),
    element('div', { class: 'meter', 'aria-hidden': 'true' }, element('div')),
  );
}

/**
 * @param {HTMLElement} target
 * @param {Summary} reading
 * @returns {string}
 */
function showSummary(target, { outputs }) {
  target.replaceChildren(
    element('p', { class: 'note' }, 'This model gives numbers without names:'),
    ...outputs.map(({ name, shape, norm, first }) =>
      element(
        'div',
        { class: 'output' },
        element('strong', {}, name),
        element('span', { class: 'note' }, `${shape} · norm ${significant(norm)}`),
        element('code', {}, `${first.map((value) => value.toPrecision(4)).join('  ')} …`),
      ),
    ),
  );
  return outputs.map(({ name, norm }) => `${name}: norm ${significant(norm)}`).join(', ');
}

/**
 * @param {HTMLElement} target
 * @param {string[]} tokens
 * @param {(token: string) => boolean} isSpecial
 */
export function showTokens(target, tokens, isSpecial) {
  const items = tokens
    .slice(0, SHOWN_TOKENS)
    .map((token) => element('li', { class: isSpecial(token) ? 'special' : null }, token));
  if (tokens.length > SHOWN_TOKENS) {
    items.push(element('li', { class: 'special' }, `… ${tokens.length - SHOWN_TOKENS} more`));
  }
  target.replaceChildren(...items);
}

/**
 * @param {Element} within
 * @param {string} part
 * @param {string} text
 */
function setPart(within, part, text) {
  const found = within.querySelector(`[data-part="${part}"]`);
  if (found) setText(found, text);
}
