// Opens a model, waits, runs it three times, and prints the milliseconds of each as JSON.
//
//   node first_run.mjs RUNTIME.mjs MODEL.onnx WAIT_MS SEQUENCE

import { setTimeout } from 'node:timers/promises';

const [runtime, model, wait, sequence] = process.argv.slice(2);
const ort = await import(runtime);
ort.env.wasm.numThreads = 1;

/** @param {() => Promise<unknown>} work */
async function milliseconds(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

let session;
const load = await milliseconds(async () => {
  session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'] });
});
const length = Number(sequence);
const ids = new ort.Tensor('int64', new BigInt64Array(length).fill(1n), [1, length]);
const feeds = Object.fromEntries(session.inputNames.map((name) => [name, ids]));
await setTimeout(Number(wait));
const runs = [];
for (let i = 0; i < 3; i++) runs.push(await milliseconds(() => session.run(feeds)));
console.log(JSON.stringify({ load, runs }));
process.exit(); // threads of the runtime would keep it alive
