import { Budget } from "../../scheduler/constraint/error.ts";

/** Steps of a compiler's work that take about a millisecond. */
const STEPS_OF_MS = 2500;
/** Of its time, what a thread works for long. */
const SHARE = 0.1;
/** Milliseconds of work that may be done at once after a rest. */
const SAVED_MS_MAX = 50;

/**
 * A thread's pace: what takes some milliseconds now and then it does at once, and what takes long, or comes all the time, in a tenth of
 * its time. Beside engines that compute on all cores a lower priority would not do (decision 0080).
 */
export class Pace {
  readonly #nowMs: () => number;
  readonly #sleep: (ms: number) => void;
  /** Of work that may be done at once, when it was last looked at. Below zero: so much too much has been done. */
  #savedMs = SAVED_MS_MAX;
  #seenMs: number;

  constructor(nowMs = () => performance.now(), sleep = sleepFor) {
    this.#nowMs = nowMs;
    this.#sleep = sleep;
    this.#seenMs = nowMs();
  }

  /** Work has been done that takes so long where nobody else wants the core. Sleeps if that was too much. */
  worked(ms: number): void {
    this.#savedMs = this.#rested() - ms;
    if (this.#savedMs < 0) this.#sleep(-this.#savedMs / SHARE);
  }

  #rested(): number {
    const nowMs = this.#nowMs();
    const rested = this.#savedMs + SHARE * (nowMs - this.#seenMs);
    this.#seenMs = nowMs;
    return Math.min(rested, SAVED_MS_MAX);
  }
}

/** A budget whose steps are done at a pace. */
export class PacedBudget extends Budget {
  readonly #pace: Pace;
  #told = 0;

  constructor(steps: number, pace: Pace) {
    super(steps);
    this.#pace = pace;
  }

  override spend(steps: number): void {
    super.spend(steps);
    const since = this.spent - this.#told;
    if (since < STEPS_OF_MS) return;
    this.#told = this.spent;
    this.#pace.worked(since / STEPS_OF_MS);
  }
}

const never = new Int32Array(new SharedArrayBuffer(4));
function sleepFor(ms: number): void {
  Atomics.wait(never, 0, 0, ms);
}
