import type { Regex, RegexShape } from "./shape.ts";
import type { RegexTable } from "./tables.ts";

/** Length of matches in bytes. `max` may be Infinity. */
export interface ByteRange {
  readonly min: number;
  readonly max: number;
}

/** Bounds on the length of the expression's matches. */
export function byteRangeOf(regexes: RegexTable, regex: Regex): ByteRange {
  const known = new Map<Regex, number>();
  const maxOf = (one: Regex): number => {
    let max = known.get(one);
    if (max === undefined) {
      max = find(one);
      known.set(one, max);
    }
    return max;
  };
  const find = (one: Regex): number => {
    const shape = regexes.shapeOf(one);
    switch (shape.kind) {
      case "epsilon":
        return 0;
      case "set":
        return 1;
      case "cat": {
        let max = maxOf(shape.head);
        let rest = shape.tail;
        // A loop instead of recursion, as texts are long.
        for (let next = regexes.shapeOf(rest); next.kind === "cat"; next = regexes.shapeOf(rest)) {
          max += maxOf(next.head);
          rest = next.tail;
        }
        return max + maxOf(rest);
      }
      case "repeat": {
        const max = maxOf(shape.of);
        return max === 0 ? 0 : shape.max * max;
      }
      case "alt":
        return Math.max(...shape.parts.map(maxOf));
      case "and":
        return Math.min(...shape.parts.map(maxOf));
      default:
        return Number.POSITIVE_INFINITY;
    }
  };
  return { min: regexes.bytesMin(regex), max: maxOf(regex) };
}

/**
 * Bytes that suffice to complete a match from any state: an upper bound. Infinity for boolean expressions
 * (`isBoolean`).
 */
export function reachOf(regexes: RegexTable, regex: Regex): number {
  if (regexes.isBoolean(regex)) return Number.POSITIVE_INFINITY;
  const shape = regexes.shapeOf(regex);
  switch (shape.kind) {
    case "set":
      return 1;
    case "cat": {
      const heads: Regex[] = [];
      let tail: Regex = regex;
      for (let next: RegexShape = shape; next.kind === "cat"; next = regexes.shapeOf(tail)) {
        heads.push(next.head);
        tail = next.tail;
      }
      // A loop from the end instead of recursion, as texts are long.
      let reach = reachOf(regexes, tail);
      let min = regexes.bytesMin(tail);
      for (const head of heads.reverse()) {
        reach = Math.max(reach, reachOf(regexes, head) + min);
        min += regexes.bytesMin(head);
      }
      return reach;
    }
    case "repeat":
      return reachOf(regexes, shape.of) + Math.max(shape.min - 1, 0) * regexes.bytesMin(shape.of);
    case "alt":
      return Math.max(...shape.parts.map((part) => reachOf(regexes, part)));
    default:
      return 0;
  }
}

/** True if from any state a match can be made arbitrarily long. False also if that is not decided. */
export function isEndless(regexes: RegexTable, regex: Regex): boolean {
  const shape = regexes.shapeOf(regex);
  switch (shape.kind) {
    case "cat":
      return isEndless(regexes, shape.tail);
    case "repeat":
      return shape.max === Number.POSITIVE_INFINITY && !regexes.isBoolean(shape.of);
    case "alt":
      return shape.parts.every((part) => part === regexes.epsilon || isEndless(regexes, part));
    default:
      return false;
  }
}
