import { fail } from "./errors.ts";

/** Limits of one rendering, far above honest use. */
export interface RenderLimits {
  /** Evaluated nodes of the template's syntax tree, and items that filters and operators visit. */
  readonly stepsMax: number;
  /** UTF-16 units of any one intermediate text, the result included. */
  readonly lengthMax: number;
  /** UTF-16 units of all intermediate texts together. */
  readonly textMax: number;
  /** Depth of nested nodes, macros that call macros included. */
  readonly depthMax: number;
}

export const defaultLimits: RenderLimits = {
  stepsMax: 10_000_000,
  lengthMax: 64 * 1024 * 1024,
  textMax: 512 * 1024 * 1024,
  depthMax: 600,
};

/** Steps between two checks of `isWanted`. */
const LOOK_EVERY_STEPS = 4096;

/** Counts the cost of one rendering. Stops it at the limits, or when it is cancelled. */
export class Budget {
  readonly limits: RenderLimits;
  readonly #isWanted: () => boolean;
  #steps = 0;
  #text = 0;
  #depth = 0;

  constructor(limits: RenderLimits, isWanted: () => boolean) {
    this.limits = limits;
    this.#isWanted = isWanted;
  }

  spend(steps: number): void {
    const looks = Math.floor(this.#steps / LOOK_EVERY_STEPS);
    this.#steps += steps;
    if (Math.floor(this.#steps / LOOK_EVERY_STEPS) > looks && !this.#isWanted())
      fail("LimitError", "nobody waits for what the chat template writes");
    if (this.#steps > this.limits.stepsMax) {
      fail("LimitError", `the chat template took more than ${this.limits.stepsMax} operations`);
    }
  }

  /** Charges a text before it is made; `added` of its length needs new memory. */
  text(length: number, added = length): void {
    const { lengthMax, textMax } = this.limits;
    if (length > lengthMax)
      fail("LimitError", `the chat template made a text of more than ${lengthMax} characters`);
    this.#text += added;
    if (this.#text > textMax)
      fail("LimitError", `the chat template made texts of more than ${textMax} characters in all`);
  }

  enter(): void {
    if (++this.#depth > this.limits.depthMax)
      fail("LimitError", `the chat template recurses too deep: more than ${this.limits.depthMax} levels`);
  }

  leave(): void {
    this.#depth--;
  }
}
