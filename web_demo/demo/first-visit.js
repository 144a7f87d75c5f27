/**
 * @file How long the first answer took when a version was downloaded, for later visits to show.
 */

const PREFIX = 'albert-export-first-';

/** @type {Set<string>} versions that were first used by this very page */
const now = new Set();

/**
 * Milliseconds until the first answer when this browser first used a version.
 *
 * @param {import('../shared/catalogue.js').Variant} variant
 * @param {number} ms what it took now; remembered if it is the first time
 * @returns {number | null} null: that was now, or in this page
 */
export function firstVisitMs({ sha256 }, ms) {
  try {
    const before = localStorage.getItem(PREFIX + sha256);
    if (before !== null && !now.has(sha256)) return Number(before);
    if (before === null) localStorage.setItem(PREFIX + sha256, String(ms));
    now.add(sha256);
  } catch {
    // A browser that forbids it shows this visit's time alone.
  }
  return null;
}
