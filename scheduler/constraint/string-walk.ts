import type { Budget } from "./error.ts";
import type { Regex, Regexes } from "./regex/regexes.ts";
import type { Mask, Trie } from "./vocabulary.ts";

/** What is left is not known yet. */
const UNKNOWN = -1;

/**
 * A walk of the vocabulary along the rest of one string, its closing quote included: as mask-walk.ts, but by the expression
 * alone, without a parser, and several times as fast.
 */
export class StringWalk {
  /** Tokens that stay inside of the string, up to its quote at most. */
  readonly inside: Mask;
  /** Those with the quote and more after it. */
  readonly beyond: Mask;
  /** Whether those have their quote where a free string has it, so far. */
  isAlike = true;
  readonly #quoteEnd: Uint16Array;
  readonly #regexes: Regexes;
  readonly #trie: Trie;
  readonly #budget: Budget;
  /** By expression, what is left of it after each byte. */
  readonly #tables = new Map<Regex, Int32Array>();
  /** By depth: what is left, the same as a table, and where the children end. */
  readonly #rests: Regex[] = [];
  readonly #steps: Int32Array[] = [];
  readonly #ends: number[] = [];
  #depth = -1;
  #child = 1;

  /** `quoteEnd`: by token, its bytes up to the quote that would end a free string and with it. */
  constructor(regexes: Regexes, trie: Trie, quoteEnd: Uint16Array, rest: Regex, budget: Budget) {
    this.#quoteEnd = quoteEnd;
    this.inside = new Uint32Array(Math.ceil(quoteEnd.length / 32));
    this.beyond = new Uint32Array(this.inside.length);
    this.#regexes = regexes;
    this.#trie = trie;
    this.#budget = budget;
    this.#enter(rest, trie.ends[0]!);
  }

  /** Walks until its budget is paused. False: there is more to walk. */
  run(): boolean {
    const { bytes, ends } = this.#trie;
    const { empty, epsilon } = this.#regexes;
    while (this.#depth >= 0) {
      const child = this.#child;
      if (child === this.#ends[this.#depth]!) {
        this.#depth -= 1;
        continue;
      }
      if (this.#budget.isPaused) return false;
      this.#budget.spend(1);
      const end = ends[child]!;
      this.#child = end;
      const next = this.#after(bytes[child]!);
      if (next === empty) continue;
      this.#add(this.inside, child, child + 1);
      if (next === epsilon) {
        this.#add(this.beyond, child + 1, end);
        this.isAlike &&= this.#haveQuoteAt(this.#depth + 1, child + 1, end);
      } else if (end > child + 1) {
        this.#enter(next, end);
        this.#child = child + 1;
      }
    }
    return true;
  }

  #after(byte: number): Regex {
    const steps = this.#steps[this.#depth]!;
    const known = steps[byte]!;
    if (known !== UNKNOWN) return known as Regex;
    const { empty, epsilon } = this.#regexes;
    let next = this.#regexes.derivative(this.#rests[this.#depth]!, byte);
    // After its quote nothing of a string goes on.
    if (this.#regexes.isNullable(next)) next = epsilon;
    else if (this.#regexes.isEmpty(next)) next = empty;
    steps[byte] = next;
    return next;
  }

  #enter(rest: Regex, end: number): void {
    this.#depth += 1;
    let steps = this.#tables.get(rest);
    if (steps === undefined) {
      this.#budget.spend(8);
      steps = new Int32Array(256).fill(UNKNOWN);
      this.#tables.set(rest, steps);
    }
    this.#rests[this.#depth] = rest;
    this.#steps[this.#depth] = steps;
    this.#ends[this.#depth] = end;
  }

  /** Whether a free string ends after so many bytes in all tokens of nodes [from, to). */
  #haveQuoteAt(bytes: number, from: number, to: number): boolean {
    const { tokens, firstTokens } = this.#trie;
    for (let at = firstTokens[from]!; at < firstTokens[to]!; at++) {
      if (this.#quoteEnd[tokens[at]!] !== bytes) return false;
    }
    return true;
  }

  /** The tokens of nodes [from, to). */
  #add(mask: Mask, from: number, to: number): void {
    const { tokens, firstTokens } = this.#trie;
    const end = firstTokens[to]!;
    for (let at = firstTokens[from]!; at < end; at++) {
      const token = tokens[at]!;
      mask[token >>> 5]! |= 1 << (token & 31);
    }
  }
}
