import { assert } from "../../base/assert.ts";
import type { CountedIntersections } from "./counted.ts";
import { isEndless, reachOf } from "./lengths.ts";
import type { Regex, RegexShape } from "./shape.ts";
import type { RegexTable } from "./tables.ts";

/**
 * Expression without its upper length limit. The original is an intersection of `others` and `limit`,
 * followed by `tail`. The limit is a repetition of `min` to `max` iterations, each of at least one byte.
 */
export interface Unlimited {
  readonly regex: Regex;
  readonly min: number;
  readonly max: number;
  readonly limit: Regex;
  readonly others: Regex;
  readonly tail: Regex;
  /**
   * True if the limit never decides whether `others` can be completed, at any of its states; null if not
   * known yet.
   */
  isFree: boolean | null;
  /** Iterations that suffice to complete the expression from any state; null if not known yet. */
  reach: number | null;
}

/** Largest count that may be within a character, in bytes. */
const CHARACTER_COUNT_MAX = 4;
/** Steps of work for one expression. */
const CLAMP_STEPS = 16;

/**
 * Removes counts that cannot run out within a few bytes. States that differ only in remaining iterations
 * become one state, and the vocabulary is walked once for all of them. Results are cached.
 */
export class Clamping {
  readonly #regexes: RegexTable;
  readonly #counted: CountedIntersections;
  readonly #clamped = new Map<number, Regex>();
  readonly #unlimited = new Map<Regex, Unlimited | null>();

  constructor(regexes: RegexTable, counted: CountedIntersections) {
    this.#regexes = regexes;
    this.#counted = counted;
  }

  /**
   * Expression equivalent to this one for the next `bytes` bytes: repetitions that cannot run out within them
   * lose their bounds. So states that differ only in remaining iterations become one. Whether a boolean
   * expression can be completed may depend on such counts, so only its greatest length limit is considered.
   */
  clamped(regex: Regex, bytes: number): Regex {
    const regexes = this.#regexes;
    if (!regexes.isCounted(regex)) return regex;
    const key = regex * 2 ** 16 + bytes;
    let clamped = this.#clamped.get(key);
    if (clamped === undefined) {
      this.#regexes.budget.spend(CLAMP_STEPS);
      clamped = regexes.isBoolean(regex) ? this.#clampLength(regex, bytes) : this.#clamp(regex, bytes);
      this.#clamped.set(key, clamped);
    }
    return clamped;
  }

  #clampLength(regex: Regex, bytes: number): Regex {
    const unlimited = this.unlimited(regex);
    if (unlimited === null || unlimited.max < bytes) return regex;
    const { others, limit, max, min, tail } = unlimited;
    if (max < Number.POSITIVE_INFINITY) {
      unlimited.reach ??= this.#reachOf(unlimited);
      if (max < bytes + unlimited.reach) return regex;
    }
    unlimited.isFree ??=
      this.#isWithin(others, this.#withTimes(limit, 0)) &&
      (min === 0 || isEndless(this.#regexes, others) || this.#counted.isEndless(others, limit));
    if (!unlimited.isFree) return unlimited.regex;
    const free = this.#withTimes(limit, Math.min(min, bytes + 1));
    return this.#regexes.cat(this.#regexes.and([this.clamped(others, bytes), free]), tail);
  }

  /**
   * Length limit of an intersection, and the intersection without its upper limit, if it has one. Null for
   * other expressions.
   */
  unlimited(regex: Regex): Unlimited | null {
    let unlimited = this.#unlimited.get(regex);
    if (unlimited === undefined) {
      this.#regexes.budget.spend(CLAMP_STEPS);
      unlimited = this.#unlimit(this.#regexes.shapeOf(regex));
      this.#unlimited.set(regex, unlimited);
    }
    return unlimited;
  }

  #unlimit(shape: RegexShape): Unlimited | null {
    if (shape.kind === "cat") {
      const head = this.unlimited(shape.head);
      if (head === null) return null;
      return {
        ...head,
        regex: this.#regexes.cat(head.regex, shape.tail),
        tail: this.#regexes.cat(head.tail, shape.tail),
      };
    }
    if (shape.kind !== "and") return null;
    const othersThan = (limit: Regex): Regex =>
      this.#regexes.and(shape.parts.filter((part) => part !== limit));
    let most = 1; // a count of at most one is no length limit
    let limit: Regex | null = null;
    for (const part of shape.parts) {
      const max = this.#mostOf(part);
      if (max === Number.POSITIVE_INFINITY || max <= most) continue;
      most = max;
      limit = part;
    }
    if (limit === null) {
      most = Number.POSITIVE_INFINITY;
      limit =
        shape.parts.find(
          (part) => this.#mostOf(part) === most && this.#isWithin(othersThan(part), this.#withTimes(part, 0)),
        ) ?? null;
      if (limit === null) return null;
    }
    const others = othersThan(limit);
    const min = this.#leastOf(limit);
    const regex = this.#regexes.and([others, this.#withTimes(limit, min)]);
    return { regex, min, max: most, limit, others, tail: this.#regexes.epsilon, isFree: null, reach: null };
  }

  /** True if every match of `one` is a match of `other`. False also if that is not decided. */
  #isWithin(one: Regex, other: Regex): boolean {
    if (this.#regexes.isBoolean(one)) return false;
    // Counts outside characters become any number of iterations, which gives a larger language with fewer
    // states.
    return this.#regexes.isEmpty(
      this.#regexes.and([this.clamped(one, CHARACTER_COUNT_MAX), this.#regexes.not(other)]),
    );
  }

  /** Iterations that suffice to complete the expression from any state; Infinity if unknown. */
  #reachOf({ others, limit, min }: Unlimited): number {
    // The required iterations and then the shortest way to an end: an iteration has at least one byte.
    if (this.#isWithin(others, this.#withTimes(limit, 0))) return min + reachOf(this.#regexes, others);
    return this.#counted.reachOf(others, limit) ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Largest count of the repetition that the expression is, or ends with after a partial iteration; -1 if
   * there is none.
   */
  #mostOf(regex: Regex): number {
    const shape = this.#regexes.shapeOf(regex);
    if (shape.kind === "cat") return this.#mostOf(shape.tail);
    return shape.kind === "repeat" ? shape.max : -1;
  }

  #leastOf(limit: Regex): number {
    const shape = this.#regexes.shapeOf(limit);
    if (shape.kind === "cat") return this.#leastOf(shape.tail);
    assert(shape.kind === "repeat", "a limit of length is a repetition");
    return shape.min;
  }

  /** Limit with at least `min` iterations and no upper bound. */
  #withTimes(limit: Regex, min: number): Regex {
    const shape = this.#regexes.shapeOf(limit);
    if (shape.kind === "cat") return this.#regexes.cat(shape.head, this.#withTimes(shape.tail, min));
    assert(shape.kind === "repeat", "a limit of length is a repetition");
    return this.#regexes.repeat(shape.of, min, Number.POSITIVE_INFINITY);
  }

  #clamp(regex: Regex, bytes: number): Regex {
    const regexes = this.#regexes;
    const shape = regexes.shapeOf(regex);
    switch (shape.kind) {
      case "cat":
        return regexes.cat(this.clamped(shape.head, bytes), this.clamped(shape.tail, bytes));
      case "repeat": {
        const of = this.clamped(shape.of, bytes);
        if (regexes.isNullable(shape.of)) return regexes.repeat(of, shape.min, shape.max);
        // Iterations that can be completed within the bytes; one more may begin.
        const times = Math.floor(bytes / regexes.bytesMin(shape.of));
        const max = shape.max > times ? Number.POSITIVE_INFINITY : shape.max;
        return regexes.repeat(of, Math.min(shape.min, times + 1), max);
      }
      case "alt":
        return regexes.alt(shape.parts.map((part) => this.clamped(part, bytes)));
      default:
        return regex;
    }
  }
}
