/**
 * @file From text to a model's inputs: tokenized, cut to the model's length, laid out.
 *
 * The package @huggingface/tokenizers gives the token ids of Python's `tokenizers`, but for rare
 * characters: it takes U+FEFF for a space, and for WordPiece it knows the punctuation and the
 * accents that Unicode added after 8.0, and does not part ideographs beyond U+FFFF.
 */

import { sequenceLimit } from '../shared/catalogue.js';
import { moduleUrl, readJson } from '../shared/keeping.js';
import { Problem, problemOf } from '../shared/problems.js';

/** @typedef {import('../shared/catalogue.js').ArtifactEntry} ArtifactEntry */
/** @typedef {import('../measure/tensors.js').TensorData} TensorData */
/** @typedef {import('../measure/tensors.js').InputSpec} InputSpec */

/**
 * @typedef {object} Encoded
 * @property {number[]} ids
 * @property {string[]} tokens
 * @property {boolean} cut whether the end of the text did not fit
 */

/**
 * Reads what a person typed.
 *
 * @typedef {object} Reader
 * @property {string} [note] how the tokens that it shows are marked
 * @property {'text' | 'ids' | 'drawn'} mode `drawn`: the model takes more than text gives, so
 *   that only made-up inputs are left
 * @property {(typed: string) => Encoded} encode
 */

/** @type {Record<string, string>} */
const TOKEN_NOTES = {
  Unigram: '▁ marks the start of a word.',
  WordPiece: '## marks a piece that goes on with a word.',
};

/** What the package @huggingface/tokenizers offers, as far as it is used here. */
/**
 * @typedef {object} Tokenizer
 * @property {(text: string, options?: { add_special_tokens?: boolean }) =>
 *   { ids: number[], tokens: string[] }} encode
 */

/**
 * Prepare to read text, or token ids where the artifact has no tokenizer.
 *
 * @param {import('../shared/catalogue.js').Catalogue} catalogue
 * @param {ArtifactEntry} artifact
 * @returns {Promise<Reader>}
 */
export async function prepareReader(catalogue, artifact) {
  const limit = sequenceLimit(artifact);
  if (!takesText(artifact)) {
    return { mode: 'drawn', encode: () => ({ ids: [], tokens: [], cut: false }) };
  }
  if (!artifact.tokenizer) {
    const upper = artifact.inputs.specs.find((spec) => meaningOf(spec) === 'ids')?.upper ?? null;
    return { mode: 'ids', encode: (typed) => cutIds(parseIds(typed, upper), limit) };
  }
  const { files } = catalogue.packages['@huggingface/tokenizers'];
  const [{ Tokenizer }, definition, config] = await Promise.all([
    importModule(files['tokenizers.min.mjs']),
    readJson(artifact.tokenizer),
    artifact.tokenizer_config ? readJson(artifact.tokenizer_config) : {},
  ]);
  /** @type {Tokenizer} */
  let tokenizer;
  try {
    tokenizer = new Tokenizer(definition, config);
  } catch (error) {
    throw new Problem(
      'The tokenizer of this model cannot be read here.',
      'Its words cannot be split into tokens in the browser.',
      { cause: error, detail: String(error) },
    );
  }
  const longest = limit ?? definition.truncation?.max_length ?? null;
  const note = TOKEN_NOTES[definition.model?.type] ?? '';
  return { mode: 'text', note, encode: (typed) => encodeText(tokenizer, typed, longest) };
}

/**
 * @param {import('../shared/catalogue.js').ServedFile} file
 * @returns {Promise<any>}
 */
async function importModule(file) {
  try {
    return await import(await moduleUrl(file));
  } catch (error) {
    throw problemOf(error);
  }
}

/**
 * Tokenize, and cut to `limit` as Python does: the end of the text goes, special tokens stay.
 *
 * @param {Tokenizer} tokenizer
 * @param {string} text
 * @param {number | null} limit tokens in all
 * @returns {Encoded}
 */
export function encodeText(tokenizer, text, limit) {
  const { ids, tokens } = tokenizer.encode(text);
  if (limit === null || ids.length <= limit) return { ids, tokens, cut: false };
  const plain = tokenizer.encode(text, { add_special_tokens: false }).ids;
  const special = ids.length - plain.length;
  let before = 0;
  while (before < special && !plain.every((id, index) => ids[before + index] === id)) before += 1;
  const end = before + Math.max(0, limit - special);
  const after = before + plain.length;
  return {
    ids: [...ids.slice(0, end), ...ids.slice(after)].slice(0, limit),
    tokens: [...tokens.slice(0, end), ...tokens.slice(after)].slice(0, limit),
    cut: true,
  };
}

/**
 * Lay out one text as the model's inputs.
 *
 * @param {ArtifactEntry} artifact
 * @param {number[]} ids
 * @param {number} padId fills up where the model fixes its length
 * @returns {Record<string, TensorData>}
 */
export function layOut(artifact, ids, padId) {
  /** @type {Record<string, TensorData>} */
  const feeds = {};
  for (const spec of artifact.inputs.specs) {
    if (spec.optional) continue;
    const [rows, length] = spec.shape.map((size) => (typeof size === 'number' ? size : null));
    const shape = [rows ?? 1, length ?? ids.length];
    const count = shape[0] * shape[1];
    const meaning = meaningOf(spec);
    const numbers = Array.from({ length: count }, (_, index) => {
      const position = index % shape[1];
      if (meaning === 'ids') return ids[position] ?? padId;
      return meaning === 'mask' && position < ids.length ? 1 : 0;
    });
    feeds[spec.name] = pack(spec.dtype, shape, numbers);
  }
  return feeds;
}

/**
 * Pack whole numbers for a message.
 *
 * @param {string} dtype
 * @param {number[]} shape
 * @param {number[]} numbers
 * @returns {TensorData}
 */
export function pack(dtype, shape, numbers) {
  /** @type {Record<string, () => ArrayBufferView>} */
  const arrays = {
    int64: () => BigInt64Array.from(numbers, BigInt),
    int32: () => Int32Array.from(numbers),
    bool: () => Uint8Array.from(numbers),
    float32: () => Float32Array.from(numbers),
  };
  const make = arrays[dtype];
  if (!make) throw new Problem(`This model takes numbers of type ${dtype}, which a page cannot give.`);
  return { dtype, shape, data: make() };
}

/**
 * Sizes to draw inputs in: one row, and short.
 *
 * @param {ArtifactEntry} artifact
 * @returns {Record<string, number>} by symbolic dimension
 */
export function smallSizes({ inputs: { specs, limits } }) {
  const symbols = specs.flatMap(({ shape }) => shape.filter((size) => typeof size === 'string'));
  const size = (/** @type {string} */ symbol) =>
    symbol === 'batch' ? 1 : Math.min(limits[symbol] ?? 16, 16);
  return Object.fromEntries(symbols.map((symbol) => [symbol, size(symbol)]));
}

/**
 * @param {ArtifactEntry} artifact
 * @returns {boolean} whether a text gives all that the model needs
 */
function takesText(artifact) {
  const meanings = artifact.inputs.specs
    .filter(({ optional }) => !optional)
    .map((spec) => meaningOf(spec));
  return meanings.includes('ids') && meanings.every((meaning) => meaning !== null);
}

/**
 * @param {InputSpec} spec
 * @returns {'ids' | 'mask' | 'types' | null} null: nothing that a text gives
 */
function meaningOf({ name, role, shape }) {
  if (shape.length !== 2 || name === 'position_ids') return null;
  if (name === 'token_type_ids') return 'types';
  return role === 'ids' || role === 'mask' ? role : null;
}

/**
 * @param {string} typed numbers, between anything that is none
 * @param {number | null} upper first id that is out of range
 * @returns {number[]}
 */
function parseIds(typed, upper) {
  const words = typed.split(/[\s,;[\]]+/).filter(Boolean);
  return words.map((word) => {
    const id = Number(word);
    if (!/^\d+$/.test(word) || (upper !== null && id >= upper)) {
      const range = upper === null ? '' : ` from 0 to ${upper - 1}`;
      throw new Problem(`“${word.slice(0, 20)}” is no token id.`, `Ids are whole numbers${range}.`);
    }
    return id;
  });
}

/**
 * @param {number[]} ids
 * @param {number | null} limit
 * @returns {Encoded}
 */
function cutIds(ids, limit) {
  const kept = limit === null ? ids : ids.slice(0, limit);
  return { ids: kept, tokens: kept.map(String), cut: kept.length < ids.length };
}
