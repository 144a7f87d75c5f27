/**
 * @file The token that lets this device send results: from the scanned address, or, on the
 * serving machine, from the server itself.
 */

import { Problem } from './problems.js';

const KEY = 'albert-export-token';

/** Take the token out of the address, so that it is neither seen nor shared. */
export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return;
  store()?.setItem(KEY, token);
  history.replaceState(null, '', location.pathname + location.search);
}

/**
 * @returns {Promise<string | null>} null: this device has none
 */
export async function findToken() {
  takeToken();
  const known = store()?.getItem(KEY);
  if (known) return known;
  try {
    const response = await fetch('/api/session');
    return response.ok ? (await response.json()).token : null;
  } catch {
    return null;
  }
}

/**
 * Send records.
 *
 * @param {object[]} records
 * @returns {Promise<{ stored: number, known: number, total: number }>}
 * @throws {Problem} they were not stored
 */
export async function sendRecords(records) {
  const response = await ask('/api/results', {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-ndjson' },
    body: records.map((record) => `${JSON.stringify(record)}\n`).join(''),
  });
  return response.json();
}

/**
 * Read the records of all devices.
 *
 * @param {string | null} etag of the last answer
 * @returns {Promise<{ records: import('../bench/records.js').Measurement[],
 *   etag: string | null } | null>} null: nothing new
 * @throws {Problem}
 */
export async function readRecords(etag) {
  const response = await ask('/api/results', { headers: etag ? { 'If-None-Match': etag } : {} });
  if (response.status === 304) return null;
  return { records: (await response.json()).records, etag: response.headers.get('ETag') };
}

/**
 * @param {string} url
 * @param {RequestInit & { headers: Record<string, string> }} options
 * @returns {Promise<Response>}
 */
async function ask(url, options) {
  const token = await findToken();
  if (!token) {
    throw new Problem(
      'This device has no token to send results with.',
      'Scan the code in the terminal, or copy the results below.',
    );
  }
  const headers = { ...options.headers, Authorization: `Bearer ${token}` };
  let response;
  try {
    response = await fetch(url, { ...options, headers, cache: 'no-store' });
  } catch {
    throw new Problem(
      'The server cannot be reached.',
      'Check that albert-export serve still runs, then send again, or copy the results below.',
    );
  }
  if (response.ok || response.status === 304) return response;
  const detail = (await response.text()).trim().split('\n')[0].slice(0, 300);
  if (response.status === 401) {
    store()?.removeItem(KEY);
    throw new Problem(
      'The server was started again and no longer knows this device.',
      'Scan the new code in the terminal, or copy the results below.',
      { detail },
    );
  }
  throw new Problem(
    `The server did not take the results (status ${response.status}).`,
    'Send again later, or copy the results below.',
    { detail },
  );
}

/** @returns {Storage | null} null where a browser forbids it */
function store() {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}
