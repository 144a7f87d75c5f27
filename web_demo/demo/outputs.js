/**
 * @file What a model's outputs say: classes with their probabilities, or a summary of numbers.
 */

/** @typedef {import('../measure/tensors.js').TensorData} TensorData */

/**
 * @typedef {object} Classes
 * @property {'classes'} kind
 * @property {{ label: string, share: number }[]} classes most likely first
 */

/**
 * @typedef {object} Summary
 * @property {'summary'} kind
 * @property {{ name: string, shape: string, norm: number, first: number[] }[]} outputs
 */

const SHOWN = 8;

/**
 * Read the outputs of one run on one text.
 *
 * @param {Record<string, TensorData>} outputs
 * @param {{ id2label?: Record<string, string>, problem_type?: string } | null} config
 * @returns {Classes | Summary}
 */
export function readOutputs(outputs, config) {
  const logits = outputs.logits ?? Object.values(outputs)[0];
  const several = logits?.shape.length === 2 && logits.shape[1] > 1;
  if (several && config?.problem_type !== 'regression' && isClassifier(outputs, config)) {
    const values = numbersOf(logits).slice(0, logits.shape[1]);
    const classes = softmax(values).map((share, index) => ({
      label: config?.id2label?.[index] ?? `class ${index}`,
      share,
    }));
    classes.sort((a, b) => b.share - a.share);
    return { kind: 'classes', classes };
  }
  return {
    kind: 'summary',
    outputs: Object.entries(outputs).map(([name, value]) => {
      const numbers = numbersOf(value);
      return {
        name,
        shape: value.shape.join(' × ') || 'one number',
        norm: Math.sqrt(numbers.reduce((sum, number) => sum + number ** 2, 0)),
        first: numbers.slice(0, SHOWN),
      };
    }),
  };
}

/**
 * @param {number[]} values
 * @returns {number[]} positive, with the sum 1
 */
export function softmax(values) {
  const largest = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - largest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/**
 * @param {Record<string, TensorData>} outputs
 * @param {{ id2label?: Record<string, string> } | null} config
 * @returns {boolean} whether a table of numbers is one of classes
 */
function isClassifier(outputs, config) {
  const labels = Object.keys(config?.id2label ?? {}).length;
  return outputs.logits ? !labels || labels === outputs.logits.shape[1] : false;
}

/**
 * @param {TensorData} value
 * @returns {number[]}
 */
export function numbersOf({ dtype, data }) {
  const text = atob(/** @type {string} */ (data));
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  /** @type {Record<string, { new (buffer: ArrayBuffer): ArrayLike<number | bigint> }>} */
  const arrays = {
    float32: Float32Array,
    float64: Float64Array,
    int64: BigInt64Array,
    int32: Int32Array,
    uint8: Uint8Array,
    int8: Int8Array,
    bool: Uint8Array,
  };
  const { Float16Array } = /** @type {any} */ (globalThis);
  const ArrayType = dtype === 'float16' ? Float16Array : arrays[dtype];
  return ArrayType ? Array.from(new ArrayType(bytes.buffer), Number) : [];
}
