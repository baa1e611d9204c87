import type { TokenId } from "../../base/token.ts";
import { hashPages } from "../cache/page-hash.ts";

/** Tokens of a block, the unit of hashes. */
const BLOCK = 64;
/** Hash before the first block. */
const FIRST = 1;

/** Tokens with hashes of their beginnings, by which two long lists are compared in few steps. */
export class HashedTokens {
  readonly values: Int32Array;
  /** Hash of everything up to the end of each whole block. */
  readonly #hashes: Float64Array;

  private constructor(values: Int32Array, hashes: Float64Array) {
    this.values = values;
    this.#hashes = hashes;
  }

  static of(tokens: ArrayLike<TokenId>): HashedTokens {
    const values = Int32Array.from(tokens);
    return new HashedTokens(values, hashPages(values, 0, Math.floor(values.length / BLOCK), BLOCK, FIRST));
  }

  get length(): number {
    return this.values.length;
  }

  /** The tokens with more behind them. */
  with(more: readonly TokenId[]): HashedTokens {
    const values = new Int32Array(this.length + more.length);
    values.set(this.values);
    values.set(more, this.length);
    const known = this.#hashes.length;
    const end = Math.floor(values.length / BLOCK);
    const hashes = new Float64Array(end);
    hashes.set(this.#hashes);
    hashes.set(hashPages(values, known, end, BLOCK, this.#hashes[known - 1] ?? FIRST), known);
    return new HashedTokens(values, hashes);
  }

  /** Number of tokens with which both begin. */
  sharedWith(other: HashedTokens): number {
    let [same, differs] = [0, Math.min(this.#hashes.length, other.#hashes.length) + 1];
    // The first `same` blocks are equal, the first `differs` are not, or are more than there are.
    while (differs - same > 1) {
      const middle = (same + differs) >> 1;
      if (this.#hashes[middle - 1] === other.#hashes[middle - 1]) same = middle;
      else differs = middle;
    }
    const end = Math.min(this.length, other.length);
    let length = same * BLOCK;
    while (length < end && this.values[length] === other.values[length]) length++;
    return length;
  }
}
