import { Budget, ConstraintError } from "../../grammar/error.ts";

/**
 * Compiler steps between two clock readings. Steps differ widely in time, most of all in code that is not
 * optimised yet.
 */
const LOOK_STEPS = 500;
/** Share of time that a busy thread may work in the long run. */
const SHARE = 0.1;
/** Milliseconds of work saved up during rest at most. */
const SAVED_MS_MAX = 50;

/**
 * Throttle of a thread as a token bucket: short, rare work runs at once. Long or constant work gets a tenth
 * of the time. A lower priority alone does not protect engines that compute on all cores (decision 0080).
 */
export class Pace {
  readonly #nowMs: () => number;
  readonly #spentMs: () => number;
  readonly #sleep: (ms: number) => void;
  /** Milliseconds of work still allowed at the last check; negative after too much work. */
  #savedMs = SAVED_MS_MAX;
  #seenMs: number;
  #seenSpentMs: number;

  /** `spentMs`: processor time of this thread, without waits for a core. */
  constructor(nowMs = () => performance.now(), spentMs = threadMs, sleep = sleepFor) {
    this.#nowMs = nowMs;
    this.#spentMs = spentMs;
    this.#sleep = sleep;
    this.#seenMs = nowMs();
    this.#seenSpentMs = spentMs();
  }

  /** Excludes the work since the last check: no engine needed the core. */
  skip(): void {
    this.#seenMs = this.#nowMs();
    this.#seenSpentMs = this.#spentMs();
  }

  /** Checks the budget and sleeps if it is overdrawn. The worker calls it regularly. */
  keep(): void {
    const [nowMs, spentMs] = [this.#nowMs(), this.#spentMs()];
    const restedMs = SHARE * (nowMs - this.#seenMs);
    this.#savedMs = Math.min(this.#savedMs + restedMs, SAVED_MS_MAX) - (spentMs - this.#seenSpentMs);
    this.#seenMs = nowMs;
    this.#seenSpentMs = spentMs;
    if (this.#savedMs < 0) this.#sleep(-this.#savedMs / SHARE);
  }
}

/** A step budget of limited processor time that can throttle its thread. */
export class TimedBudget extends Budget {
  readonly #msMax: number;
  readonly #pace: Pace | null;
  readonly #spentMs: () => number;
  readonly #beganMs: number;
  #lookAt = LOOK_STEPS;

  /** `pace` null: the thread is not throttled. `spentMs`: as of `Pace`. */
  constructor(steps: number, msMax: number, pace: Pace | null, spentMs = threadMs) {
    super(steps);
    this.#msMax = msMax;
    this.#pace = pace;
    this.#spentMs = spentMs;
    this.#beganMs = spentMs();
  }

  /** Throws ConstraintError, also if the time is over. */
  override spend(steps: number): void {
    super.spend(steps);
    if (this.spent < this.#lookAt) return;
    this.#lookAt = this.spent + LOOK_STEPS;
    if (this.#spentMs() - this.#beganMs > this.#msMax)
      throw new ConstraintError(`it takes more than ${this.#msMax} ms of processor time to compile`);
    this.#pace?.keep();
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
