/**
 * A constraint that cannot be kept: not understood, contradictory, or more work than is allowed. The caller that compiles one turns
 * it into an answer for the client; nothing is ever left out instead.
 */
export class ConstraintError extends Error {
  override readonly name = "ConstraintError";

  /** `pointer` is the JSON pointer of what is at fault inside the schema ("#/properties/a"), "" where there is none. */
  constructor(
    message: string,
    readonly pointer = "",
  ) {
    super(message);
  }
}

/** Work that may still be done, in steps: counted and not timed, so that the same input always ends the same way. */
export class Budget {
  #left: number;
  readonly #steps: number;

  constructor(steps: number) {
    this.#left = steps;
    this.#steps = steps;
  }

  /** Throws ConstraintError when there are fewer steps left. */
  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) throw new ConstraintError(`it takes more than ${this.#steps} steps of work`);
  }
}
