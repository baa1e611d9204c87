import type { TokenId } from "../../base/token.ts";
import { NgramIndex } from "./ngram-index.ts";

/** Lengths of the suffixes that are looked up: the selective one first. */
const ORDERS = [6, 2] as const;
/** Candidate positions compared per suffix at most, the latest first. */
const POSITIONS_MAX = 24;
/** Match length at which comparison stops: longer matches count as this long. */
export const MATCH_MAX = 64;
/** Tokens that one `extend` indexes at most, to bound the time of a step's planning. */
const EXTEND_MAX = 4096;
/** Sentinel behind the end of a text: not a token. */
export const END = -1;

/** Positions of a text behind a copy of the sequence's end. `lengths[i]`: number of equal tokens before `positions[i]`. */
export interface Match {
  readonly positions: readonly number[];
  readonly lengths: readonly number[];
  readonly longest: number;
}

/**
 * A text with an index of its positions by the tokens before them. It replaces the suffix tree of SuffixDecoding
 * by two n-gram indexes: an added token costs O(1), and candidate positions are compared token by token. Takes
 * at most 32 bytes per token besides the text.
 */
export class SuffixText {
  readonly #indexes = ORDERS.map((order) => new NgramIndex(order));
  #tokens: Int32Array = new Int32Array(0);
  #length = 0;

  /** Number of indexed tokens. */
  get length(): number {
    return this.#length;
  }

  /**
   * Indexes further tokens of the first `length` of `tokens`, whose indexed part must be unchanged. False: some
   * are left for the next call.
   */
  extend(tokens: Int32Array, length: number): boolean {
    const end = Math.min(length, this.#length + EXTEND_MAX);
    // Position `end` is left out: no token follows it yet.
    for (const index of this.#indexes) index.add(tokens, this.#length, end);
    this.#tokens = tokens;
    this.#length = end;
    return end === length;
  }

  /** The token at a position; `END` behind the last one. */
  at(position: number): TokenId {
    return position < this.#length ? this.#tokens[position]! : END;
  }

  /**
   * Finds positions behind a copy of the last tokens before `end`; null: none. `followed`: a candidate that counts
   * however short its match is; -1: there is none.
   */
  match(tokens: Int32Array, end: number, followed: number): Match | null {
    const positions: number[] = [];
    const lengths: number[] = [];
    const add = (position: number, least: number): void => {
      const length = this.#matchAt(position, tokens, end);
      if (length < least || positions.includes(position)) return;
      positions.push(position);
      lengths.push(length);
    };
    if (followed >= 0 && followed < this.#length) add(followed, 0);
    for (const index of this.#indexes) {
      let position = index.first(tokens, end);
      for (let tried = 0; position >= 0 && tried < POSITIONS_MAX; tried++) {
        add(position, index.order);
        position = index.next(position);
      }
      if (positions.length > 0) return { positions, lengths, longest: Math.max(...lengths) };
    }
    return null;
  }

  /** Number of equal tokens before a position and at the end of `tokens`. */
  #matchAt(position: number, tokens: Int32Array, end: number): number {
    const text = this.#tokens;
    const most = Math.min(position, end, MATCH_MAX);
    let length = 0;
    while (length < most && text[position - 1 - length] === tokens[end - 1 - length]) length += 1;
    return length;
  }
}
