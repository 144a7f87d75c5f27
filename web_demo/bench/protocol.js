/**
 * @file One interleaved run: every case in a worker of its own, taking turns run by run.
 *
 * All workers of a session are alive together and run A B A B …, so that drift of the device's
 * speed meets all alike, and sample *i* of one was taken next to sample *i* of the others. A
 * session starts fresh workers, warms them up until all are steady, and measures. A worker that
 * fails ends its case, not the run.
 */

import { Stopped } from '../shared/model-worker.js';
import { problemOf } from '../shared/problems.js';
import { Outcome } from './records.js';

/** @typedef {import('./plan.js').Arm} Arm */
/** @typedef {import('../shared/loading.js').Loaded} Loaded */
/** @typedef {import('../shared/loading.js').LoadProgress} LoadProgress */

/**
 * @typedef {object} Effort
 * @property {number} sessions fresh workers of each case, one after the other
 * @property {number} minRuns steady runs of each case, over all sessions
 * @property {number} minSeconds and for at least so long, over all sessions
 * @property {number} warmUp runs before the first that counts, in each session
 */

/**
 * What the run needs from the page.
 *
 * @typedef {object} Surroundings
 * @property {AbortSignal} signal
 * @property {(arm: Arm, thorough: boolean,
 *   onProgress: (progress: LoadProgress) => void) => Promise<Loaded>} open
 * @property {(words: string, share: number) => void} tell what is done, and how much of the run
 * @property {() => Promise<boolean>} whileVisible waits until the page is seen; whether it was
 *   hidden since the last call
 * @property {(outcome: Outcome | null) => void} danger the case that may end the page now
 * @property {() => void} changed something of the outcomes is new
 */

/** @typedef {{ outcome: Outcome, worker: Loaded['worker'] }} Pair */

const STABLE_RUNS = 3;
const WITHIN = 0.1;
const MAXIMUM_ROUNDS = 30;
const FEWEST_KEPT = 3;

/**
 * Whether three runs in a row were within 10 % of each other, after `minimum` in all.
 *
 * @param {number[]} samples
 * @param {number} minimum
 * @returns {boolean}
 */
export function isStable(samples, minimum) {
  if (samples.length < Math.max(minimum, STABLE_RUNS)) return false;
  return samples.some((_, start) => {
    const window = samples.slice(start, start + STABLE_RUNS);
    if (window.length < STABLE_RUNS) return false;
    return Math.max(...window) <= Math.min(...window) * (1 + WITHIN);
  });
}

export class RunProtocol {
  #effort;

  #around;

  /**
   * @param {Arm[]} arms
   * @param {Effort} effort
   * @param {Surroundings} around
   */
  constructor(arms, effort, around) {
    this.#effort = effort;
    this.#around = around;
    /** One for each case, complete or as far as measuring came. */
    this.outcomes = arms.map((arm) => new Outcome(arm));
  }

  /** Fill `outcomes`. Stopping keeps what there is, marked. */
  async measure() {
    try {
      for (let index = 0; index < this.#effort.sessions; index += 1) {
        if (this.#alive().length) await this.#session(index);
      }
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      for (const outcome of this.#alive()) outcome.flags.add('interrupted');
    } finally {
      this.#around.danger(null);
    }
  }

  /** @returns {Outcome[]} */
  #alive() {
    return this.outcomes.filter(({ error }) => error === null);
  }

  /** @param {number} index */
  async #session(index) {
    /** @type {Pair[]} */
    const pairs = [];
    try {
      for (const outcome of this.#alive()) {
        const worker = await this.#open(index, outcome);
        if (worker) pairs.push({ outcome, worker });
      }
      // While all are alive, the largest is what memory runs out for.
      this.#around.danger(largest(pairs));
      await this.#warmUp(index, pairs);
      await this.#takeTurns(index, pairs);
      for (const pair of pairs) {
        await this.#guarded(pair, async () => {
          pair.outcome.memories.push(await pair.worker.memory());
        });
      }
    } finally {
      for (const { worker } of pairs) worker.close();
      this.#around.changed();
    }
  }

  /**
   * @param {number} index
   * @param {Outcome} outcome
   * @returns {Promise<Loaded['worker'] | null>}
   */
  async #open(index, outcome) {
    const { variant } = outcome.arm.case;
    this.#around.danger(outcome);
    this.#say(index, 0, `loading ${variant}`);
    try {
      const { worker, opened } = await this.#around.open(outcome.arm, index === 0, (progress) => {
        this.#say(index, 0.1, `${variant}: ${progress.words.toLowerCase()}`);
      });
      outcome.sessions.push({ ...opened, startMs: worker.startMs, ready: worker.ready });
      return worker;
    } catch (error) {
      this.#note(outcome, error);
      return null;
    } finally {
      this.#around.changed();
    }
  }

  /**
   * Run all in turns until each has been steady; the steady ones are kept warm.
   *
   * @param {number} index
   * @param {Pair[]} pairs
   */
  async #warmUp(index, pairs) {
    const { warmUp } = this.#effort;
    const taken = new Map(pairs.map(({ outcome }) => [outcome, /** @type {number[]} */ ([])]));
    let unsteady = pairs;
    for (let round = 0; unsteady.length && round < Math.max(MAXIMUM_ROUNDS, warmUp); round += 1) {
      this.#say(index, 0.3, 'warming up');
      await this.#turn(pairs, taken);
      unsteady = pairs.filter(
        ({ outcome }) => outcome.error === null && !isStable(taken.get(outcome) ?? [], warmUp),
      );
    }
    for (const { outcome } of unsteady) outcome.flags.add('unstable warm-up');
  }

  /**
   * @param {number} index
   * @param {Pair[]} pairs
   */
  async #takeTurns(index, pairs) {
    const { sessions, minRuns, minSeconds } = this.#effort;
    const wanted = Math.ceil(minRuns / sessions);
    const milliseconds = (1000 * minSeconds) / sessions;
    const taken = new Map(pairs.map(({ outcome }) => [outcome, /** @type {number[]} */ ([])]));
    for (const { outcome } of pairs) outcome.live = taken.get(outcome) ?? [];
    const start = performance.now();
    const elapsed = () => performance.now() - start;
    try {
      for (let round = 0; round < wanted || elapsed() < milliseconds; round += 1) {
        if (!pairs.some(({ outcome }) => outcome.error === null)) break;
        const share = Math.min(1, round / wanted, elapsed() / milliseconds);
        this.#say(index, 0.4 + 0.6 * share, 'measuring');
        await this.#turn(pairs, taken);
        this.#around.changed();
      }
    } finally {
      // Cut short within a round, some have one sample more, which is next to nothing.
      const alive = pairs.filter(({ outcome }) => outcome.error === null);
      const rounds = Math.min(...alive.map(({ outcome }) => taken.get(outcome)?.length ?? 0));
      for (const { outcome } of pairs) {
        const samples = taken.get(outcome) ?? [];
        outcome.live = [];
        if (outcome.error !== null) outcome.keep(samples);
        else if (rounds >= Math.min(FEWEST_KEPT, wanted)) outcome.keep(samples.slice(0, rounds));
      }
    }
  }

  /**
   * One run of each, while the page is seen.
   *
   * @param {Pair[]} pairs
   * @param {Map<Outcome, number[]>} taken
   */
  async #turn(pairs, taken) {
    if (await this.#around.whileVisible()) {
      for (const { outcome } of pairs) outcome.flags.add('hidden tab');
    }
    if (this.#around.signal.aborted) throw new Stopped();
    for (const pair of pairs) {
      await this.#guarded(pair, async () => {
        taken.get(pair.outcome)?.push(await pair.worker.run());
      });
    }
  }

  /**
   * Do something with the worker of a case that has not failed; note it where it does.
   *
   * @param {Pair} pair
   * @param {() => Promise<void>} act
   */
  async #guarded({ outcome }, act) {
    if (outcome.error !== null) return;
    try {
      await act();
    } catch (error) {
      this.#note(outcome, error);
    }
  }

  /**
   * @param {Outcome} outcome
   * @param {unknown} error
   */
  #note(outcome, error) {
    if (error instanceof Stopped || this.#around.signal.aborted) throw new Stopped();
    const problem = problemOf(error);
    outcome.fail(problem.detail ? `${problem.message} (${problem.detail})` : problem.message);
  }

  /**
   * @param {number} session
   * @param {number} share
   * @param {string} words
   */
  #say(session, share, words) {
    const { sessions } = this.#effort;
    const part = sessions > 1 ? ` (start ${session + 1} of ${sessions})` : '';
    this.#around.tell(`${words}${part}`, (session + share) / sessions);
  }
}

/**
 * @param {Pair[]} pairs
 * @returns {Outcome | null}
 */
function largest(pairs) {
  const size = (/** @type {Pair} */ { outcome }) => outcome.arm.variant.file_bytes;
  return pairs.length ? pairs.reduce((a, b) => (size(b) > size(a) ? b : a)).outcome : null;
}
