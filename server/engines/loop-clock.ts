import type { Cancel, Clock } from "../../base/clock.ts";

interface Timer {
  readonly dueMs: number;
  readonly run: () => void;
}

/**
 * Clock of a thread that never returns to its event loop: monotonic time, and timers that run when the loop
 * asks for them. Timers due at the same moment run in the order they were set.
 *
 * Time is constant within a turn of the loop, so all decisions of a turn share one time. A recording
 * therefore needs one number per turn for exact replay (scheduler/recording/recorder.ts).
 */
export class LoopClock implements Clock {
  /** Timers in the order in which they were set. */
  readonly #timers = new Set<Timer>();
  readonly #now: () => number;
  #turnMs: number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#turnMs = now();
  }

  /** Begins a turn: reads the time, which stays constant until the next turn. */
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

  /** Runs the timers that are due in this turn; timers set by them wait for the next call. */
  runDue(): void {
    if (this.#timers.size === 0) return;
    const due = [...this.#timers].filter(({ dueMs }) => dueMs <= this.#turnMs);
    for (const timer of due.sort((a, b) => a.dueMs - b.dueMs)) if (this.#timers.delete(timer)) timer.run();
  }

  /** Milliseconds until the next timer, 0 if one is due, infinite if there is none. */
  msUntilNext(): number {
    const nextMs = Math.min(...[...this.#timers].map(({ dueMs }) => dueMs));
    return Math.max(0, nextMs - this.#now());
  }
}
