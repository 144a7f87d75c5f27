/**
 * @file The memory that WebAssembly code of this realm allocates.
 *
 * onnxruntime-web keeps its heap to itself. It constructs `WebAssembly.Memory`, so a subclass
 * put in its place before the runtime is imported sees every heap, and can declare a smaller
 * maximum: the runtime declares 4 GiB of shared memory, which some phones refuse outright.
 */

const PAGE_BYTES = 65536;

/** @type {WebAssembly.Memory[]} */
const memories = [];

/**
 * Watch the memories made from now on. Call it once, before the runtime is imported.
 *
 * @param {number} [maximumBytes] largest size a heap may declare; as the runtime asks where
 *   not given.
 */
export function watchMemory(maximumBytes) {
  const Original = WebAssembly.Memory;
  WebAssembly.Memory = class extends Original {
    /** @param {WebAssembly.MemoryDescriptor} descriptor */
    constructor(descriptor) {
      const asked = descriptor.maximum;
      const pages = Math.floor((maximumBytes ?? Infinity) / PAGE_BYTES);
      const limited = asked !== undefined && pages < asked;
      super(limited ? { ...descriptor, maximum: Math.max(pages, descriptor.initial) } : descriptor);
      memories.push(this);
    }
  };
}

/**
 * Size of the heap now. It grows, and never shrinks.
 *
 * @returns {number | null} bytes; null before the runtime has started
 */
export function heapBytes() {
  return memories.length ? Math.max(...memories.map((memory) => memory.buffer.byteLength)) : null;
}
