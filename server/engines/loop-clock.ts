import type { Cancel, Clock } from "../../scheduler/clock.ts";

interface Timer {
  readonly dueMs: number;
  readonly run: () => void;
}

/**
 * The clock of a thread that never returns to its event loop: monotonic time, and timers that run when the loop asks
 * for them. Timers due at the same moment run in the order they were set.
 *
 * Time stands still within a turn of the loop: all that is decided in one turn is decided at one time, so that a
 * recording needs one number per turn to be repeated exactly (scheduler/recording/recorder.ts).
 */
export class LoopClock implements Clock {
  readonly #timers: Timer[] = [];
  readonly #now: () => number;
  #turnMs: number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#turnMs = now();
  }

  /** Begins a turn: the time is read, and stays what it is until the next one. */
  turn(): void {
    this.#turnMs = this.#now();
  }

  nowMs(): number {
    return this.#turnMs;
  }

  after(delayMs: number, run: () => void): Cancel {
    const timer: Timer = { dueMs: this.#turnMs + Math.max(0, delayMs), run };
    const next = this.#timers.findIndex((other) => other.dueMs > timer.dueMs);
    this.#timers.splice(next === -1 ? this.#timers.length : next, 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer);
      if (index !== -1) this.#timers.splice(index, 1);
    };
  }

  /** Runs the timers that are due in this turn; those they set wait for the next call. */
  runDue(): void {
    const count = this.#timers.findIndex((timer) => timer.dueMs > this.#turnMs);
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
