// transformers.js's own build for Node on an artifact, with no network: prints, as JSON, the
// answers for each dtype. Arguments: a JSON object {dtypes, texts}.
import { env, pipeline } from './transformers.node.mjs';

const { dtypes, texts } = JSON.parse(process.argv[2]);
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = './models/';
env.backends.onnx.wasm.wasmPaths = new URL('runtime/', import.meta.url).href;

const answers = {};
for (const dtype of dtypes) {
  const classify = await pipeline('text-classification', 'artifact', { dtype });
  answers[dtype] = await classify(texts, { top_k: null });
  await classify.dispose();
}
console.log(JSON.stringify({ version: env.version, runtime: env.backends.onnx.versions, answers }));
