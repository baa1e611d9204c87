/** Shapes of regular expressions, and facts that follow directly from them. */
import type { ByteSet } from "./byte-set.ts";

/** Upper bound of an expression's number. */
const NUMBERS_MAX = 2 ** 26;
/** Longest array that is sorted by insertion alone. */
const SORTED_IN_PLACE_MAX = 32;

/** Key for a pair of numbers. */
export function pairOf(a: number, b: number): number {
  return a * NUMBERS_MAX + b;
}

/** Sorts the array in place and removes duplicates. */
export function sortedOnce<Part extends number>(parts: Part[]): Part[] {
  // Insertion is fast here: arrays are short and mostly sorted already.
  if (parts.length > SORTED_IN_PLACE_MAX) parts.sort((a, b) => a - b);
  let count = 0;
  for (const part of parts) {
    let at = count;
    while (at > 0 && parts[at - 1]! > part) at--;
    if (at > 0 && parts[at - 1] === part) continue;
    parts.copyWithin(at + 1, at, count);
    parts[at] = part;
    count += 1;
  }
  parts.length = count;
  return parts;
}

declare const brand: unique symbol;
/**
 * Regular expression over bytes: its number in the `Regexes` that made it. Equal expressions have equal
 * numbers.
 */
export type Regex = number & { readonly [brand]: "Regex" };

/** DFA as a table, for languages without a short expression. The dead state is -1. */
export interface Automaton {
  /** Identity of the automaton: equal names mean equal automata. */
  readonly name: string;
  readonly classOf: Uint8Array;
  readonly classes: number;
  /** Transitions: next[state × classes + class]. */
  readonly next: Int32Array;
  readonly accepts: Uint8Array;
}

/** Operator of an expression and its parts. `max` may be Infinity. */
export type RegexShape =
  | { readonly kind: "empty" }
  | { readonly kind: "epsilon" }
  | { readonly kind: "any" }
  | { readonly kind: "set"; readonly set: ByteSet }
  | { readonly kind: "cat"; readonly head: Regex; readonly tail: Regex }
  | { readonly kind: "repeat"; readonly of: Regex; readonly min: number; readonly max: number }
  | { readonly kind: "alt" | "and"; readonly parts: readonly Regex[] }
  | { readonly kind: "not"; readonly of: Regex }
  | { readonly kind: "automaton"; readonly automaton: Automaton; readonly state: number };

/** Kinds of shapes by number, the first element of a shape's list of numbers. */
export const kinds = [
  ...(["empty", "epsilon", "any", "set", "cat", "repeat", "alt", "and", "not", "automaton"] as const),
];
const numberOfKind = Object.fromEntries(kinds.map((kind, number) => [kind, number])) as Record<
  RegexShape["kind"],
  number
>;

/** Shape as numbers: its kind, then its parts in the order of the shape's fields; a set as its words. */
export function numbersOf(
  shape: RegexShape,
  partNumber: (part: Regex) => number,
  automatonNumber: (automaton: Automaton) => number,
): number[] {
  const kind = numberOfKind[shape.kind];
  switch (shape.kind) {
    case "empty":
    case "epsilon":
    case "any":
      return [kind];
    case "set":
      return [kind, ...shape.set];
    case "cat":
      return [kind, partNumber(shape.head), partNumber(shape.tail)];
    case "repeat":
      return [kind, partNumber(shape.of), shape.min, shape.max];
    case "alt":
    case "and":
      return [kind, ...shape.parts.map(partNumber)];
    case "not":
      return [kind, partNumber(shape.of)];
    case "automaton":
      return [kind, automatonNumber(shape.automaton), shape.state];
  }
}

/** Facts of an expression that follow from its shape. */
export interface Facts {
  /** True if it matches the empty string. */
  readonly isNullable: boolean;
  /**
   * True if it contains an intersection, a complement or an automaton; its language may then be empty
   * although it is not `empty`.
   */
  readonly isBoolean: boolean;
  /** True if it contains a repetition with a count. */
  readonly isCounted: boolean;
  /**
   * Largest count times the largest count nested in it: about the number of positions to distinguish. Counts
   * within a character are ignored.
   */
  readonly counts: number;
  /** Lower bound of a match's length in bytes. */
  readonly bytesMin: number;
}

/** Lookup of the facts of known expressions. */
export type FactsOf = { readonly [Fact in keyof Facts]: (regex: Regex) => Facts[Fact] };

/** Largest count that may be within a character, in bytes. */
const CHARACTER_BYTES_MAX = 4;

/** Derives the facts of an expression from those of its parts. */
export function factsOf(shape: RegexShape, of: FactsOf): Facts {
  const plain = { isBoolean: false, isCounted: false, counts: 1 };
  switch (shape.kind) {
    case "empty":
      return { ...plain, isNullable: false, bytesMin: Number.POSITIVE_INFINITY };
    case "epsilon":
    case "any":
      return { ...plain, isNullable: true, bytesMin: 0 };
    case "set":
      return { ...plain, isNullable: false, bytesMin: 1 };
    case "automaton": {
      const isNullable = shape.automaton.accepts[shape.state] === 1;
      return { ...plain, isNullable, isBoolean: true, bytesMin: isNullable ? 0 : 1 };
    }
    case "not": {
      const isNullable = !of.isNullable(shape.of);
      return {
        isNullable,
        isBoolean: true,
        isCounted: of.isCounted(shape.of),
        counts: of.counts(shape.of),
        bytesMin: isNullable ? 0 : 1,
      };
    }
    case "repeat": {
      const { min, max } = shape;
      const counts = of.counts(shape.of);
      const most = max < Number.POSITIVE_INFINITY ? max : min;
      return {
        isNullable: min === 0,
        isBoolean: of.isBoolean(shape.of),
        isCounted: of.isCounted(shape.of) || min > 1 || max < Number.POSITIVE_INFINITY,
        counts: most > CHARACTER_BYTES_MAX ? most * counts : counts,
        bytesMin: min === 0 ? 0 : min * of.bytesMin(shape.of),
      };
    }
    case "cat": {
      const { head, tail } = shape;
      return {
        isNullable: of.isNullable(head) && of.isNullable(tail),
        isBoolean: of.isBoolean(head) || of.isBoolean(tail),
        isCounted: of.isCounted(head) || of.isCounted(tail),
        counts: Math.max(of.counts(head), of.counts(tail)),
        bytesMin: of.bytesMin(head) + of.bytesMin(tail),
      };
    }
    case "alt":
    case "and":
      return factsOfSeveral(shape.kind, shape.parts, of);
  }
}

function factsOfSeveral(kind: "alt" | "and", parts: readonly Regex[], of: FactsOf): Facts {
  const isAlt = kind === "alt";
  let [isNullable, isBoolean, isCounted] = [!isAlt, !isAlt, false];
  let counts = 1;
  let bytesMin = isAlt ? Number.POSITIVE_INFINITY : 0;
  for (const part of parts) {
    isNullable = isAlt ? isNullable || of.isNullable(part) : isNullable && of.isNullable(part);
    isBoolean ||= of.isBoolean(part);
    isCounted ||= of.isCounted(part);
    counts = Math.max(counts, of.counts(part));
    bytesMin = isAlt ? Math.min(bytesMin, of.bytesMin(part)) : Math.max(bytesMin, of.bytesMin(part));
  }
  return { isNullable, isBoolean, isCounted, counts, bytesMin };
}
