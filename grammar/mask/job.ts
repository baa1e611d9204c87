import { BrokenOff, Budget } from "../error.ts";

/** Work that can be cut anywhere: it yields where its budget is paused. */
export type Pieces<Value> = Generator<undefined, Value>;

/** Work that cannot be cut, but remembers what it finds out and so can be begun again where it is broken off. */
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

/** Work that is done a piece at a time, so that no step waits for all of it. */
export class Job<Value> {
  readonly #budget: Budget;
  readonly #pieces: Pieces<Value>;
  readonly #ended: (value: Value | null) => void;

  /** Of `stepsMax` steps at most. `ended` is told what came of it; null: it is too much work. */
  constructor(
    stepsMax: number,
    work: (budget: Budget) => Pieces<Value>,
    ended: (value: Value | null) => void,
  ) {
    this.#budget = new Budget(stepsMax);
    this.#pieces = work(this.#budget);
    this.#ended = ended;
  }

  /** Steps of work so far. */
  get spent(): number {
    return this.#budget.spent;
  }

  /** Does so many steps of work, or a few more. Null: there is more to do. Throws ConstraintError when all of it is too
   *  much. */
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
