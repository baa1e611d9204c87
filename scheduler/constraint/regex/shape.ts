/** What regular expressions are, and what follows from it at once. */
import type { ByteSet, Partition } from "./byte-set.ts";

declare const brand: unique symbol;
/** A regular expression over bytes: its number in the `Regexes` that made it. Equal expressions have equal numbers. */
export type Regex = number & { readonly [brand]: "Regex" };

/** A finite automaton as a table, for languages that no short expression describes. Dead is -1. */
export interface Automaton {
  /** Names it: automata of one name are the same. */
  readonly name: string;
  readonly classOf: Uint8Array;
  readonly classes: number;
  /** next[state × classes + class]. */
  readonly next: Int32Array;
  readonly accepts: Uint8Array;
}

/** What an expression is, with its parts. `max` may be Infinity. */
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

/** What is known of an expression from what it is. */
export interface Facts {
  /** Whether it matches the empty string. */
  readonly isNullable: boolean;
  /** Whether it holds an intersection or a complement, so that its language may be empty without its being `empty`. */
  readonly isBoolean: boolean;
  /** Whether it holds a repetition with a count. */
  readonly isCounted: boolean;
  /** How far its largest count goes, times the largest in what is counted: about as many places it has to tell apart. Counts that are
   *  within a character are left out. */
  readonly counts: number;
  /** No match has fewer bytes. */
  readonly bytesMin: number;
}

/** An expression, and what is known of it. */
export interface Node extends Facts {
  readonly shape: RegexShape;
  partition: Partition | null;
  /** Derivatives by class of the partition; -1: not computed yet. */
  next: Int32Array | null;
  /** For boolean ones: whether the language is empty; null: not known yet. */
  isEmpty: boolean | null;
}

/** Counts as far as that may be of a character's bytes. */
const CHARACTER_BYTES_MAX = 4;

/** Of an expression whose parts are known. */
export function factsOf(shape: RegexShape, of: (part: Regex) => Facts): Facts {
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
      const { isNullable, isCounted, counts } = of(shape.of);
      return { isNullable: !isNullable, isBoolean: true, isCounted, counts, bytesMin: isNullable ? 1 : 0 };
    }
    case "repeat": {
      const { isBoolean, isCounted, counts, bytesMin } = of(shape.of);
      const { min, max } = shape;
      const most = max < Number.POSITIVE_INFINITY ? max : min;
      return {
        isNullable: min === 0,
        isBoolean,
        isCounted: isCounted || min > 1 || max < Number.POSITIVE_INFINITY,
        counts: most > CHARACTER_BYTES_MAX ? most * counts : counts,
        bytesMin: min === 0 ? 0 : min * bytesMin,
      };
    }
    case "cat": {
      const [head, tail] = [of(shape.head), of(shape.tail)];
      return {
        isNullable: head.isNullable && tail.isNullable,
        isBoolean: head.isBoolean || tail.isBoolean,
        isCounted: head.isCounted || tail.isCounted,
        counts: Math.max(head.counts, tail.counts),
        bytesMin: head.bytesMin + tail.bytesMin,
      };
    }
    case "alt":
    case "and":
      return factsOfSeveral(shape.kind, shape.parts, of);
  }
}

function factsOfSeveral(kind: "alt" | "and", parts: readonly Regex[], of: (part: Regex) => Facts): Facts {
  const isAlt = kind === "alt";
  let [isNullable, isBoolean, isCounted] = [!isAlt, !isAlt, false];
  let counts = 1;
  let bytesMin = isAlt ? Number.POSITIVE_INFINITY : 0;
  for (const part of parts) {
    const facts = of(part);
    isNullable = isAlt ? isNullable || facts.isNullable : isNullable && facts.isNullable;
    isBoolean ||= facts.isBoolean;
    isCounted ||= facts.isCounted;
    counts = Math.max(counts, facts.counts);
    bytesMin = isAlt ? Math.min(bytesMin, facts.bytesMin) : Math.max(bytesMin, facts.bytesMin);
  }
  return { isNullable, isBoolean, isCounted, counts, bytesMin };
}
