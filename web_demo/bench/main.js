/** @file The benchmark page. */

import { loadCatalogue } from '../shared/catalogue.js';
import { byId, showProblem } from '../shared/dom.js';
import { describeDevice } from '../shared/device.js';
import { keepPages } from '../shared/offline.js';
import { problemOf } from '../shared/problems.js';
import { requireAbilities } from '../shared/runtime.js';
import { takeToken } from '../shared/session.js';
import { BenchPage } from './page.js';

takeToken();
start().finally(keepPages);

async function start() {
  try {
    requireAbilities();
    const [catalogue, device] = await Promise.all([loadCatalogue(), describeDevice()]);
    await new BenchPage(catalogue, device).prepare();
  } catch (error) {
    showProblem(byId('page-problem', HTMLElement), problemOf(error));
    document.body.dataset.state = 'broken';
  }
}
