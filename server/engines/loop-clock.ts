import type { Cancel, Clock } from "../../base/clock.ts";

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
  /** In the order in which they were set. */
  readonly #timers = new Set<Timer>();
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
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Runs the timers that are due in this turn; those they set wait for the next call. */
  runDue(): void {
    if (this.#timers.size === 0) return;
    const due = [...this.#timers].filter(({ dueMs }) => dueMs <= this.#turnMs);
    for (const timer of due.sort((a, b) => a.dueMs - b.dueMs)) if (this.#timers.delete(timer)) timer.run();
  }

  /** Milliseconds until the next timer, 0 when it is due; infinite when there is none. */
  msUntilNext(): number {
    const nextMs = Math.min(...[...this.#timers].map(({ dueMs }) => dueMs));
    return Math.max(0, nextMs - this.#now());
  }
}
