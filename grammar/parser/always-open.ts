import type { Budget } from "../error.ts";
import { again, type Pieces } from "../mask/job.ts";
import { byteRangeOf } from "../regex/lengths.ts";
import { type Pair, Pairs } from "../regex/pairs.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import type { freeStrings } from "../regex/text.ts";

/**
 * Finds rests of strings that every character continues, so that only tokens with a quote need a walk.
 * Examples are patterns that search for a word anywhere, and property names of which each matches some
 * pattern.
 */
export class AlwaysOpen {
  readonly #regexes: Regexes;
  readonly #free: Regex;
  readonly #character: Regex;
  readonly #quote: Regex;
  /** Inside of any string, without its quote. */
  readonly #anyText: Regex;
  readonly #known = new Map<Regex, boolean>();

  constructor(regexes: Regexes, { free, character, quote }: ReturnType<typeof freeStrings>) {
    this.#regexes = regexes;
    this.#free = free;
    this.#character = character;
    this.#quote = quote;
    this.#anyText = regexes.star(character);
  }

  /** True if every character continues `rest`. False also if `steps` steps of work do not decide it. */
  *has(rest: Regex, budget: Budget, steps: number): Pieces<boolean> {
    const known = this.#known.get(rest);
    if (known !== undefined) return known;
    const settles = this.#isWithin(rest, this.#free) && this.#settles(rest);
    const isOpen = settles || (yield* this.#search(rest, budget, steps));
    this.#known.set(rest, isOpen);
    return isOpen;
  }

  /**
   * True if every text can be continued so that from then on every further text matches. The property is kept
   * by intersection: continue the text for one expression, and then for the other.
   */
  #settles(text: Regex): boolean {
    const regexes = this.#regexes;
    if (this.#isAny(text)) return true;
    const shape = regexes.shapeOf(text);
    switch (shape.kind) {
      case "repeat":
        return shape.of === this.#character && shape.max === Number.POSITIVE_INFINITY;
      case "cat":
        if (shape.tail === this.#quote) return this.#settles(shape.head);
        // Search for a word anywhere.
        return shape.head === this.#anyText && this.#endsWithAny(shape.tail) && !regexes.isBoolean(text);
      case "alt":
        return shape.parts.some((part) => this.#settles(part));
      case "and":
        return shape.parts.every((part) => this.#settles(part));
      case "not":
        // A text longer than all matches is in the complement.
        return byteRangeOf(regexes, shape.of).max < Number.POSITIVE_INFINITY;
      default:
        return false;
    }
  }

  #endsWithAny(text: Regex): boolean {
    for (let at = text; ; ) {
      const shape = this.#regexes.shapeOf(at);
      if (shape.kind !== "cat" || this.#isAny(at)) return this.#isAny(at);
      at = shape.tail;
    }
  }

  /** True for the inside of any string, with its quote or without. */
  #isAny(text: Regex): boolean {
    return text === this.#anyText || text === this.#free;
  }

  /**
   * True if every match is in `such`: a free string, or the inside of one. False also where a quick check
   * cannot decide.
   */
  #isWithin(text: Regex, such: Regex): boolean {
    const shape = this.#regexes.shapeOf(text);
    if (shape.kind === "alt") return shape.parts.every((part) => this.#isWithin(part, such));
    if (shape.kind === "and") return shape.parts.some((part) => this.#isWithin(part, such));
    if (shape.kind === "cat" && shape.tail === this.#quote && such === this.#free)
      return this.#isWithin(shape.head, this.#anyText);
    return this.#regexes.isWithin(text, such);
  }

  /** Searches all pairs of derivatives of a free string and of `start`. */
  *#search(start: Regex, budget: Budget, steps: number): Pieces<boolean> {
    const pairs = new Pairs(this.#free, start);
    const stepsMax = budget.spent + steps;
    for (let pair = pairs.take(); pair !== undefined; pair = pairs.take()) {
      const taken = pair;
      const goesOn = yield* again(() => this.#goesOnAsFree(taken, pairs));
      if (!goesOn || budget.spent > stepsMax) return false;
      if (budget.isPaused) yield;
    }
    for (const rest of pairs.with(this.#free)) this.#known.set(rest, true);
    return true;
  }

  /** True if each byte continues `rest` where it continues the free string. */
  #goesOnAsFree([free, rest]: Pair, pairs: Pairs): boolean {
    const regexes = this.#regexes;
    const { representatives } = regexes.refine(regexes.partitionOf(free), regexes.partitionOf(rest));
    regexes.budget.spend(representatives.length);
    for (const byte of representatives) {
      const nextFree = regexes.derivative(free, byte);
      const next = regexes.derivative(rest, byte);
      const mayEnd = regexes.isNullable(next);
      const isAlive = mayEnd || !regexes.isEmpty(next);
      // `rest` may end only with the free string, without continuing there, and is dead wherever the free
      // string is.
      if (nextFree === regexes.epsilon || nextFree === regexes.empty) {
        if (isAlive && (nextFree === regexes.empty || !mayEnd)) return false;
        continue;
      }
      if (!isAlive || mayEnd) return false;
      pairs.add(nextFree, next);
    }
    return true;
  }
}
