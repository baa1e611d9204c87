import type { TokenId } from "../../base/token.ts";

/**
 * Hash index of a text's n-grams: lists positions by the `order` = n tokens before them, the latest first. Only
 * hashes are compared. Takes 8 to 16 bytes per token.
 */
export class NgramIndex {
  readonly order: number;
  /** Latest position by hash, plus one; 0: none. Its length is a power of two. */
  #heads: Int32Array;
  /** The position before each position with the same hash, plus one; 0: none. */
  #links: Int32Array;

  constructor(order: number) {
    this.order = order;
    this.#heads = new Int32Array(256);
    this.#links = new Int32Array(256);
  }

  /** Adds positions [begin, end) of a text whose earlier positions are known. */
  add(text: Int32Array, begin: number, end: number): void {
    if (end > this.#links.length) this.#grow(text, begin, end);
    for (let position = Math.max(begin, this.order); position < end; position++) {
      const slot = this.#slotOf(text, position);
      this.#links[position] = this.#heads[slot]!;
      this.#heads[slot] = position + 1;
    }
  }

  /** The latest position whose hash is that of the tokens before `length` in a text; -1: none. */
  first(tokens: ArrayLike<TokenId>, length: number): number {
    return length < this.order ? -1 : this.#heads[this.#slotOf(tokens, length)]! - 1;
  }

  /** The position before with the same hash; -1: none. */
  next(position: number): number {
    return this.#links[position]! - 1;
  }

  #slotOf(tokens: ArrayLike<TokenId>, position: number): number {
    let hash = 0x2545f491;
    for (let i = position - this.order; i < position; i++) {
      hash = Math.imul(hash ^ tokens[i]!, 0x21f0aaad);
      hash ^= hash >>> 15;
    }
    return hash & (this.#heads.length - 1);
  }

  #grow(text: Int32Array, begin: number, end: number): void {
    let size = this.#links.length;
    while (size < end) size *= 2;
    this.#heads = new Int32Array(size);
    this.#links = new Int32Array(size);
    this.add(text, 0, begin);
  }
}
