import type { Budget } from "../error.ts";
import { again, type Pieces } from "../mask/job.ts";
import { byteRangeOf } from "../regex/lengths.ts";
import { type Pair, Pairs } from "../regex/pairs.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import type { freeStrings } from "../regex/text.ts";

/**
 * Which rests of strings go on with any characters, as where a word may be found anywhere, or where names are told apart by patterns
 * and go on with one or another: then only tokens with a quote need be looked at.
 */
export class AlwaysOpen {
  readonly #regexes: Regexes;
  readonly #free: Regex;
  readonly #character: Regex;
  readonly #quote: Regex;
  /** The inside of a string, whatever it is. */
  readonly #anyText: Regex;
  readonly #known = new Map<Regex, boolean>();

  constructor(regexes: Regexes, { free, character, quote }: ReturnType<typeof freeStrings>) {
    this.#regexes = regexes;
    this.#free = free;
    this.#character = character;
    this.#quote = quote;
    this.#anyText = regexes.star(character);
  }

  /** False also where that is not found out in so many steps of work. */
  *has(rest: Regex, budget: Budget, steps: number): Pieces<boolean> {
    const known = this.#known.get(rest);
    if (known !== undefined) return known;
    const settles = this.#isWithin(rest, this.#free) && this.#settles(rest);
    const isOpen = settles || (yield* this.#search(rest, budget, steps));
    this.#known.set(rest, isOpen);
    return isOpen;
  }

  /** Whether any text can be continued in such a way that from then on all that follows matches. Of two expressions with which
   *  that is so it is of both together: one continues as the one wants it, and then as the other does. */
  #settles(text: Regex): boolean {
    const regexes = this.#regexes;
    if (this.#isAny(text)) return true;
    const shape = regexes.shapeOf(text);
    switch (shape.kind) {
      case "repeat":
        return shape.of === this.#character && shape.max === Number.POSITIVE_INFINITY;
      case "cat":
        if (shape.tail === this.#quote) return this.#settles(shape.head);
        // A word that may be found anywhere.
        return shape.head === this.#anyText && this.#endsWithAny(shape.tail) && !regexes.isBoolean(text);
      case "alt":
        return shape.parts.some((part) => this.#settles(part));
      case "and":
        return shape.parts.every((part) => this.#settles(part));
      case "not":
        // What is long enough is none of them.
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

  /** Whether it is the inside of any string, with its quote or without. */
  #isAny(text: Regex): boolean {
    return text === this.#anyText || text === this.#free;
  }

  /** Whether nothing matches but what is such: a free string, or the inside of one; false also where that is not seen at a
   *  glance. */
  #isWithin(text: Regex, such: Regex): boolean {
    const shape = this.#regexes.shapeOf(text);
    if (shape.kind === "alt") return shape.parts.every((part) => this.#isWithin(part, such));
    if (shape.kind === "and") return shape.parts.some((part) => this.#isWithin(part, such));
    if (shape.kind === "cat" && shape.tail === this.#quote && such === this.#free)
      return this.#isWithin(shape.head, this.#anyText);
    return this.#regexes.isWithin(text, such);
  }

  /** Looks at all pairs of what is left of a free string and of this one. */
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

  /** Whether each byte goes on with the one where it does with the other. */
  #goesOnAsFree([free, rest]: Pair, pairs: Pairs): boolean {
    const regexes = this.#regexes;
    const { representatives } = regexes.refine(regexes.partitionOf(free), regexes.partitionOf(rest));
    regexes.budget.spend(representatives.length);
    for (const byte of representatives) {
      const nextFree = regexes.derivative(free, byte);
      const next = regexes.derivative(rest, byte);
      const mayEnd = regexes.isNullable(next);
      const isAlive = mayEnd || !regexes.isEmpty(next);
      // Where one ends the other may, and goes on no further; where one is broken off the other is.
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
