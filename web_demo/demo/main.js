/**
 * @file The demo page: one model at a time, in a worker of its own, asked about what is typed.
 */

import { divideVariants, loadCatalogue } from '../shared/catalogue.js';
import { byId, element, showProblem } from '../shared/dom.js';
import { keepPages } from '../shared/offline.js';
import { problemOf } from '../shared/problems.js';
import { requireAbilities } from '../shared/runtime.js';
import { DemoPage } from './page.js';

const pageProblem = byId('page-problem', HTMLElement);

// Only a scanned address has one.
if (location.hash) import('../shared/session.js').then(({ takeToken }) => takeToken());
start().finally(keepPages);

async function start() {
  try {
    requireAbilities();
    const catalogue = await loadCatalogue();
    const wanted = new URLSearchParams(location.search).get('artifact');
    const { artifacts } = catalogue;
    const artifact = artifacts.find(({ slug }) => slug === wanted) ?? artifacts[0];
    offerArtifacts(artifacts, artifact.slug);
    const page = new DemoPage(catalogue, artifact, divideVariants(artifact.variants));
    await page.prepare();
  } catch (error) {
    showProblem(pageProblem, problemOf(error));
    byId('start-note', HTMLElement).textContent = 'The model cannot be started here.';
    document.body.dataset.state = 'broken';
  }
}

/**
 * @param {import('../shared/catalogue.js').ArtifactEntry[]} artifacts
 * @param {string} chosen
 */
function offerArtifacts(artifacts, chosen) {
  if (artifacts.length < 2) return;
  const select = byId('artifact', HTMLSelectElement);
  for (const { slug, name } of artifacts) {
    select.append(element('option', { value: slug, selected: slug === chosen }, name));
  }
  select.onchange = () => {
    location.search = new URLSearchParams({ artifact: select.value }).toString();
  };
  byId('artifact-choice', HTMLElement).hidden = false;
}
