import type { Regex, Regexes } from "./regexes.ts";

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
