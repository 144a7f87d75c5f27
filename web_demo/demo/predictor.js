/**
 * @file Asks the model about what is typed: one question at a time, and of those that come
 * meanwhile only the latest.
 */

/** @typedef {import('../measure/tensors.js').TensorData} TensorData */
/** @typedef {import('../measure/core.js').Computed} Computed */

/**
 * @template Question
 */
export class Predictor {
  /** @type {{ question: Question } | null} */
  #next = null;

  /** @type {Promise<void> | null} */
  #working = null;

  #ask;

  #show;

  /**
   * @param {(question: Question) => Promise<Computed>} ask
   * @param {(question: Question, computed: Computed) => void} show only called with answers
   *   to questions that were not overtaken, in their order
   */
  constructor(ask, show) {
    this.#ask = ask;
    this.#show = show;
  }

  /**
   * Ask; resolves when there is nothing left to ask.
   *
   * @param {Question} question
   * @returns {Promise<void>}
   */
  ask(question) {
    this.#next = { question };
    this.#working ??= this.#work().finally(() => {
      this.#working = null;
    });
    return this.#working;
  }

  async #work() {
    while (this.#next) {
      const { question } = this.#next;
      this.#next = null;
      const computed = await this.#ask(question);
      if (!this.#next) this.#show(question, computed);
    }
  }
}
