import { pairOf } from "./numbers.ts";
import type { Regex } from "./shape.ts";
import type { ExpressionTable } from "./tables.ts";

/** Of a character in JSON, such as \\u001f. */
const CHARACTER_BYTES_MAX = 6;
/** Ways to write a character that are looked at. */
const WAYS_MAX = 64;

/**
 * Which expressions are free text, and which match nothing but what is such. Where a word may be found anywhere, free text comes
 * after it: so nothing need be remembered of it once it has come.
 */
export class FreeText {
  readonly #expressions: ExpressionTable;
  /** Whether an expression is within free text, by the numbers of both. */
  readonly #within = new Map<number, boolean>();
  /** What `#areTimes` and `#isSubset` found out, by the numbers of both. */
  readonly #times = new Map<number, boolean>();
  readonly #subsets = new Map<number, boolean>();

  constructor(expressions: ExpressionTable) {
    this.#expressions = expressions;
  }

  /** Of free text, which is something any number of times and perhaps a byte that ends it: what there is so often. Null: it is
   *  no such. */
  timesOf(free: Regex): Regex | null {
    const expressions = this.#expressions;
    if (expressions.kindOf(free) !== "cat")
      return expressions.isStar(free) ? expressions.partOf(free, 0) : null;
    const isEnded = expressions.kindOf(expressions.partOf(free, 1)) === "set";
    return isEnded ? this.timesOf(expressions.partOf(free, 0)) : null;
  }

  /** Whether all that it matches is matched by free text; false also where that is not seen at a glance. */
  isWithin(regex: Regex, free: Regex): boolean {
    const passed: number[] = [];
    let isWithin: boolean | undefined;
    for (let at = regex; isWithin === undefined; ) {
      const key = pairOf(free, at);
      isWithin = this.#within.get(key);
      if (isWithin !== undefined) break;
      passed.push(key);
      const shape = this.#expressions.shapeOf(at);
      // In a loop, as texts are long.
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

  /** Whether all that it matches is what `of` matches, any number of times. */
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

  /** Whether all that it matches is matched by the other, both being characters: so many bytes more at most. */
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
