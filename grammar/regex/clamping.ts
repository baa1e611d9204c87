import { assert } from "../../base/assert.ts";
import type { CountedIntersections } from "./counted.ts";
import { isEndless, reachOf } from "./lengths.ts";
import type { Regex, RegexShape } from "./shape.ts";
import type { RegexTable } from "./tables.ts";

/** An expression without a limit of length, and the limit: so many times, each of a byte or more. It is `limit` that has it, of
 *  an intersection with `others`, before `tail`. */
export interface Unlimited {
  readonly regex: Regex;
  readonly min: number;
  readonly max: number;
  readonly limit: Regex;
  readonly others: Regex;
  readonly tail: Regex;
  /** Wherever one has got to, whether `others` can be completed does not depend on the limit; null: not known yet. */
  isFree: boolean | null;
  /** Times with which it can be completed, wherever one has got to; null: not known yet. */
  reach: number | null;
}

/** Bytes of a character that are counted. */
const CHARACTER_COUNT_MAX = 4;
/** Of one expression, in steps of work. */
const CLAMP_STEPS = 16;

/**
 * Expressions whose counts cannot run out within a few bytes, without them: so the states of one that differ only in how often
 * something may still come are one, and a vocabulary is walked once for all of them. What is found out is remembered.
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
   * An expression that goes the same way as this one for the next `bytes` bytes: repetitions that cannot run out within
   * them have no limit. So states that differ only in how often something may still come are one. Of boolean expressions,
   * whose end may depend on such numbers, only the greatest limit of length is looked at.
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

  /** An intersection with a limit of length, without that limit; or with a length that is not limited. Null: it is neither. */
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
    let most = 1; // what is optional has no length that counts
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

  /** Whether all that one matches is matched by the other too; false also where that is not found out. */
  #isWithin(one: Regex, other: Regex): boolean {
    if (this.#regexes.isBoolean(one)) return false;
    // With any number of times in place of each count but those inside of a character: that is more, and has fewer states.
    return this.#regexes.isEmpty(
      this.#regexes.and([this.clamped(one, CHARACTER_COUNT_MAX), this.#regexes.not(other)]),
    );
  }

  /** Times with which it can be completed, wherever one has got to; Infinity: it cannot be told. */
  #reachOf({ others, limit, min }: Unlimited): number {
    // As many as there must be, and then the shortest way to an end: a time has a byte or more.
    if (this.#isWithin(others, this.#withTimes(limit, 0))) return min + reachOf(this.#regexes, others);
    return this.#counted.reachOf(others, limit) ?? Number.POSITIVE_INFINITY;
  }

  /** How often the repetition may come that an expression is, or ends with after the rest of one time; -1: it is no such. */
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

  /** The limit with so many times at least, and no most. */
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
        // Times that can be completed within them: one more may begin.
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
