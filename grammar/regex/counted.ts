import { Pairs } from "./pairs.ts";
import type { Regex } from "./shape.ts";
import type { RegexTable } from "./tables.ts";

/** A repetition with which an expression ends: what is left of one time, and then so many times more. */
interface CountedTail {
  readonly rest: Regex;
  readonly of: Regex;
  readonly min: number;
  /** May be Infinity. */
  readonly max: number;
}

/** What an intersection is beside its repetition. The numbers of the states that are one time further. */
interface Places {
  readonly numbers: ReadonlyMap<Regex, number>;
  readonly after: readonly (readonly number[])[];
  /** By number of times, by state: 1 if exactly so many times more lead to an end. Grows as it is asked for. */
  readonly ends: Uint8Array[];
}

const STATES_MAX = 128;
/** Steps of work to find all states that are reached from one. */
const STEPS_MAX = 60_000;
/** States times numbers that are remembered of one. */
const ENDS_MAX = 2 ** 22;

/**
 * Whether an intersection with a repetition, such as a string's pattern with its length, matches anything. A search would
 * walk the product of both, each place of the pattern with each length. Here times are counted instead: one time of the
 * repetition leads from a state of the rest of the intersection to others, and so it is known for each state and each number
 * whether so many times lead to an end.
 *
 * That takes a repetition whose times can be told apart as they are read: none begins another (a prefix code), as characters do.
 */
export class CountedIntersections {
  readonly #regexes: RegexTable;
  /** By what is repeated, by state. Null: there are too many, or times cannot be told apart. */
  readonly #places = new Map<Regex, Map<Regex, Places | null>>();
  readonly #reaches = new Map<string, number | null>();

  constructor(regexes: RegexTable) {
    this.#regexes = regexes;
  }

  /** Times of `limit`'s repetition with which an intersection with `others` can be completed, wherever one has got to, if any
   *  number of times may come; null: it cannot be told. */
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
        // From the number of times after which no end is missed down to none.
        let next = Number.POSITIVE_INFINITY;
        for (let times = most; times >= 0; times--) {
          if (this.#endsAfter(places, times)[state] === 1) next = times;
          if (times <= min && next < Number.POSITIVE_INFINITY) reach = Math.max(reach, next);
        }
      }
    }
    return reach + 1; // one that has begun
  }

  /** Whether an intersection with `others`, if it can be completed at all from where one has got to, can be with any number
   *  of times or more; false also where it cannot be told. */
  isEndless(others: Regex, limit: Regex): boolean {
    const tail = this.#tailOf(limit);
    const starts = tail === null ? null : this.#afterOne(others, tail.rest);
    if (starts === null) return false;
    return starts.every((start) => {
      const places = this.#placesFrom(start, tail!.of);
      if (places === null) return false;
      const states = places.after.length;
      this.#regexes.budget.spend(states);
      // As many times as there are states lead around somewhere, and so do any number.
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

  /** Of an intersection's parts; null: it cannot be told so. */
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
      // Where more times lead to an end, some of them lead around and can be left out.
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

  /** The states that are reached from this one, and all that are reached from those. */
  #placesFrom(start: Regex, of: Regex): Places | null {
    // Which would be found out by meeting that many, over and over from one place of a text to the next.
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
        // Of some that were reached it could be told, for as much work again.
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

  /** States after `state` along all that `time` matches; null: a match begins another. */
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

/** The larger, the more a repetition is worth being counted. */
function sizeOf({ min, max }: CountedTail): number {
  return max === Number.POSITIVE_INFINITY ? min : max;
}
