/**
 * @file What this browser keeps of the server's unchanging files, and who sees to it.
 *
 * 1. In secure contexts, what belongs to models (`/f/`) is kept in a store of our own.
 * 2. The runtime (`/p/`) is left to the browser's cache, which keeps its compiled code too.
 * 3. Where a person had to accept the certificate, browsers cache nothing: then the store holds
 *    the runtime as well, and its modules are imported from there.
 * 4. Over plain http to another machine there is no store; the browser's cache works.
 */

import { problemOf } from './problems.js';

/** @typedef {import('./catalogue.js').ServedFile} ServedFile */

/**
 * @typedef {object} Keeping
 * @property {Cache | null} store null: the browser gives none
 * @property {boolean} browserKeeps whether its own cache keeps what this server sends
 */

/** Name of the store. */
export const KEPT_FILES = 'albert-export-files';

/** @type {Promise<Keeping> | undefined} */
let keeping;

/** @type {Map<string, Promise<string>>} */
const modules = new Map();

/** @returns {Promise<Keeping>} */
export function findKeeping() {
  keeping ??= Promise.all([openStore(), browserKeeps()]).then(([store, kept]) => ({
    store,
    browserKeeps: kept,
  }));
  return keeping;
}

/**
 * Read a JSON file of a model.
 *
 * @param {ServedFile} file
 * @returns {Promise<any>}
 */
export async function readJson(file) {
  const content = await keptContent(file);
  try {
    return JSON.parse(await content.text());
  } catch (error) {
    throw problemOf(`${file.url} is no JSON`, { cause: error });
  }
}

/**
 * URL to import a module of a package from.
 *
 * @param {ServedFile} file
 * @returns {Promise<string>}
 */
export async function moduleUrl(file) {
  if ((await findKeeping()).browserKeeps) return new URL(file.url, location.href).href;
  const known = modules.get(file.url);
  if (known) return known;
  const made = keptContent(file).then((content) => URL.createObjectURL(content));
  modules.set(file.url, made);
  made.catch(() => modules.delete(file.url));
  return made;
}

/**
 * Forget what the server no longer offers.
 *
 * @param {import('./catalogue.js').Catalogue} catalogue
 */
export async function forgetOthers(catalogue) {
  const { store } = await findKeeping();
  const offered = JSON.stringify(catalogue);
  for (const { url } of (await store?.keys()) ?? []) {
    if (!offered.includes(`"${new URL(url).pathname}"`)) await store?.delete(url);
  }
}

/**
 * @param {ServedFile} file
 * @returns {Promise<Blob>}
 */
async function keptContent({ url, bytes }) {
  const { store } = await findKeeping();
  const known = await store?.match(url);
  if (known) return known.blob();
  let response;
  try {
    response = await fetch(url, { cache: store ? 'no-store' : 'default' });
  } catch (error) {
    throw problemOf(`${url} cannot be fetched`, { cause: error });
  }
  if (!response.ok) throw problemOf(`${url} answers ${response.status}`);
  const content = await response.blob();
  if (content.size !== bytes) throw problemOf(`${url} ended after ${content.size} of ${bytes} bytes`);
  // A refused quota only means that the next visit downloads again.
  await store?.put(url, new Response(content)).catch(() => undefined);
  return content;
}

/** @returns {Promise<Cache | null>} */
async function openStore() {
  if (!window.isSecureContext) return null;
  return caches.open(KEPT_FILES).catch(() => null);
}

/** @returns {Promise<boolean>} told by this very module, which is in the cache if anything is */
async function browserKeeps() {
  try {
    const options = /** @type {const} */ ({ cache: 'only-if-cached', mode: 'same-origin' });
    return (await fetch(import.meta.url, options)).ok;
  } catch {
    return false;
  }
}
