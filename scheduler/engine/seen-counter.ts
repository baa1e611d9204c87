import type { TokenId } from "../../base/token.ts";
import type { SeenTokens } from "../core.ts";

/** Counts of the tokens in a sequence's prompt and output, for the repetition, presence and frequency penalties. */
export class SeenCounter implements SeenTokens {
  tokens: Int32Array;
  counts: Int32Array;
  length = 0;
  readonly #indexes = new Map<TokenId, number>();

  constructor(prompt: ArrayLike<TokenId>) {
    this.tokens = new Int32Array(256);
    this.counts = new Int32Array(256);
    for (let i = 0; i < prompt.length; i++) this.#indexOf(prompt[i]!);
  }

  /** Counts one more occurrence in the output. */
  add(token: TokenId): void {
    const index = this.#indexOf(token);
    this.counts[index]! += 1;
  }

  /** The counts with tokens [begin, end) of an array; these counts themselves if there are none. */
  with(tokens: Int32Array, begin: number, end: number): SeenTokens {
    if (begin === end) return this;
    const room = this.length + end - begin;
    const all = { tokens: new Int32Array(room), counts: new Int32Array(room), length: this.length };
    all.tokens.set(this.tokens.subarray(0, this.length));
    all.counts.set(this.counts.subarray(0, this.length));
    for (let i = begin; i < end; i++) {
      const token = tokens[i]!;
      const known = this.#indexes.get(token) ?? all.tokens.indexOf(token, this.length);
      const index = known >= 0 && known < all.length ? known : all.length++;
      all.tokens[index] = token;
      all.counts[index]! += 1;
    }
    return all;
  }

  #indexOf(token: TokenId): number {
    const known = this.#indexes.get(token);
    if (known !== undefined) return known;
    const index = this.length;
    if (index === this.tokens.length) this.#grow();
    this.tokens[index] = token;
    this.#indexes.set(token, index);
    this.length += 1;
    return index;
  }

  #grow(): void {
    const { tokens, counts } = this;
    this.tokens = new Int32Array(tokens.length * 2);
    this.counts = new Int32Array(counts.length * 2);
    this.tokens.set(tokens);
    this.counts.set(counts);
  }
}
