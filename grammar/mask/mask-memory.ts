import type { Mask } from "./vocabulary.ts";

/**
 * Masks that nobody needs any more, to be written again. Thousands are made in a second, and each is large: left to the
 * collection of garbage they would hold a step up by milliseconds now and then.
 */
export class MaskMemory {
  readonly #words: number;
  readonly #free: Mask[] = [];

  /** Of masks for so many tokens. */
  constructor(tokens: number) {
    this.#words = Math.ceil(tokens / 32);
  }

  /** Of one mask. */
  get bytes(): number {
    return 4 * this.#words;
  }

  /** A mask without a token. */
  none(): Mask {
    return this.#free.pop()?.fill(0) ?? new Uint32Array(this.#words);
  }

  copyOf(mask: Mask): Mask {
    const copy = this.#free.pop() ?? new Uint32Array(this.#words);
    copy.set(mask);
    return copy;
  }

  /** Takes back what nobody looks at any more. */
  giveBack(...masks: readonly Mask[]): void {
    this.#free.push(...masks);
  }
}
