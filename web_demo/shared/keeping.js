/**
 * @file What the browser keeps for the next visit, and under which names.
 */

/** Cache of files whose address holds the hash of their content. */
export const KEPT_FILES = 'albert-export-files';

/**
 * Whether a file never changes under its address.
 *
 * @param {URL} url
 * @returns {boolean}
 */
export function isUnchanging(url) {
  return url.pathname.startsWith('/f/') || url.pathname.startsWith('/p/');
}
