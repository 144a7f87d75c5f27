/**
 * @file The front page: takes the token of a scanned code, and shows what sharing saves.
 */

import { isBaseline, loadCatalogue, plainName } from '../shared/catalogue.js';
import { byId, element, showProblem } from '../shared/dom.js';
import { formatBytes, significant } from '../shared/format.js';
import { keepPages } from '../shared/offline.js';
import { problemOf } from '../shared/problems.js';
import { takeToken } from '../shared/session.js';

/** @typedef {import('../shared/catalogue.js').ArtifactEntry} ArtifactEntry */

takeToken();
show().finally(keepPages);

async function show() {
  try {
    const { artifacts } = await loadCatalogue();
    byId('sizes', HTMLElement).replaceChildren(...artifacts.map(describe));
  } catch (error) {
    showProblem(byId('problem', HTMLElement), problemOf(error));
  }
  document.body.dataset.state = 'ready';
}

/**
 * @param {ArtifactEntry} artifact
 * @returns {HTMLElement}
 */
function describe(artifact) {
  const shared = artifact.variants.filter(({ variant }) => !isBaseline(variant));
  const smallest = shared.find(({ variant }) => variant === 'int8') ?? shared[0];
  const full = shared.find(({ variant }) => variant === 'fp32') ?? shared[0];
  if (!full || !smallest) return element('p', {}, `${artifact.name} holds no model to run.`);
  const rows = [
    { words: 'Every layer with weights of its own', bytes: artifact.unshared_bytes, ours: false },
    {
      words: `One set of weights for all layers${full.variant === 'fp32' ? '' : `, ${plainName(full.variant)}`}`,
      bytes: full.file_bytes,
      ours: true,
    },
  ];
  if (smallest !== full) {
    const words = `The same, as ${plainName(smallest.variant)} numbers`;
    rows.push({ words, bytes: smallest.file_bytes, ours: true });
  }
  const largest = Math.max(...rows.map(({ bytes }) => bytes));
  const times = significant(largest / Math.min(...rows.map(({ bytes }) => bytes)));
  return element(
    'div',
    { class: 'sized' },
    element('p', {}, `${artifact.name}: ${times} times smaller.`),
    ...rows.map(({ words, bytes, ours }) => {
      const bar = element('div', { class: ours ? 'bar ours' : 'bar' });
      bar.style.width = `${(100 * bytes) / largest}%`;
      const text = element('span', {}, words);
      const size = element('strong', {}, formatBytes(bytes));
      return element(
        'div',
        { class: 'size' },
        element('div', { class: 'size-words' }, text, size),
        bar,
      );
    }),
  );
}
