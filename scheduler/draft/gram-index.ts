import type { TokenId } from "../../base/token.ts";

/** Places in a text by the `order` tokens before them, the latest first. Takes 8 to 16 bytes per token. */
export class GramIndex {
  readonly order: number;
  /** Latest place by hash, plus one; 0: none. Its length is a power of two. */
  #heads: Int32Array;
  /** The place before each place with the same hash, plus one; 0: none. */
  #links: Int32Array;

  constructor(order: number) {
    this.order = order;
    this.#heads = new Int32Array(256);
    this.#links = new Int32Array(256);
  }

  /** Adds places [begin, end) of a text whose earlier places are known. */
  add(text: Int32Array, begin: number, end: number): void {
    if (end > this.#links.length) this.#grow(text, begin, end);
    for (let place = Math.max(begin, this.order); place < end; place++) {
      const slot = this.#slotOf(text, place);
      this.#links[place] = this.#heads[slot]!;
      this.#heads[slot] = place + 1;
    }
  }

  /** The latest place whose hash is that of the tokens before `length` in a text; -1: none. */
  first(tokens: ArrayLike<TokenId>, length: number): number {
    return length < this.order ? -1 : this.#heads[this.#slotOf(tokens, length)]! - 1;
  }

  /** The place before with the same hash; -1: none. */
  next(place: number): number {
    return this.#links[place]! - 1;
  }

  #slotOf(tokens: ArrayLike<TokenId>, place: number): number {
    let hash = 0x2545f491;
    for (let i = place - this.order; i < place; i++) {
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
