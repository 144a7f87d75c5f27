/** @file The field that a person types into, with examples to pick. */

import { byId, element, setText } from '../shared/dom.js';
import { EXAMPLES } from './examples.js';

const DEBOUNCE_MS = 120;

/**
 * Prepare the field for what the model can be told.
 *
 * @param {import('./text.js').Reader} reader
 * @param {HTMLTextAreaElement} text
 * @param {() => void} changed told a moment after something was typed, or at once when picked
 */
export function offerText({ mode, note }, text, changed) {
  const label = byId('text-label', HTMLElement);
  const chips = byId('examples', HTMLElement);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  text.oninput = () => {
    clearTimeout(pause);
    pause = setTimeout(() => changed(), DEBOUNCE_MS);
  };
  if (mode === 'text') {
    chips.append(
      ...EXAMPLES.map((example) => {
        const pick = () => ((text.value = example), changed());
        return element('button', { type: 'button', onclick: pick }, example);
      }),
    );
    setText(byId('tokens-mark', HTMLElement), note ?? '');
    text.value ||= EXAMPLES[0];
  } else if (mode === 'ids') {
    chips.hidden = true;
    setText(label, 'Token ids');
    setText(
      byId('tokens-note', HTMLElement),
      'This model came without a tokenizer, so type token ids: whole numbers with spaces between.',
    );
    text.value ||= '2 45 310 7 3';
  } else {
    chips.hidden = true;
    setText(label, 'Made-up inputs');
    text.disabled = true;
    setText(
      byId('tokens-note', HTMLElement),
      'This model takes more than a text gives, so it runs on numbers that were drawn for it.',
    );
  }
}
