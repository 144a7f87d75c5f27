/**
 * @file Arrays of a model's inputs and outputs: as messages, as drawn, and compared.
 */

/**
 * An array in a message or a file.
 *
 * @typedef {object} TensorData
 * @property {string} dtype numpy's name of the element type
 * @property {number[]} shape
 * @property {string | ArrayBufferView} data the little-endian bytes, as base64; a typed array
 *   within a page
 */

/**
 * One model input, as the artifact's manifest describes it.
 *
 * @typedef {object} InputSpec
 * @property {string} name
 * @property {string} dtype
 * @property {(number | string)[]} shape fixed sizes, or names of symbolic dimensions
 * @property {'ids' | 'mask' | 'values'} role
 * @property {number | null} [upper] for ids, the first value that is out of range
 * @property {boolean} [optional] the graph has a default for it
 */

/**
 * Inputs and outputs of a source model, to check another run against.
 *
 * @typedef {object} ReferenceCase
 * @property {string} name
 * @property {Record<string, TensorData>} inputs
 * @property {Record<string, TensorData>} outputs
 */

/**
 * Outputs against the reference; fields as in the record schema.
 *
 * @typedef {object} Check
 * @property {'passed' | 'failed' | 'not run'} status
 * @property {number | null} relative_error null where it is not a number
 * @property {number | null} max_abs_error
 * @property {number | null} tolerance
 */

/**
 * A tensor of onnxruntime.
 *
 * @typedef {object} Tensor
 * @property {string} type
 * @property {readonly number[]} dims
 * @property {any} data typed array
 */

/** @typedef {new (type: string, data: any, dims: readonly number[]) => Tensor} TensorClass */

/** @type {Record<string, { new (buffer: ArrayBufferLike): ArrayBufferView }>} */
const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  float16: /** @type {any} */ (globalThis).Float16Array ?? Uint16Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

/** @type {Check} */
export const NOT_RUN = {
  status: 'not run',
  relative_error: null,
  max_abs_error: null,
  tolerance: null,
};

/**
 * @param {string} dtype
 * @param {ArrayBufferLike} buffer
 * @returns {any}
 */
function typedArray(dtype, buffer) {
  const ArrayType = ARRAYS[dtype];
  if (!ArrayType) throw new Error(`arrays of ${dtype} are not supported here`);
  return new ArrayType(buffer);
}

/**
 * Decode a message's array.
 *
 * @param {TensorData} value
 * @param {TensorClass} Tensor
 * @returns {Tensor}
 */
export function decodeTensor(value, Tensor) {
  if (typeof value.data !== 'string') return new Tensor(value.dtype, value.data, value.shape);
  const text = atob(value.data);
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  return new Tensor(value.dtype, typedArray(value.dtype, bytes.buffer), value.shape);
}

/**
 * Encode an array for a message.
 *
 * @param {Tensor} tensor
 * @returns {TensorData}
 */
export function encodeTensor(tensor) {
  const { data } = tensor;
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let text = '';
  // In pieces: a call takes only so many arguments.
  for (let start = 0; start < bytes.length; start += 8192) {
    text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  return { dtype: tensor.type, shape: [...tensor.dims], data: btoa(text) };
}

/**
 * Draw one reproducible set of inputs: ids in their range, masks without padding.
 *
 * @param {InputSpec[]} specs
 * @param {Record<string, number>} sizes size of each symbolic dimension
 * @param {TensorClass} Tensor
 * @param {number} [seed]
 * @returns {Record<string, Tensor>} what is not optional, by name
 */
export function drawFeeds(specs, sizes, Tensor, seed = 0) {
  const random = generator(seed);
  /** @type {Record<string, Tensor>} */
  const feeds = {};
  for (const spec of specs) {
    if (spec.optional) continue;
    const shape = spec.shape.map((size) => (typeof size === 'number' ? size : sizes[size]));
    const unknown = spec.shape.find((_, axis) => !Number.isInteger(shape[axis]));
    if (unknown !== undefined) throw new Error(`no size given for dimension '${unknown}'`);
    const count = shape.reduce((product, size) => product * size, 1);
    const probe = typedArray(spec.dtype, new ArrayBuffer(0));
    const data = typedArray(spec.dtype, new ArrayBuffer(count * probe.BYTES_PER_ELEMENT));
    const wide = data instanceof BigInt64Array || data instanceof BigUint64Array;
    const whole = !spec.dtype.startsWith('float');
    if (spec.dtype === 'float16' && data instanceof Uint16Array) throw noFloat16();
    for (let index = 0; index < count; index += 1) {
      let value = 1;
      if (spec.role === 'ids') value = Math.floor(random() * (spec.upper ?? 2));
      else if (spec.role === 'values') value = whole ? Math.floor(random() * 2) : random() * 2 - 1;
      data[index] = wide ? BigInt(value) : value;
    }
    feeds[spec.name] = new Tensor(spec.dtype, data, shape);
  }
  return feeds;
}

/**
 * Compare runs with the reference: per output the root of the summed squared difference over
 * the reference's own, over all cases together; of whole numbers, the share that differs. The
 * largest over the outputs counts. The same NaN or infinity on both sides is no difference; on
 * one side, or where outputs are missing or of another shape, the difference is infinite.
 */
export class OutputCheck {
  /** @type {Map<string, { difference: number, reference: number, whole: boolean }>} */
  #sums = new Map();

  #largest = 0;

  /**
   * Take in one case.
   *
   * @param {Record<string, Tensor>} expected
   * @param {Record<string, Tensor>} actual
   */
  add(expected, actual) {
    for (const name of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
      const sums = this.#sums.get(name) ?? { difference: 0, reference: 0, whole: false };
      this.#sums.set(name, sums);
      const [reference, output] = [expected[name], actual[name]];
      if (!reference || !output || `${reference.dims}` !== `${output.dims}`) {
        sums.difference = this.#largest = Infinity;
        continue;
      }
      const [wanted, got] = [numbers(reference), numbers(output)];
      sums.whole = isWhole(reference) && isWhole(output);
      for (let index = 0; index < wanted.length; index += 1) {
        if (sums.whole) {
          sums.difference += wanted[index] == got[index] ? 0 : 1; // 1n is 1
          sums.reference += 1;
          continue;
        }
        const difference = distance(Number(wanted[index]), Number(got[index]));
        sums.difference += difference ** 2;
        if (Number.isFinite(Number(wanted[index]))) sums.reference += Number(wanted[index]) ** 2;
        this.#largest = Math.max(this.#largest, difference);
      }
    }
  }

  /**
   * @param {number} tolerance limit of the relative error
   * @returns {Check}
   */
  verdict(tolerance) {
    const errors = [...this.#sums.values()].map(({ difference, reference, whole }) => {
      if (difference === 0) return 0;
      return whole ? difference / reference : Math.sqrt(difference / reference);
    });
    const error = errors.length ? Math.max(...errors) : Infinity;
    return {
      status: error <= tolerance ? 'passed' : 'failed',
      relative_error: Number.isFinite(error) ? error : null,
      max_abs_error: Number.isFinite(this.#largest) ? this.#largest : null,
      tolerance,
    };
  }
}

/**
 * @param {number} a
 * @param {number} b
 * @returns {number} |a - b|; infinite where only one of them is a finite number
 */
function distance(a, b) {
  if (Object.is(a, b) || a === b) return 0;
  const difference = Math.abs(a - b);
  return Number.isNaN(difference) ? Infinity : difference;
}

/**
 * @param {Tensor} tensor
 * @returns {boolean} whether it holds whole numbers or truth values: equal, or not
 */
function isWhole(tensor) {
  return /^(u?int|bool)/.test(tensor.type);
}

/**
 * A linear congruential generator; its upper bits are random enough to fill tensors.
 *
 * @param {number} seed
 * @returns {() => number} uniform in [0, 1)
 */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/**
 * @param {Tensor} tensor
 * @returns {ArrayLike<number | bigint>} its numbers
 */
function numbers(tensor) {
  // Without Float16Array, the runtime hands out the bits.
  if (tensor.type === 'float16' && tensor.data instanceof Uint16Array) throw noFloat16();
  return tensor.data;
}

/** @returns {Error} */
function noFloat16() {
  return new Error('this engine has no Float16Array, which a float16 input or output needs');
}
