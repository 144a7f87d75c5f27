// One model in onnxruntime-web's WebAssembly build under Node; workers.py tells it what to do.
// Arguments: the runtime's entry file, a tiny model that starts the runtime.
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [runtime, tiny] = process.argv.slice(2);

// The heap is a WebAssembly.Memory that the runtime makes: keep hold of it.
const memories = [];
const Memory = WebAssembly.Memory;
WebAssembly.Memory = class extends Memory {
  constructor(descriptor) {
    super(descriptor);
    memories.push(this);
  }
};

const ort = await import(pathToFileURL(runtime));
ort.env.wasm.numThreads = 1;
const providers = { executionProviders: ['wasm'] };

const clock = () => [performance.now(), process.cpuUsage()];
const since = ([start, cpu]) => {
  const used = process.cpuUsage(cpu);
  return [performance.now() - start, (used.user + used.system) / 1e3];
};
const answer = (values) => process.stdout.write(`${JSON.stringify(values)}\n`);

const makeFeeds = (sequence) => {
  const place = Array.from({ length: sequence }, (_, i) => BigInt(i));
  const tensor = (fill) =>
    new ort.Tensor('int64', BigInt64Array.from(place.map(fill)), [1, sequence]);
  const tokens = BigInt(sequence - Math.floor(sequence / 4));
  return {
    input_ids: tensor((i) => (i * 7919n) % 30000n),
    attention_mask: tensor((i) => (i < tokens ? 1n : 0n)),
    token_type_ids: tensor((i) => i % 2n),
  };
};

let session;
let feeds;
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request === 'run') {
    const begun = clock();
    await session.run(feeds);
    const [ms, cpu_ms] = since(begun);
    answer({ ms, cpu_ms });
    continue;
  }
  let begun = clock();
  await ort.InferenceSession.create(tiny, providers);
  const [start_ms] = since(begun);
  begun = clock();
  session = await ort.InferenceSession.create(request.path, providers);
  const [load_ms, load_cpu_ms] = since(begun);
  feeds = makeFeeds(request.sequence);
  begun = clock();
  const outputs = await session.run(feeds);
  const [first_ms] = since(begun);
  const { data } = outputs[session.outputNames[0]];
  writeFileSync(request.dump, Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  const memory_bytes = Math.max(...memories.map((memory) => memory.buffer.byteLength));
  answer({ start_ms, load_ms, load_cpu_ms, first_ms, memory_bytes });
}
