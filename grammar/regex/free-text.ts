import { pairOf, type Regex } from "./shape.ts";
import type { ExpressionTable } from "./tables.ts";

/** Most bytes of a character in JSON, such as \\u001f. */
const CHARACTER_BYTES_MAX = 6;
/** Alternative encodings of a character that are compared at most. */
const WAYS_MAX = 64;

/**
 * Recognizes free text (the star of some expression) and expressions whose matches are all free text. A
 * search for a word anywhere ends with free text, so its state forgets the word once it has been found.
 */
export class FreeText {
  readonly #expressions: ExpressionTable;
  /** Results of `isWithin`, by the numbers of both expressions. */
  readonly #within = new Map<number, boolean>();
  /** Results of `#areTimes` and of `#isSubset`, by the numbers of both expressions. */
  readonly #times = new Map<number, boolean>();
  readonly #subsets = new Map<number, boolean>();

  constructor(expressions: ExpressionTable) {
    this.#expressions = expressions;
  }

  /**
   * Expression repeated in free text, which is a star and perhaps a byte that ends it. Null for other
   * expressions.
   */
  timesOf(free: Regex): Regex | null {
    const expressions = this.#expressions;
    if (expressions.kindOf(free) !== "cat")
      return expressions.isStar(free) ? expressions.partOf(free, 0) : null;
    const isEnded = expressions.kindOf(expressions.partOf(free, 1)) === "set";
    return isEnded ? this.timesOf(expressions.partOf(free, 0)) : null;
  }

  /** True if every match is a match of `free`. False also where a quick check cannot decide. */
  isWithin(regex: Regex, free: Regex): boolean {
    const passed: number[] = [];
    let isWithin: boolean | undefined;
    for (let at = regex; isWithin === undefined; ) {
      const key = pairOf(free, at);
      isWithin = this.#within.get(key);
      if (isWithin !== undefined) break;
      passed.push(key);
      const shape = this.#expressions.shapeOf(at);
      // A loop instead of recursion, as texts are long.
      if (shape.kind === "cat" && at !== free && this.#areTimes(shape.head, this.timesOf(free)!))
        at = shape.tail;
      else isWithin = this.#endsWithin(at, free);
    }
    for (const key of passed) this.#within.set(key, isWithin);
    return isWithin;
  }

  #endsWithin(regex: Regex, free: Regex): boolean {
    const shape = this.#expressions.shapeOf(free);
    if (regex === free) return true;
    if (shape.kind === "cat") return regex === shape.tail;
    return this.#areTimes(regex, this.timesOf(free)!);
  }

  /** True if every match is a sequence of matches of `of`. False also where a quick check cannot decide. */
  #areTimes(regex: Regex, of: Regex): boolean {
    const key = pairOf(of, regex);
    let areTimes = this.#times.get(key);
    if (areTimes === undefined) {
      const shape = this.#expressions.shapeOf(regex);
      areTimes = regex === this.#expressions.epsilon || this.#isSubset(regex, of, CHARACTER_BYTES_MAX);
      if (shape.kind === "repeat") areTimes ||= this.#areTimes(shape.of, of);
      if (shape.kind === "alt") areTimes ||= shape.parts.every((part) => this.#areTimes(part, of));
      this.#times.set(key, areTimes);
    }
    return areTimes;
  }

  /** True if every match is a match of `whole`, both being characters of at most `bytes` more bytes. */
  #isSubset(regex: Regex, whole: Regex, bytes: number): boolean {
    if (regex === whole) return true;
    const a = this.#expressions.shapeOf(regex);
    const b = this.#expressions.shapeOf(whole);
    if (a.kind === "set" && b.kind === "set")
      return a.set.every((word, index) => (word & ~b.set[index]!) === 0);
    const key = pairOf(whole, regex);
    let isSubset = this.#subsets.get(key);
    if (isSubset === undefined) {
      isSubset = this.#goesOnWithin(regex, whole, bytes);
      this.#subsets.set(key, isSubset);
    }
    return isSubset;
  }

  #goesOnWithin(regex: Regex, whole: Regex, bytes: number): boolean {
    const a = this.#expressions.shapeOf(regex);
    const b = this.#expressions.shapeOf(whole);
    if (a.kind === "alt") return a.parts.every((part) => this.#isSubset(part, whole, bytes));
    if (b.kind === "alt")
      return b.parts.length <= WAYS_MAX && b.parts.some((part) => this.#isSubset(regex, part, bytes));
    if (a.kind !== "cat" || bytes === 1) return false;
    const isTail = (tail: Regex): boolean => this.#isSubset(a.tail, tail, bytes - 1);
    if (b.kind === "cat") return this.#isSubset(a.head, b.head, 1) && isTail(b.tail);
    if (b.kind !== "repeat" || b.min < 2 || b.min !== b.max) return false;
    return this.#isSubset(a.head, b.of, 1) && isTail(this.#expressions.repeat(b.of, b.min - 1, b.min - 1));
  }
}
