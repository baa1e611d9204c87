import type { Cancel, Clock } from "../scheduler/clock.ts";

interface Timer {
  readonly dueMs: number;
  readonly run: () => void;
}

/**
 * The clock of a thread that never returns to its event loop: monotonic time, and timers that run when the loop asks
 * for them. Timers due at the same moment run in the order they were set.
 */
export class LoopClock implements Clock {
  readonly #timers: Timer[] = [];
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  nowMs(): number {
    return this.#now();
  }

  after(delayMs: number, run: () => void): Cancel {
    const timer: Timer = { dueMs: this.#now() + Math.max(0, delayMs), run };
    const next = this.#timers.findIndex((other) => other.dueMs > timer.dueMs);
    this.#timers.splice(next === -1 ? this.#timers.length : next, 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer);
      if (index !== -1) this.#timers.splice(index, 1);
    };
  }

  /** Runs the timers that are due now; those they set wait for the next call. */
  runDue(): void {
    const now = this.#now();
    const count = this.#timers.findIndex((timer) => timer.dueMs > now);
    const due = count === -1 ? this.#timers.length : count;
    for (const timer of this.#timers.slice(0, due)) {
      const index = this.#timers.indexOf(timer); // an earlier timer may have cancelled this one
      if (index === -1) continue;
      this.#timers.splice(index, 1);
      timer.run();
    }
  }

  /** Milliseconds until the next timer, 0 when it is due; null when there is none. */
  msUntilNext(): number | null {
    const next = this.#timers[0];
    return next === undefined ? null : Math.max(0, next.dueMs - this.#now());
  }
}
