import type { Regex, Regexes, RegexShape } from "./regexes.ts";

/** How many bytes a match may have. `max` may be Infinity. */
export interface ByteRange {
  readonly min: number;
  readonly max: number;
}

const anyBytes: ByteRange = { min: 0, max: Number.POSITIVE_INFINITY };

/** Bounds of how many bytes a match of the expression has. */
export function byteRangeOf(regexes: Regexes, regex: Regex): ByteRange {
  const known = new Map<Regex, ByteRange>();
  const rangeOf = (one: Regex): ByteRange => {
    let range = known.get(one);
    if (range === undefined) {
      range = find(one);
      known.set(one, range);
    }
    return range;
  };
  const find = (one: Regex): ByteRange => {
    const shape = regexes.shapeOf(one);
    switch (shape.kind) {
      case "epsilon":
        return { min: 0, max: 0 };
      case "set":
        return { min: 1, max: 1 };
      case "cat": {
        let { min, max } = rangeOf(shape.head);
        let rest = shape.tail;
        const add = (part: ByteRange): void => {
          min += part.min;
          max += part.max;
        };
        // In a loop, as texts are long.
        for (let next = regexes.shapeOf(rest); next.kind === "cat"; next = regexes.shapeOf(rest)) {
          add(rangeOf(next.head));
          rest = next.tail;
        }
        add(rangeOf(rest));
        return { min, max };
      }
      case "repeat": {
        const { min, max } = rangeOf(shape.of);
        return { min: shape.min * min, max: max === 0 ? 0 : shape.max * max };
      }
      case "alt": {
        const parts = shape.parts.map(rangeOf);
        return {
          min: Math.min(...parts.map(({ min }) => min)),
          max: Math.max(...parts.map(({ max }) => max)),
        };
      }
      case "and": {
        const parts = shape.parts.map(rangeOf);
        return {
          min: Math.max(...parts.map(({ min }) => min)),
          max: Math.min(...parts.map(({ max }) => max)),
        };
      }
      default:
        return anyBytes;
    }
  };
  return rangeOf(regex);
}

/** Bytes with which a match of the expression can be completed, wherever one has got to: an upper bound, Infinity for what holds
 *  an intersection or a complement. */
export function reachOf(regexes: Regexes, regex: Regex): number {
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
      // From the end, in a loop, as texts are long.
      let reach = reachOf(regexes, tail);
      let { min } = byteRangeOf(regexes, tail);
      for (const head of heads.reverse()) {
        reach = Math.max(reach, reachOf(regexes, head) + min);
        min += byteRangeOf(regexes, head).min;
      }
      return reach;
    }
    case "repeat": {
      const { min } = byteRangeOf(regexes, shape.of);
      return reachOf(regexes, shape.of) + Math.max(shape.min - 1, 0) * min;
    }
    case "alt":
      return Math.max(...shape.parts.map((part) => reachOf(regexes, part)));
    default:
      return 0;
  }
}

/** Whether from wherever one has got to in a match of the expression it can be made as long as one likes; false also where
 *  that is not found out. */
export function isEndless(regexes: Regexes, regex: Regex): boolean {
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
