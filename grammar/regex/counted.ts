import { Pairs } from "./pairs.ts";
import type { Regex } from "./shape.ts";
import type { RegexTable } from "./tables.ts";

/**
 * Repetition at the end of an expression: the rest of one iteration, and then `min` to `max` further
 * iterations.
 */
interface CountedTail {
  readonly rest: Regex;
  readonly of: Regex;
  readonly min: number;
  /** Infinity if unbounded. */
  readonly max: number;
}

/** States of an intersection's other parts, numbered, and the states that each reaches by one iteration. */
interface Places {
  readonly numbers: ReadonlyMap<Regex, number>;
  readonly after: readonly (readonly number[])[];
  /** Flags by n: 1 for each state that reaches an end by exactly n iterations. Extended on demand. */
  readonly ends: Uint8Array[];
}

const STATES_MAX = 128;
/** Steps of work to find all states reachable from one. */
const STEPS_MAX = 60_000;
/** States times counts that are remembered for one state, at most. */
const ENDS_MAX = 2 ** 22;

/**
 * Emptiness check for intersections with a repetition, such as a string's pattern with its length. A search
 * would walk the product of both: each state of the pattern with each length. Instead, iterations are
 * counted. One iteration leads from a state of the other parts to further states. So for each state and each
 * number n it is known whether n iterations lead to an end.
 *
 * This requires iterations that can be separated as they are read: no match is a prefix of another (a prefix
 * code), as with characters.
 */
export class CountedIntersections {
  readonly #regexes: RegexTable;
  /**
   * Reachable states, by repeated expression and by state. Null if there are too many, or iterations cannot
   * be separated.
   */
  readonly #places = new Map<Regex, Map<Regex, Places | null>>();
  readonly #reaches = new Map<string, number | null>();

  constructor(regexes: RegexTable) {
    this.#regexes = regexes;
  }

  /**
   * Iterations of `limit` that suffice to complete an intersection with `others` from any state, if their
   * number is not bounded. Null if unknown.
   */
  reachOf(others: Regex, limit: Regex): number | null {
    const tail = this.#tailOf(limit);
    if (tail === null) return null;
    const key = `${others},${tail.rest},${tail.of},${tail.min}`;
    let reach = this.#reaches.get(key);
    if (reach === undefined) {
      reach = this.#findReach(others, tail);
      this.#reaches.set(key, reach);
    }
    return reach;
  }

  #findReach(others: Regex, { rest, of, min }: CountedTail): number | null {
    const starts = this.#afterOne(others, rest);
    if (starts === null) return null;
    let reach = 0;
    for (const start of starts) {
      const places = this.#placesFrom(start, of);
      if (places === null) return null;
      const states = places.after.length;
      const most = min + states;
      if (most * states > ENDS_MAX) return null;
      this.#regexes.budget.spend(most);
      for (let state = 0; state < states; state++) {
        // Fewest iterations, `times` or more, that lead to an end; counted down from a number that misses
        // no end.
        let next = Number.POSITIVE_INFINITY;
        for (let times = most; times >= 0; times--) {
          if (this.#endsAfter(places, times)[state] === 1) next = times;
          if (times <= min && next < Number.POSITIVE_INFINITY) reach = Math.max(reach, next);
        }
      }
    }
    return reach + 1; // plus one begun iteration
  }

  /**
   * True if an intersection with `others` that can be completed at all can be completed with arbitrarily many
   * iterations, from any state. False also if unknown.
   */
  isEndless(others: Regex, limit: Regex): boolean {
    const tail = this.#tailOf(limit);
    const starts = tail === null ? null : this.#afterOne(others, tail.rest);
    if (starts === null) return false;
    return starts.every((start) => {
      const places = this.#placesFrom(start, tail!.of);
      if (places === null) return false;
      const states = places.after.length;
      this.#regexes.budget.spend(states);
      // A path of as many iterations as there are states contains a cycle, so any number is possible.
      return places.after.every((_, state) => {
        const endsBetween = (from: number, to: number): boolean => {
          for (let times = from; times < to; times++)
            if (this.#endsAfter(places, times)[state] === 1) return true;
          return false;
        };
        return endsBetween(states, 2 * states) || !endsBetween(0, states);
      });
    });
  }

  /** True if an intersection of these parts is empty; null if it cannot be decided by counting. */
  isEmpty(parts: readonly Regex[]): boolean | null {
    let counted: CountedTail | null = null;
    let index = -1;
    for (const [at, part] of parts.entries()) {
      const tail = this.#tailOf(part);
      if (tail === null || (counted !== null && sizeOf(tail) <= sizeOf(counted))) continue;
      counted = tail;
      index = at;
    }
    if (counted === null) return null;
    const others = this.#regexes.and(parts.filter((_, at) => at !== index));
    const starts = this.#afterOne(others, counted.rest);
    return starts === null ? null : this.#isEmptyAfter(starts, counted);
  }

  #isEmptyAfter(starts: readonly Regex[], { of, min, max }: CountedTail): boolean | null {
    for (const start of starts) {
      const places = this.#placesFrom(start, of);
      if (places === null) return null;
      const states = places.after.length;
      // More iterations contain a cycle that can be left out on the way to an end.
      const most = Math.min(max, min + states);
      if (most * states > ENDS_MAX) return null;
      const number = places.numbers.get(start)!;
      for (let times = min; times <= most; times++)
        if (this.#endsAfter(places, times)[number] === 1) return false;
    }
    return true;
  }

  #endsAfter({ ends, after }: Places, times: number): Uint8Array {
    while (ends.length <= times) {
      this.#regexes.budget.spend(1 + (after.length >>> 2));
      const last = ends.at(-1)!;
      ends.push(Uint8Array.from(after, (next) => (next.some((number) => last[number] === 1) ? 1 : 0)));
    }
    return ends[times]!;
  }

  #tailOf(regex: Regex): CountedTail | null {
    const shape = this.#regexes.shapeOf(regex);
    if (shape.kind === "repeat") {
      const { of, min, max } = shape;
      const isCounted = min > 0 || max < Number.POSITIVE_INFINITY;
      return isCounted && !this.#regexes.isNullable(of)
        ? { rest: this.#regexes.epsilon, of, min, max }
        : null;
    }
    if (shape.kind !== "cat") return null;
    const tail = this.#tailOf(shape.tail);
    return tail === null ? null : { ...tail, rest: this.#regexes.cat(shape.head, tail.rest) };
  }

  /** States reachable from this one. */
  #placesFrom(start: Regex, of: Regex): Places | null {
    // There would be too many states; finding that out by visiting them would be repeated at each place of
    // a text.
    if (this.#regexes.counts(start) > STATES_MAX) return null;
    let known = this.#places.get(of);
    if (known === undefined) {
      known = new Map();
      this.#places.set(of, known);
    }
    const found = known.get(start);
    if (found !== undefined) return found;
    const stepsMax = this.#regexes.budget.spent + STEPS_MAX;
    const numbers = new Map<Regex, number>([[start, 0]]);
    const after: number[][] = [];
    for (const state of numbers.keys()) {
      const next = this.#afterOne(state, of);
      if (next === null || numbers.size > STATES_MAX || this.#regexes.budget.spent > stepsMax) {
        // Some of the visited states may be within the limit, but that would cost as much work again.
        for (const one of numbers.keys()) known.set(one, null);
        return null;
      }
      after.push(
        next.map((one) => {
          const number = numbers.get(one) ?? numbers.size;
          numbers.set(one, number);
          return number;
        }),
      );
    }
    const first = Uint8Array.from(numbers.keys(), (state) => (this.#regexes.isNullable(state) ? 1 : 0));
    const places = { numbers, after, ends: [first] };
    for (const state of numbers.keys()) known.set(state, places);
    return places;
  }

  /** Derivatives of `state` after each match of `time`; null if a match is a prefix of another. */
  #afterOne(state: Regex, time: Regex): Regex[] | null {
    const regexes = this.#regexes;
    if (time === regexes.epsilon) return [state];
    if (regexes.isNullable(time)) return null;
    const reached = new Set<Regex>();
    const pairs = new Pairs(state, time);
    for (let pair = pairs.take(); pair !== undefined; pair = pairs.take()) {
      const [at, rest] = pair;
      const { representatives } = regexes.refine(regexes.partitionOf(at), regexes.partitionOf(rest));
      for (const byte of representatives) {
        const nextRest = regexes.derivative(rest, byte);
        const next = regexes.derivative(at, byte);
        if (nextRest === regexes.empty || next === regexes.empty) continue;
        if (nextRest === regexes.epsilon) reached.add(next);
        else if (regexes.isNullable(nextRest)) return null;
        else pairs.add(next, nextRest);
      }
    }
    return [...reached];
  }
}

/** Benefit of counting a repetition; greater is better. */
function sizeOf({ min, max }: CountedTail): number {
  return max === Number.POSITIVE_INFINITY ? min : max;
}
