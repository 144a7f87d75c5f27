/**
 * @file Shell around the measuring core for Node: one message per line, as JSON, on standard
 * input and output. Files are paths.
 */

import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';

import { describeRealm, serve } from './core.js';

// What the runtime logs must not come between the answers.
console.log = console.error;

/** @param {import('./core.js').Answer} answer */
const answer = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);

/** @returns {{ rss: number, peak: number }} */
function processMemory() {
  let peak = process.resourceUsage().maxRSS * 1024;
  try {
    // Linux counts into maxRSS what the parent held when it started this process.
    const [, kibibytes] = /VmHWM:\s*(\d+)/.exec(readFileSync('/proc/self/status', 'ascii')) ?? [];
    if (kibibytes) peak = Number(kibibytes) * 1024;
  } catch {
    // no such file on other systems
  }
  return { rss: process.memoryUsage.rss(), peak };
}

const handle = serve({
  answer,
  read: async (path) => {
    const bytes = await readFile(path);
    return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  },
  processMemory,
});

const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => handle(JSON.parse(line)));
lines.on('close', () => process.exit()); // threads of the runtime would keep it alive
answer(describeRealm());
