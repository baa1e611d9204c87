import type { TokenId } from "../../base/token.ts";
import { GramIndex } from "./gram-index.ts";

/** Lengths of the suffixes that are looked up: the selective one first. */
const ORDERS = [6, 2] as const;
/** Most places that are compared per suffix, the latest first. */
const PLACES_MAX = 24;
/** Longest match that is told from a longer one. */
export const MATCH_MAX = 64;
/** Most tokens that one call reads, for which it takes less than a millisecond: a long text takes several calls. */
const READ_MAX = 4096;
/** Stands where a text has ended: no token. */
export const END = -1;

/** Places of a text whose tokens before match the end of another, with the lengths of the matches. */
export interface Match {
  readonly places: readonly number[];
  readonly lengths: readonly number[];
  readonly longest: number;
}

/**
 * A text, and its places by the tokens before them. Two indexes of short suffixes take the place of a tree:
 * they cost the same per token however long the text is, and the places that they give are compared token by
 * token. Memory is at most 32 bytes per token beside the text.
 */
export class SuffixText {
  readonly #indexes = ORDERS.map((order) => new GramIndex(order));
  #tokens: Int32Array = new Int32Array(0);
  #length = 0;

  /** Number of its tokens that are read. */
  get length(): number {
    return this.#length;
  }

  /** Reads on in the first `length` of `tokens`, of which those it has read are the same. False: more is left. */
  read(tokens: Int32Array, length: number): boolean {
    const end = Math.min(length, this.#length + READ_MAX);
    // The place behind the last token has nothing that follows.
    for (const index of this.#indexes) index.add(tokens, this.#length, end);
    this.#tokens = tokens;
    this.#length = end;
    return end === length;
  }

  /** The token at a place; `END` behind the last one. */
  at(place: number): TokenId {
    return place < this.#length ? this.#tokens[place]! : END;
  }

  /**
   * Finds places that follow what the first `end` of `tokens` end with; null: none. `followed`: a place that
   * counts however short its match is; -1: there is none.
   */
  match(tokens: Int32Array, end: number, followed: number): Match | null {
    const places: number[] = [];
    const lengths: number[] = [];
    const add = (place: number, least: number): void => {
      const length = this.#matchAt(place, tokens, end);
      if (length < least || places.includes(place)) return;
      places.push(place);
      lengths.push(length);
    };
    if (followed >= 0 && followed < this.#length) add(followed, 0);
    for (const index of this.#indexes) {
      let place = index.first(tokens, end);
      for (let tried = 0; place >= 0 && tried < PLACES_MAX; tried++) {
        add(place, index.order);
        place = index.next(place);
      }
      if (places.length > 0) return { places, lengths, longest: Math.max(...lengths) };
    }
    return null;
  }

  /** Number of equal tokens before a place and at the end of `tokens`. */
  #matchAt(place: number, tokens: Int32Array, end: number): number {
    const text = this.#tokens;
    const most = Math.min(place, end, MATCH_MAX);
    let length = 0;
    while (length < most && text[place - 1 - length] === tokens[end - 1 - length]) length += 1;
    return length;
  }
}
