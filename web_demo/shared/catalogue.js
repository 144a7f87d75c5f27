/**
 * @file What the server offers: the one document that the pages know about models.
 */

import { forgetOthers } from './keeping.js';
import { Problem, problemOf } from './problems.js';

/**
 * @typedef {object} ServedFile
 * @property {string} url
 * @property {string} path
 * @property {number} bytes
 * @property {string} sha256
 * @property {number} brotli_bytes
 * @property {number} gzip_bytes
 */

/**
 * @typedef {object} Variant
 * @property {string} variant
 * @property {ServedFile} model
 * @property {(ServedFile & { location: string })[]} external_data
 * @property {number} file_bytes
 * @property {number} brotli_bytes
 * @property {number} gzip_bytes
 * @property {number} stored_bytes
 * @property {{ name?: string, summary?: string } | null} precision
 * @property {number | null} tolerance
 * @property {string | null} note
 * @property {number | null} [exit_value] when to leave the layers early, if that was calibrated
 * @property {string} sha256 of all its files together
 */

/**
 * @typedef {object} ArtifactEntry
 * @property {string} name
 * @property {string} slug
 * @property {ServedFile | null} config
 * @property {ServedFile | null} tokenizer
 * @property {ServedFile | null} tokenizer_config
 * @property {ServedFile | null} reference
 * @property {string} scheme
 * @property {{ loops?: { iterations: number }[] } | null} layout
 * @property {{ rule: string, input: string, layers: number } | null} [early_exit]
 * @property {number} unique_bytes
 * @property {number} unshared_bytes
 * @property {{ specs: import('../measure/tensors.js').InputSpec[],
 *   limits: Record<string, number> }} inputs
 * @property {string[]} outputs
 * @property {Variant[]} variants
 */

/**
 * @typedef {object} Catalogue
 * @property {number} schema
 * @property {string} tool
 * @property {boolean} isolated
 * @property {Record<string, { base: string, files: Record<string, ServedFile> }>} packages
 * @property {ArtifactEntry[]} artifacts
 */

const SCHEMA = 1;

/** How each precision is called for people who have never heard of it. */
const PLAIN_NAMES = new Map([
  ['fp32', 'Full precision'],
  ['fp16', 'Half precision'],
  ['int8', '8-bit'],
  ['int4', '4-bit'],
]);

/**
 * Read the catalogue.
 *
 * @returns {Promise<Catalogue>}
 */
export async function loadCatalogue() {
  /** @type {Catalogue} */
  const catalogue = await fetchJson('/api/artifacts.json');
  if (catalogue.schema !== SCHEMA) {
    throw new Problem(
      'This page is older or newer than the server.',
      'Reload the page without its cache.',
    );
  }
  if (!catalogue.artifacts.length) throw new Problem('This server offers no model.');
  forgetOthers(catalogue).catch(() => undefined); // the next visit tries again
  return catalogue;
}

/**
 * Read a JSON document that may change.
 *
 * @param {string} url
 * @returns {Promise<any>}
 */
async function fetchJson(url) {
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw problemOf(`${url} cannot be fetched`, { cause: error });
  }
  if (!response.ok) throw problemOf(`${url} answers ${response.status}`);
  try {
    return await response.json();
  } catch (error) {
    throw problemOf(`${url} is no JSON`, { cause: error });
  }
}

/**
 * Whether a variant stores every layer's weights apart.
 *
 * @param {string} variant
 * @returns {boolean}
 */
export function isBaseline(variant) {
  return variant === 'baseline' || variant.startsWith('baseline-');
}

/**
 * A variant's name for people: `8-bit` for `int8`, `8-bit, unshared` for `baseline-int8`.
 *
 * @param {string} variant
 * @returns {string}
 */
export function plainName(variant) {
  const precision = variant === 'baseline' ? 'fp32' : variant.replace(/^baseline-/, '');
  const [base, ...rest] = precision.split('-');
  const name = `${PLAIN_NAMES.get(base) ?? base}${rest.length ? ` (${rest.join(' ')})` : ''}`;
  return isBaseline(variant) ? `${name}, unshared` : name;
}

/**
 * One line about what a variant is.
 *
 * @param {string} variant
 * @returns {string}
 */
export function kindOf(variant) {
  return isBaseline(variant) ? 'each layer has its own weights' : 'layers share their weights';
}

/**
 * Bytes that cross the network for the first visit, as this page is served.
 *
 * @param {{ brotli_bytes: number, gzip_bytes: number }} file
 * @returns {number}
 */
export function transferBytes(file) {
  // Browsers ask for brotli in secure contexts only.
  return window.isSecureContext ? file.brotli_bytes : file.gzip_bytes;
}

/**
 * Bytes of the runtime that cross the network once; its scripts are next to nothing.
 *
 * @param {Catalogue} catalogue
 * @returns {number}
 */
export function runtimeTransferBytes(catalogue) {
  return transferBytes(catalogue.packages['onnxruntime-web'].files['ort-wasm-simd-threaded.wasm']);
}

/**
 * Divide variants into those that tell the story and the others.
 *
 * @param {Variant[]} variants
 * @returns {{ main: Variant[], more: Variant[] }}
 */
export function divideVariants(variants) {
  const telling = ['int8', 'int4', 'fp16', 'fp32', 'baseline', 'baseline-int8'];
  const main = telling.flatMap((name) => variants.filter(({ variant }) => variant === name));
  if (!main.length) return { main: variants, more: [] };
  return { main, more: variants.filter((variant) => !main.includes(variant)) };
}

/**
 * The dimension that text lengths fill, and its largest size.
 *
 * @param {ArtifactEntry} artifact
 * @returns {number | null} null: no limit is known
 */
export function sequenceLimit(artifact) {
  const ids = artifact.inputs.specs.find(({ role, shape }) => role === 'ids' && shape.length === 2);
  const size = ids?.shape[1];
  if (typeof size === 'number') return size;
  return (size && artifact.inputs.limits[size]) || null;
}
