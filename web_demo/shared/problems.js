/**
 * @file From what went wrong to words for people: what happened, and what to do.
 */

/** A failure in words: `message` says what happened, `advice` what to do. */
export class Problem extends Error {
  /**
   * @param {string} message
   * @param {string} [advice]
   * @param {ErrorOptions & { detail?: string }} [options] `detail`: the runtime's own words
   */
  constructor(message, advice = '', options = {}) {
    super(message, options);
    this.name = 'Problem';
    this.advice = advice;
    this.detail = options.detail ?? '';
  }
}

const OUT_OF_MEMORY =
  /out of memory|bad_alloc|failed to allocate|cannot allocate|could not allocate|allocation failed|memory access out of bounds|(cannot|could not|unable to) (grow|enlarge)|when memory runs out/i;

/** @type {[RegExp, (found: RegExpExecArray) => [string, string]][]} */
const KNOWN = [
  [
    /^(\S+) answers 404/,
    ([, url]) => [
      `The server has no file ${shorten(url)} any more.`,
      'It was probably started again with another model. Reload this page.',
    ],
  ],
  [
    /^(\S+) answers (\d+)/,
    ([, url, status]) => [
      `The server cannot send ${shorten(url)} (status ${status}).`,
      'Reload this page. If that does not help, start the server again.',
    ],
  ],
  [
    /(\S+) is (\S+) and no model/,
    ([, url, type]) => [
      `The server sent a page of type ${type} in place of the model file ${shorten(url)}.`,
      'Something between this device and the server answers for it. Try again without it.',
    ],
  ],
  [
    /^(\S+) ended after (\d+) of (\d+) bytes/,
    ([, url, loaded, total]) => [
      `The file ${shorten(url)} arrived incomplete: ${loaded} of ${total} bytes.`,
      'Try again. If it stays so, the file on the server is damaged: export it again.',
    ],
  ],
  [
    /network|cannot be fetched|Failed to fetch(?! dynamically)|Load failed|content.decoding/i,
    () => [
      'The connection to the server was lost.',
      'Check that albert-export serve still runs, then try again.',
    ],
  ],
  [
    /dynamically imported module|import(ing)? a module|error loading/i,
    () => [
      'The runtime that computes the model could not be loaded.',
      'Reload this page. If that does not help, start the server again.',
    ],
  ],
  [
    /protobuf|invalid model|failed to load model|Can't create a session|no graph/i,
    () => [
      'The file that arrived is no model that can be read.',
      'It may be damaged: export it again, then start the server again.',
    ],
  ],
  [
    /no available backend|WebAssembly\.(Memory|instantiate|compile)|SharedArrayBuffer/i,
    () => [
      'This browser would not start the runtime.',
      'Try another browser, or start the server with --no-isolation.',
    ],
  ],
];

/** @returns {[string, string]} */
const outOfMemory = () => [
  'This device did not give the model enough memory.',
  'Close other tabs, or choose a version that needs less.',
];

/**
 * Explain a failure. Whatever is not known keeps its own words, within a sentence.
 *
 * @param {unknown} error an error, or its text
 * @param {ErrorOptions} [options]
 * @returns {Problem}
 */
export function problemOf(error, options) {
  if (error instanceof Problem) return error;
  const detail = error instanceof Error ? error.message || error.name : String(error);
  if (isOutOfMemory(detail)) {
    const [message, advice] = outOfMemory();
    return new Problem(message, advice, { ...options, detail });
  }
  for (const [pattern, words] of KNOWN) {
    const found = pattern.exec(detail);
    if (found) {
      const [message, advice] = words(found);
      return new Problem(message, advice, { ...options, detail });
    }
  }
  return new Problem(
    'The model could not be run.',
    'Reload this page, or choose another version.',
    { ...options, detail },
  );
}

/**
 * Whether an error reads like those of a runtime that ran out of memory.
 *
 * @param {string} text
 * @returns {boolean}
 */
export function isOutOfMemory(text) {
  return OUT_OF_MEMORY.test(text);
}

/**
 * @param {string} url
 * @returns {string} its path, with a long hash cut
 */
function shorten(url) {
  const path = url.replace(/^https?:\/\/[^/]+|#.*$/g, '');
  return path.replace(/[0-9a-f]{32,}/, (hash) => `${hash.slice(0, 8)}…`);
}
