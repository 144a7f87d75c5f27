/**
 * @file The measuring worker, behind a stricter `fetch`. Modules run in the order of their
 * imports, so the worker fetches through it.
 */

import './guarded-fetch.js';
import '../measure/worker.js';
