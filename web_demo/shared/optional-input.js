/**
 * @file Opens an optional input of a model while it is downloaded.
 *
 * An ONNX graph makes an input optional by an initializer of its name. onnxruntime's web build
 * does not list such inputs, and refuses to be fed with them. Renaming the initializer takes
 * the default away, and makes the input one like any other:
 *
 *     initializer { name: "depth" }  ->  initializer { name: "Depth" }, which nothing uses
 */

/** Tag of a tensor's name in its protocol buffer: field 8, with a length. */
const NAME_TAG = 0x42;

/**
 * A stream that renames the initializer called `name`; a model without one passes unchanged.
 *
 * @param {string} name shorter than 128 bytes
 * @returns {TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>}
 */
export function openInput(name) {
  const letters = new TextEncoder().encode(name);
  const pattern = [NAME_TAG, letters.length, ...letters];
  /** The end of what came, which may be the beginning of the pattern. */
  let held = new Uint8Array(0);
  return new TransformStream({
    transform(piece, controller) {
      const bytes = new Uint8Array(held.length + piece.length);
      bytes.set(held);
      bytes.set(piece, held.length);
      const found = find(bytes, pattern);
      // The case of the first letter changes the name, and not its length.
      if (found >= 0) bytes[found + 2] ^= 0x20;
      const ready = Math.max(0, bytes.length - pattern.length + 1);
      controller.enqueue(bytes.slice(0, ready));
      held = bytes.slice(ready);
    },
    flush(controller) {
      controller.enqueue(held);
    },
  });
}

/**
 * @param {Uint8Array} bytes
 * @param {number[]} pattern
 * @returns {number} where it starts; -1 if it is not there
 */
function find(bytes, pattern) {
  let start = bytes.indexOf(pattern[0]);
  while (start >= 0 && !pattern.every((byte, index) => bytes[start + index] === byte)) {
    start = bytes.indexOf(pattern[0], start + 1);
  }
  return start;
}
