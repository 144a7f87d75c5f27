/**
 * @file What keeps a measurement honest and the page alive: a screen that stays on, a pause
 * while nobody sees the page, time to cool down, and a trace of a page that was ended.
 */

const MARKER = 'albert-export-in-danger';

/** Keeps the screen on, where the browser allows it. */
export class Wakefulness {
  /** @type {{ release: () => Promise<void> } | null} */
  #lock = null;

  #wanted = false;

  constructor() {
    // A browser drops the lock when the page is hidden.
    document.addEventListener('visibilitychange', () => {
      if (this.#wanted && !document.hidden) this.begin();
    });
  }

  async begin() {
    this.#wanted = true;
    try {
      this.#lock = (await /** @type {any} */ (navigator).wakeLock?.request('screen')) ?? null;
    } catch {
      this.#lock = null;
    }
  }

  async end() {
    this.#wanted = false;
    await this.#lock?.release().catch(() => undefined);
    this.#lock = null;
  }
}

/** Knows whether the page was hidden, and waits until it is seen. */
export class Visibility {
  #wasHidden = false;

  /** @param {(hidden: boolean) => void} onChange */
  constructor(onChange) {
    document.addEventListener('visibilitychange', () => {
      this.#wasHidden ||= document.hidden;
      onChange(document.hidden);
    });
  }

  /**
   * Wait until the page is seen.
   *
   * @param {AbortSignal} signal ends the wait too
   * @returns {Promise<boolean>} whether it was hidden since the last call
   */
  async wait(signal) {
    while (document.hidden && !signal.aborted) {
      this.#wasHidden = true;
      await new Promise((resolve) => {
        document.addEventListener('visibilitychange', resolve, { once: true });
        signal.addEventListener('abort', resolve, { once: true });
      });
    }
    const wasHidden = this.#wasHidden;
    this.#wasHidden = false;
    return wasHidden;
  }

  /** Forget what was before. */
  reset() {
    this.#wasHidden = document.hidden;
  }
}

/**
 * Wait, so that one run does not heat the next.
 *
 * @param {number} seconds
 * @param {AbortSignal} signal ends it
 * @param {(left: number) => void} tell
 */
export async function coolDown(seconds, signal, tell) {
  for (let left = seconds; left > 0 && !signal.aborted; left -= 1) {
    tell(left);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, 1000);
      signal.addEventListener('abort', () => (clearTimeout(timer), resolve(null)), { once: true });
    });
  }
}

/**
 * The trace that a page leaves while something may end it. A page that is left or reloaded on
 * purpose takes it away; one that a browser ended, mostly for its memory, cannot.
 */
export class CrashMarker {
  constructor() {
    addEventListener('pagehide', () => this.clear());
  }

  /**
   * @param {object} record what to report if this page never comes back
   */
  set(record) {
    try {
      storage()?.setItem(MARKER, JSON.stringify(record));
    } catch {
      // A full storage only means that a crash goes untold.
    }
  }

  clear() {
    storage()?.removeItem(MARKER);
  }

  /** @returns {any} the record of a page that was ended; null if none was */
  take() {
    try {
      const text = storage()?.getItem(MARKER);
      this.clear();
      return text ? JSON.parse(text) : null;
    } catch {
      return null;
    }
  }
}

/** @returns {Storage | null} null where a browser forbids it */
function storage() {
  try {
    return localStorage;
  } catch {
    return null;
  }
}
