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

/** Work that is to be begun again after a pause. */
export class BrokenOff extends Error {
  override readonly name = "BrokenOff";
}
const brokenOff = new BrokenOff("work is paused");

/** Steps after a pause until work is broken off: so much is found out each time that it is begun again. */
const OVERDRAFT = 64;

/** Work that may still be done, in steps: counted and not timed, so that the same input always ends the same way. A step takes
 *  20 to 200 ns. */
export class Budget {
  #spent = 0;
  #pauseAt = Number.POSITIVE_INFINITY;
  readonly #steps: number;

  constructor(steps: number) {
    this.#steps = steps;
  }

  /** Steps done so far. */
  get spent(): number {
    return this.#spent;
  }

  /** Work that can be cut is to pause after so many steps more. */
  pauseAfter(steps: number): void {
    this.#pauseAt = this.#spent + steps;
  }

  get isPaused(): boolean {
    return this.#spent >= this.#pauseAt;
  }

  /** Throws BrokenOff a little after the pause: for work that cannot be cut but begun again, since what it has found out is
   *  remembered. */
  breakOff(): void {
    if (this.#spent >= this.#pauseAt + OVERDRAFT) throw brokenOff;
  }

  /** Throws ConstraintError when that is more than all. */
  spend(steps: number): void {
    this.#spent += steps;
    if (this.#spent > this.#steps)
      throw new ConstraintError(`it takes more than ${this.#steps} steps of work`);
  }
}
