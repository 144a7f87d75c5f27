/**
 * @file Numbers for people, and the statistics that tables show.
 */

const LOCALE = 'en-US';

/**
 * @param {number} bytes
 * @returns {string} such as `412 KB` or `9.31 MB`, in units of 1000
 */
export function formatBytes(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  if (bytes < 1e6) return `${number(bytes / 1e3, 0)} KB`;
  if (bytes < 1e9) return `${significant(bytes / 1e6)} MB`;
  return `${significant(bytes / 1e9)} GB`;
}

/**
 * @param {number} milliseconds
 * @returns {string} such as `3.42 ms`, `212 ms` or `1.43 s`
 */
export function formatTime(milliseconds) {
  if (!Number.isFinite(milliseconds)) return '–';
  if (milliseconds < 1000) return `${significant(milliseconds)} ms`;
  return `${significant(milliseconds / 1000)} s`;
}

/**
 * @param {number} share from 0 to 1
 * @returns {string} such as `97.3 %`; never a rounded 100 or 0
 */
export function formatShare(share) {
  const percent = Math.min(share < 1 ? 99.9 : 100, Math.max(share > 0 ? 0.1 : 0, share * 100));
  return `${number(percent, 1)} %`;
}

/**
 * @param {number} count
 * @param {string} noun
 * @returns {string} such as `1 token` or `12 tokens`
 */
export function plural(count, noun) {
  return `${count.toLocaleString(LOCALE)} ${noun}${count === 1 ? '' : 's'}`;
}

/**
 * @param {number} value
 * @returns {string} with three digits that count
 */
export function significant(value) {
  if (value >= 100 || value === 0) return number(value, 0);
  return number(value, value >= 10 ? 1 : 2);
}

/**
 * @param {readonly number[]} values
 * @param {number} share from 0 to 1
 * @returns {number} the quantile, interpolated between neighbours; NaN without values
 */
export function quantile(values, share) {
  if (!values.length) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const position = share * (sorted.length - 1);
  const low = Math.floor(position);
  const high = Math.ceil(position);
  return sorted[low] + (sorted[high] - sorted[low]) * (position - low);
}

/**
 * @param {readonly number[]} values
 * @returns {number} NaN without values
 */
export function median(values) {
  return quantile(values, 0.5);
}

/**
 * @param {number} value
 * @param {number} digits after the point
 * @returns {string}
 */
function number(value, digits) {
  return value.toLocaleString(LOCALE, {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}
