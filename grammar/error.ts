/**
 * Error in a constraint: unsupported, contradictory, or too much work. The caller that compiles it turns it
 * into a refusal for the client; no part of a constraint is ever silently dropped.
 */
export class ConstraintError extends Error {
  override readonly name = "ConstraintError";

  /** `pointer` is the JSON pointer of the fault inside the schema ("#/properties/a"), "" without one. */
  constructor(
    message: string,
    readonly pointer = "",
  ) {
    super(message);
  }
}

/** Interruption of work that must be restarted after a pause. */
export class BrokenOff extends Error {
  override readonly name = "BrokenOff";
}
const brokenOff = new BrokenOff("work is paused");

/** Steps of overrun after a pause until work is interrupted: the minimum progress per restart. */
const OVERDRAFT = 64;

/** Work budget in steps: counted, not timed, so that the same input always gives the same result. */
export class Budget {
  #spent = 0;
  #pauseAt = Number.POSITIVE_INFINITY;
  readonly #steps: number;

  constructor(steps: number) {
    this.#steps = steps;
  }

  /** Number of steps done. */
  get spent(): number {
    return this.#spent;
  }

  /** Requests that resumable work pauses after `steps` more steps. */
  pauseAfter(steps: number): void {
    this.#pauseAt = this.#spent + steps;
  }

  get isPaused(): boolean {
    return this.#spent >= this.#pauseAt;
  }

  /**
   * Throws BrokenOff shortly after the pause. For work that cannot resume but can restart, since its results
   * so far are cached.
   */
  breakOff(): void {
    if (this.#spent >= this.#pauseAt + OVERDRAFT) throw brokenOff;
  }

  /** Spends steps; throws ConstraintError if the budget is exceeded. */
  spend(steps: number): void {
    this.#spent += steps;
    if (this.#spent > this.#steps)
      throw new ConstraintError(`it takes more than ${this.#steps} steps of work`);
  }
}
