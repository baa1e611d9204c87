import { Budget } from "../../grammar/error.ts";

/** Steps of a compiler's work between two looks at the clock: some take 20 ns, and some, in code that is new, 5 µs. */
const LOOK_STEPS = 500;
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
  readonly #spentMs: () => number;
  readonly #sleep: (ms: number) => void;
  /** Of work that may be done at once, when it was last looked at. Below zero: so much too much has been done. */
  #savedMs = SAVED_MS_MAX;
  #seenMs: number;
  #seenSpentMs: number;

  /** `spentMs`: of this thread's processor time; waits for a core are not in it. */
  constructor(nowMs = () => performance.now(), spentMs = threadMs, sleep = sleepFor) {
    this.#nowMs = nowMs;
    this.#spentMs = spentMs;
    this.#sleep = sleep;
    this.#seenMs = nowMs();
    this.#seenSpentMs = spentMs();
  }

  /** What was done since the last look counts for nothing: nobody else wanted the core. */
  skip(): void {
    this.#seenMs = this.#nowMs();
    this.#seenSpentMs = this.#spentMs();
  }

  /** To be called while there is work. Sleeps if too much has been done. */
  keep(): void {
    const [nowMs, spentMs] = [this.#nowMs(), this.#spentMs()];
    const restedMs = SHARE * (nowMs - this.#seenMs);
    this.#savedMs = Math.min(this.#savedMs + restedMs, SAVED_MS_MAX) - (spentMs - this.#seenSpentMs);
    this.#seenMs = nowMs;
    this.#seenSpentMs = spentMs;
    if (this.#savedMs < 0) this.#sleep(-this.#savedMs / SHARE);
  }
}

/** A budget whose steps are done at a pace. */
export class PacedBudget extends Budget {
  readonly #pace: Pace;
  #lookAt = LOOK_STEPS;

  constructor(steps: number, pace: Pace) {
    super(steps);
    this.#pace = pace;
  }

  override spend(steps: number): void {
    super.spend(steps);
    if (this.spent < this.#lookAt) return;
    this.#lookAt = this.spent + LOOK_STEPS;
    this.#pace.keep();
  }
}

function threadMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

const never = new Int32Array(new SharedArrayBuffer(4));
function sleepFor(ms: number): void {
  Atomics.wait(never, 0, 0, ms);
}
