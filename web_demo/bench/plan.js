/**
 * @file From what a person ticks to cases, and to the runs in which they take turns.
 */

import { isBaseline, sequenceLimit } from '../shared/catalogue.js';

/** @typedef {import('../shared/catalogue.js').ArtifactEntry} ArtifactEntry */
/** @typedef {import('../shared/catalogue.js').Variant} Variant */
/** @typedef {import('../shared/device.js').DeviceInfo} DeviceInfo */

/**
 * @typedef {object} Case
 * @property {string} artifact
 * @property {string} variant
 * @property {'browser'} runtime
 * @property {number} threads
 * @property {number} batch
 * @property {number} sequence
 * @property {string} browser
 */

/**
 * One case of a run: which file, and the size of each symbolic dimension.
 *
 * @typedef {object} Arm
 * @property {Case} case
 * @property {ArtifactEntry} artifact
 * @property {Variant} variant
 * @property {Record<string, number>} sizes
 */

/** @typedef {{ arms: Arm[] }} Run cases that take turns: they differ in the file alone */

/**
 * @typedef {object} Choice
 * @property {Variant[]} variants
 * @property {number[]} threads
 * @property {number[]} sequences
 */

const DEFAULT_SEQUENCE = 128;

/** Variants that tell what sharing gives, and are measured unless somebody says otherwise. */
export const USUAL_VARIANTS = ['int8', 'fp32', 'baseline'];

/** Bytes of the runtime itself, and for each byte of the file: its content and what it becomes. */
const WORKER_BYTES = 30e6;
const BYTES_PER_FILE_BYTE = 4;

/**
 * Memory that one worker is expected to take.
 *
 * @param {Variant} variant
 * @returns {number}
 */
export function estimateBytes(variant) {
  return WORKER_BYTES + BYTES_PER_FILE_BYTE * variant.file_bytes;
}

/**
 * Memory that models may take together before the page is in danger. Phones end pages early;
 * the limits are field reports, as browsers tell none.
 *
 * @param {DeviceInfo} device
 * @returns {number}
 */
export function memoryBudget({ phone, apple, memoryBytes }) {
  if (apple) return 300e6;
  if (phone) return Math.min(800e6, (memoryBytes ?? 4e9) / 4);
  return memoryBytes ? memoryBytes * 0.4 : 2e9;
}

/**
 * Lengths that can be measured.
 *
 * @param {ArtifactEntry} artifact
 * @returns {{ offered: number[], usual: number }}
 */
export function sequenceChoices(artifact) {
  const [first] = artifact.inputs.specs;
  const fixed = first?.shape[1];
  if (typeof fixed === 'number') return { offered: [fixed], usual: fixed };
  const longest = sequenceLimit(artifact) ?? DEFAULT_SEQUENCE;
  const usual = Math.min(longest, DEFAULT_SEQUENCE);
  const offered = [16, 64, 128, 512].filter((length) => length < longest);
  return { offered: [...offered, longest], usual };
}

/** @returns {number[]} thread counts that this page can have */
export function threadChoices() {
  if (!globalThis.crossOriginIsolated) return [1];
  const cores = navigator.hardwareConcurrency || 1;
  return [1, 2, 4, 8].filter((threads) => threads <= Math.max(1, cores));
}

/**
 * Plan the runs: one for each number of threads and each length, and more where the models
 * of one do not fit into memory together.
 *
 * @param {ArtifactEntry} artifact
 * @param {Choice} choice
 * @param {DeviceInfo} device
 * @returns {Run[]}
 */
export function planRuns(artifact, { variants, threads, sequences }, device) {
  const budget = memoryBudget(device);
  const groups = groupByMemory(variants, budget);
  return sequences.flatMap((sequence) =>
    threads.flatMap((count) =>
      groups.map((group) => ({
        arms: group.map((variant) => makeArm(artifact, variant, count, sequence, device)),
      })),
    ),
  );
}

/**
 * Cases that belong to a comparison and are left out, since this device would not bear them.
 *
 * @param {ArtifactEntry} artifact
 * @param {Choice} choice its variants are those that are measured
 * @param {DeviceInfo} device
 * @returns {Arm[]}
 */
export function refusedArms(artifact, { variants, threads, sequences }, device) {
  const budget = memoryBudget(device);
  const refused = artifact.variants.filter(
    (variant) =>
      USUAL_VARIANTS.includes(variant.variant) &&
      !variants.includes(variant) &&
      estimateBytes(variant) > budget,
  );
  return sequences.flatMap((sequence) =>
    threads.flatMap((count) =>
      refused.map((variant) => makeArm(artifact, variant, count, sequence, device)),
    ),
  );
}

/**
 * Divide variants so that each group fits. Each candidate is beside what it is compared with
 * as long as these two fit, since a ratio needs both in one run.
 *
 * @param {Variant[]} variants
 * @param {number} budget
 * @returns {Variant[][]}
 */
export function groupByMemory(variants, budget) {
  const need = (/** @type {Variant[]} */ group) =>
    group.reduce((total, variant) => total + estimateBytes(variant), 0);
  if (need(variants) <= budget) return variants.length ? [variants] : [];
  const reference = variants.find(({ variant }) => variant === 'baseline');
  /** @type {Variant[][]} */
  const groups = [];
  for (const variant of variants) {
    if (variant === reference) continue;
    const pair = reference && need([reference, variant]) <= budget ? [reference, variant] : [variant];
    const added = (/** @type {Variant[]} */ group) => pair.filter((one) => !group.includes(one));
    const group = groups.find((one) => need([...one, ...added(one)]) <= budget);
    if (group) group.push(...added(group));
    else groups.push(pair);
  }
  if (reference && !groups.some((group) => group.includes(reference))) groups.push([reference]);
  return groups;
}

/**
 * What a case is compared with, of those in its run: the unshared model, else the full one.
 *
 * @param {Arm} arm
 * @param {Arm[]} arms
 * @returns {Arm | null}
 */
export function referenceOf(arm, arms) {
  const names = isBaseline(arm.case.variant) ? ['baseline'] : ['baseline', 'fp32'];
  const found = names
    .map((name) => arms.find(({ case: { variant } }) => variant === name))
    .find(Boolean);
  return found && found !== arm ? found : null;
}

/**
 * @param {ArtifactEntry} artifact
 * @param {Variant} variant
 * @param {number} threads
 * @param {number} sequence
 * @param {DeviceInfo} device
 * @returns {Arm}
 */
function makeArm(artifact, variant, threads, sequence, { browser }) {
  const { specs } = artifact.inputs;
  const symbols = specs.flatMap(({ shape }) => shape.filter((size) => typeof size === 'string'));
  const sizes = Object.fromEntries(
    symbols.map((symbol) => [symbol, symbol === 'batch' ? 1 : sequence]),
  );
  const rows = specs[0]?.shape[0];
  return {
    artifact,
    variant,
    sizes,
    case: {
      artifact: artifact.name,
      variant: variant.variant,
      runtime: 'browser',
      threads,
      batch: typeof rows === 'number' ? rows : 1,
      sequence,
      browser,
    },
  };
}
