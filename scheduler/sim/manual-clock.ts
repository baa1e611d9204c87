import type { Cancel, Clock } from "../clock.ts";
import { assert } from "../core.ts";

interface Timer {
  readonly atMs: number;
  /** Ties go in the order in which timers were set. */
  readonly order: number;
  readonly run: () => void;
}

/** A clock that only moves when told to: the same inputs give the same history on every machine. */
export class ManualClock implements Clock {
  #nowMs = 0;
  #orders = 0;
  #timers: Timer[] = [];

  nowMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, run: () => void): Cancel {
    assert(delayMs >= 0, "time does not go back");
    const timer = { atMs: this.#nowMs + delayMs, order: this.#orders, run };
    this.#orders += 1;
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Moves to the next timer and runs it; false if there is none. */
  runNext(): boolean {
    const next = this.#next();
    if (next === null) return false;
    this.#nowMs = Math.max(this.#nowMs, next.atMs);
    this.#timers = this.#timers.filter((other) => other !== next);
    next.run();
    return true;
  }

  /** Runs timers, also those that they set, until there are none. Returns how many ran; more than `most` is a
   *  bug. */
  runAll(most = 1_000_000): number {
    let count = 0;
    while (this.runNext()) {
      count += 1;
      assert(count <= most, "time goes on for ever");
    }
    return count;
  }

  /** Runs what is due within the next `ms` and ends at exactly that time. */
  advance(ms: number): void {
    const untilMs = this.#nowMs + ms;
    for (let next = this.#next(); next !== null && next.atMs <= untilMs; next = this.#next()) this.runNext();
    this.#nowMs = untilMs;
  }

  #next(): Timer | null {
    let next: Timer | null = null;
    for (const timer of this.#timers) {
      if (next === null || timer.atMs < next.atMs || (timer.atMs === next.atMs && timer.order < next.order)) {
        next = timer;
      }
    }
    return next;
  }
}
