/**
 * @file One model in LiteRT.js on one thread of WebAssembly, driven through a WebSocket by the
 * messages of `web_demo/measure/core.js`.
 */

import { Tensor, loadAndCompile, loadLiteRt } from '@litertjs/core';

const socketUrl = new URL('../socket', location.href);
socketUrl.protocol = 'ws:';
const socket = new WebSocket(socketUrl);
const say = (message) => socket.send(JSON.stringify(message));

let model;
let inputs;

socket.onopen = () =>
  say({
    type: 'ready',
    userAgent: navigator.userAgent,
    crossOriginIsolated,
    timerResolutionMs: null,
  });

socket.onmessage = async ({ data }) => {
  const request = JSON.parse(data);
  try {
    if (request.type === 'open') say(await open(request));
    else if (request.type === 'run') say({ type: 'ran', ms: await run() });
    else say({ type: 'memory', memory: {} });
  } catch (error) {
    say({ type: 'error', message: String(error?.message ?? error) });
  }
};

async function open(request) {
  const [, runtimeStart] = await timed(() => loadLiteRt('../core/wasm/', { threads: false }));
  const bytes = new Uint8Array(await (await fetch(request.model)).arrayBuffer());
  const options = { accelerator: 'wasm', cpuOptions: { numThreads: 1 } };
  let sessionCreate;
  [model, sessionCreate] = await timed(() => loadAndCompile(bytes, options));
  inputs = request.feeds.map(({ shape, data }) => [toInt32(data), shape]);
  return {
    type: 'opened',
    times: {
      runtime_start: runtimeStart,
      session_create: sessionCreate,
      cold_first: await run(),
    },
    memory: {},
    check: {},
    threadsUsed: 1,
    runtimeVersion: request.version,
  };
}

/** Run once, read the outputs, and give everything back; return milliseconds. */
async function run() {
  const [, ms] = await timed(async () => {
    const tensors = inputs.map(([values, shape]) => new Tensor(values, shape));
    const outputs = await model.run(tensors);
    for (const output of outputs) await output.data();
    for (const tensor of [...tensors, ...outputs]) tensor.delete();
  });
  return ms;
}

async function timed(act) {
  const start = performance.now();
  const value = await act();
  return [value, performance.now() - start];
}

function toInt32(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return Int32Array.from(new BigInt64Array(bytes.buffer), Number);
}
