import { BrokenOff, Budget } from "../error.ts";

/** Work that can be suspended: it yields where its budget is paused. */
export type Pieces<Value> = Generator<undefined, Value>;

/**
 * Repeats work that cannot be suspended until it is done. The work remembers its partial results, so an
 * interrupted run is resumed by calling it again.
 */
export function* again<Value>(work: () => Value): Pieces<Value> {
  for (;;) {
    try {
      return work();
    } catch (error) {
      if (!(error instanceof BrokenOff)) throw error;
    }
    yield;
  }
}

/** Does all pieces, one after the other. */
export function allAtOnce<Value>(pieces: Pieces<Value>): Value {
  for (;;) {
    const { done, value } = pieces.next();
    if (done === true) return value;
  }
}

/** Work done a piece at a time, so that no step waits for all of it. */
export class Job<Value> {
  readonly #budget: Budget;
  readonly #pieces: Pieces<Value>;
  readonly #ended: (value: Value | null) => void;

  /**
   * Limits the work to `stepsMax` steps. `ended` receives the result, or null if the work failed, as when it
   * exceeds the limit.
   */
  constructor(
    stepsMax: number,
    work: (budget: Budget) => Pieces<Value>,
    ended: (value: Value | null) => void,
  ) {
    this.#budget = new Budget(stepsMax);
    this.#pieces = work(this.#budget);
    this.#ended = ended;
  }

  /** Steps of work done. */
  get spent(): number {
    return this.#budget.spent;
  }

  /**
   * Does `steps` steps of work, or a few more. Returns null if work is left. Throws ConstraintError if it
   * exceeds its limit.
   */
  run(steps: number): Value | null {
    this.#budget.pauseAfter(steps);
    try {
      const { done, value } = this.#pieces.next();
      if (done !== true) return null;
      this.#ended(value);
      return value;
    } catch (error) {
      this.#ended(null);
      throw error;
    }
  }
}
