/**
 * @file The form in which a person says what to measure.
 */

import { divideVariants, plainName, transferBytes } from '../shared/catalogue.js';
import { byId, element, setText } from '../shared/dom.js';
import { formatBytes, plural } from '../shared/format.js';
import { defaultThreads } from '../shared/runtime.js';
import {
  USUAL_VARIANTS,
  estimateBytes,
  memoryBudget,
  planRuns,
  refusedArms,
  sequenceChoices,
  threadChoices,
} from './plan.js';

/** @typedef {import('../shared/catalogue.js').ArtifactEntry} ArtifactEntry */
/** @typedef {import('../shared/catalogue.js').Variant} Variant */
/** @typedef {import('../shared/device.js').DeviceInfo} DeviceInfo */
/** @typedef {import('./protocol.js').Effort} Effort */

/** @type {Record<string, { words: string, effort: Effort }>} */
const EFFORTS = {
  quick: {
    words: 'Quick: one start of each, 20 runs',
    effort: { sessions: 1, minRuns: 20, minSeconds: 3, warmUp: 5 },
  },
  thorough: {
    words: 'Thorough: five fresh starts, 40 runs',
    effort: { sessions: 5, minRuns: 40, minSeconds: 5, warmUp: 5 },
  },
};

const LABEL = 'albert-export-device';

export class PlanForm {
  #device;

  #artifacts;

  /** @type {ArtifactEntry} */
  artifact;

  #label = byId('label', HTMLInputElement);

  #form = byId('plan', HTMLFormElement);

  /**
   * @param {ArtifactEntry[]} artifacts
   * @param {DeviceInfo} device
   */
  constructor(artifacts, device) {
    this.#device = device;
    this.#artifacts = artifacts;
    [this.artifact] = artifacts;
    this.#label.value = remembered() || device.label;
    this.#offerArtifacts();
    this.#offerThreads();
    this.#offerEfforts();
    this.#offerModel();
    this.#form.addEventListener('change', () => this.#describe());
  }

  /** @returns {string} what to call this device */
  get label() {
    return this.#label.value.trim() || this.#device.label;
  }

  /** @param {() => void} act called when the device got another name */
  onLabel(act) {
    this.#label.onchange = () => {
      remember(this.#label.value.trim());
      act();
    };
  }

  /** @param {() => void} act */
  onStart(act) {
    this.#form.onsubmit = (event) => {
      event.preventDefault();
      act();
    };
  }

  /** @param {boolean} open whether it can be changed; the device's name always can */
  set open(open) {
    for (const control of this.#form.elements) {
      if (control !== this.#label) /** @type {HTMLInputElement} */ (control).disabled = !open;
    }
    if (open) this.#describe();
  }

  /** @returns {Effort} */
  get effort() {
    const [name] = this.#ticked('effort');
    return EFFORTS[name ?? 'quick'].effort;
  }

  /** @returns {import('./plan.js').Run[]} */
  get runs() {
    return planRuns(this.artifact, this.#choice, this.#device);
  }

  /** @returns {import('./plan.js').Arm[]} what is left out for want of memory */
  get refused() {
    return refusedArms(this.artifact, this.#choice, this.#device);
  }

  /** @returns {import('./plan.js').Choice} */
  get #choice() {
    const names = this.#ticked('variant');
    return {
      variants: this.artifact.variants.filter(({ variant }) => names.includes(variant)),
      threads: this.#ticked('threads').map(Number),
      sequences: this.#ticked('sequence').map(Number),
    };
  }

  /**
   * @param {string} name
   * @returns {string[]} values that are ticked
   */
  #ticked(name) {
    return new FormData(this.#form).getAll(name).map(String);
  }

  #offerArtifacts() {
    if (this.#artifacts.length < 2) return;
    const select = byId('artifact', HTMLSelectElement);
    select.append(
      ...this.#artifacts.map(({ slug, name }) => element('option', { value: slug }, name)),
    );
    const wanted = new URLSearchParams(location.search).get('artifact');
    const found = this.#artifacts.find(({ slug }) => slug === wanted);
    if (found) this.artifact = found;
    select.value = this.artifact.slug;
    select.onchange = () => {
      const chosen = this.#artifacts.find(({ slug }) => slug === select.value);
      this.artifact = chosen ?? this.artifact;
      this.#offerModel();
    };
    byId('artifact-choice', HTMLElement).hidden = false;
  }

  #offerThreads() {
    const choices = threadChoices();
    const usual = new Set([1, defaultThreads()]);
    byId('threads', HTMLElement).replaceChildren(
      ...choices.map((threads) =>
        tick('checkbox', 'threads', String(threads), plural(threads, 'thread'), usual.has(threads)),
      ),
    );
    if (choices.length === 1) {
      const why = globalThis.crossOriginIsolated
        ? 'This device has one core.'
        : 'More need https and an isolated page, which this one is not.';
      setText(byId('threads-note', HTMLElement), why);
    }
  }

  #offerEfforts() {
    byId('efforts', HTMLElement).replaceChildren(
      ...Object.entries(EFFORTS).map(([name, { words }], index) =>
        tick('radio', 'effort', name, words, index === 0),
      ),
    );
  }

  /** Offer what depends on the model. */
  #offerModel() {
    const { main, more } = divideVariants(this.artifact.variants);
    const none = !main.some(({ variant }) => USUAL_VARIANTS.includes(variant));
    const budget = memoryBudget(this.#device);
    byId('variants', HTMLElement).replaceChildren(
      ...[...main, ...more].map((variant, index) => {
        const need = estimateBytes(variant);
        const fits = need <= budget;
        const ticked = fits && (USUAL_VARIANTS.includes(variant.variant) || (none && index === 0));
        return this.#variantTick(variant, ticked, fits ? null : need);
      }),
    );
    const { offered, usual: length } = sequenceChoices(this.artifact);
    byId('sequences', HTMLElement).replaceChildren(
      ...offered.map((tokens) =>
        tick('checkbox', 'sequence', String(tokens), plural(tokens, 'token'), tokens === length),
      ),
    );
    this.#describe();
  }

  /**
   * @param {Variant} variant
   * @param {boolean} ticked
   * @param {number | null} need bytes that are more than this device is likely to give
   * @returns {HTMLElement}
   */
  #variantTick(variant, ticked, need) {
    const sub = `${variant.variant} · ${formatBytes(transferBytes(variant))}`;
    return tick(
      'checkbox',
      'variant',
      variant.variant,
      element(
        'span',
        {},
        plainName(variant.variant),
        element('span', { class: 'sub' }, sub),
        need &&
          element(
            'span',
            { class: 'warning' },
            `Needs about ${formatBytes(need)} of memory. This device may end the page.`,
          ),
      ),
      ticked,
    );
  }

  #describe() {
    const { runs } = this;
    const cases = runs.reduce((total, { arms }) => total + arms.length, 0);
    byId('start-button', HTMLButtonElement).disabled = !cases;
    if (!cases) {
      setText(byId('plan-note', HTMLElement), 'Tick at least one of each.');
      return;
    }
    const files = new Set(runs.flatMap(({ arms }) => arms.map(({ variant }) => variant)));
    const bytes = [...files].reduce((total, variant) => total + transferBytes(variant), 0);
    const parts = runs.length > 1 ? `, in ${plural(runs.length, 'round')}` : '';
    const words = `${plural(cases, 'measurement')}${parts}. The models are ${formatBytes(bytes)} to download, once.`;
    setText(byId('plan-note', HTMLElement), words);
  }
}

/**
 * @param {'checkbox' | 'radio'} type
 * @param {string} name
 * @param {string} value
 * @param {Node | string} words
 * @param {boolean} checked
 * @returns {HTMLElement}
 */
function tick(type, name, value, words, checked) {
  return element('label', { class: 'tick' }, element('input', { type, name, value, checked }), words);
}

/** @returns {string} the name a person gave this device before */
function remembered() {
  try {
    return localStorage.getItem(LABEL) ?? '';
  } catch {
    return '';
  }
}

/** @param {string} label */
function remember(label) {
  try {
    localStorage.setItem(LABEL, label);
  } catch {
    // The next visit asks again.
  }
}
