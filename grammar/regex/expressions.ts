import { Lists, withRoom } from "../parser/lists.ts";
import { type ByteSet, byteSet, intersectionOf, unionOf } from "./byte-set.ts";
import { FreeText } from "./free-text.ts";
import { mergeCounts } from "./merged-counts.ts";
import {
  type Automaton,
  factsOf,
  kinds,
  numbersOf,
  type Regex,
  type RegexShape,
  sortedOnce,
} from "./shape.ts";
import type { ExpressionTable } from "./tables.ts";

type Kind = RegexShape["kind"];

/** Flags of an expression. */
const NULLABLE = 1;
const BOOLEAN = 2;
const COUNTED = 4;

/**
 * Interned regular expressions over bytes. They are simplified when made, and equal expressions have equal
 * numbers. Lists of numbers hold them instead of objects, because there are tens of thousands.
 *
 * Expressions are never removed: the owner replaces the whole table when `size` has grown too large.
 */
export class Expressions implements ExpressionTable {
  /** Empty language. */
  readonly empty: Regex;
  /** Language of the empty string alone. */
  readonly epsilon: Regex;
  /** Language of all strings. */
  readonly any: Regex;
  /** Shape of each expression as numbers (`numbersOf`). */
  readonly #lists: Lists;
  /** Facts of each expression. */
  #flags: Uint8Array;
  #counts: Float64Array;
  #bytesMin: Float64Array;
  readonly #sets = new Map<Regex, ByteSet>();
  readonly #automata: Automaton[] = [];
  readonly #automatonNumbers = new Map<string, number>();
  readonly #freeText = new FreeText(this);
  /** Expression of each single byte. */
  readonly #bytes: (Regex | undefined)[] = [];

  /** Reserves memory for `room` expressions. Beyond that, all are copied to larger arrays. */
  constructor(room = 16) {
    this.#lists = new Lists(room);
    this.#flags = new Uint8Array(room);
    this.#counts = new Float64Array(room);
    this.#bytesMin = new Float64Array(room);
    this.empty = this.#keep({ kind: "empty" });
    this.epsilon = this.#keep({ kind: "epsilon" });
    this.any = this.#keep({ kind: "any" });
  }

  /** Number of expressions so far. */
  get size(): number {
    return this.#lists.size;
  }

  /** Shape of the expression, as a new object each time. */
  shapeOf(regex: Regex): RegexShape {
    const kind = this.kindOf(regex);
    switch (kind) {
      case "empty":
      case "epsilon":
      case "any":
        return { kind };
      case "set":
        return { kind, set: this.setOf(regex) };
      case "cat":
        return { kind, head: this.partOf(regex, 0), tail: this.partOf(regex, 1) };
      case "repeat":
        return { kind, of: this.partOf(regex, 0), min: this.minOf(regex), max: this.maxOf(regex) };
      case "alt":
      case "and":
        return { kind, parts: this.partsOf(regex) };
      case "not":
        return { kind, of: this.partOf(regex, 0) };
      case "automaton":
        return { kind, automaton: this.automatonOf(regex), state: this.stateOf(regex) };
    }
  }

  /** Kind of its shape. */
  kindOf(regex: Regex): Kind {
    return kinds[this.#lists.at(regex, 0)]!;
  }

  /** Part of its shape, in the order of the shape's fields. */
  partOf(regex: Regex, index: number): Regex {
    return this.#lists.at(regex, 1 + index) as Regex;
  }

  /** Number of parts of an alternation or intersection. */
  partCount(regex: Regex): number {
    return this.#lists.lengthOf(regex) - 1;
  }

  protected partsOf(regex: Regex): Regex[] {
    return this.#lists.listOf(regex, 1) as Regex[];
  }

  /** Lower bound of a repetition. */
  minOf(regex: Regex): number {
    return this.#lists.at(regex, 2);
  }

  /** Upper bound of a repetition; Infinity if there is none. */
  maxOf(regex: Regex): number {
    return this.#lists.at(regex, 3);
  }

  /** Bytes of a set. */
  setOf(regex: Regex): ByteSet {
    return this.#sets.get(regex)!;
  }

  protected automatonOf(regex: Regex): Automaton {
    return this.#automata[this.#lists.at(regex, 1)]!;
  }

  /** State of an automaton expression. */
  protected stateOf(regex: Regex): number {
    return this.#lists.at(regex, 2);
  }

  /**
   * True if it contains an intersection, a complement or an automaton; its language may then be empty
   * although it is not `empty`.
   */
  isBoolean(regex: Regex): boolean {
    return (this.#flags[regex]! & BOOLEAN) !== 0;
  }

  /** True if it contains a repetition with a count. */
  isCounted(regex: Regex): boolean {
    return (this.#flags[regex]! & COUNTED) !== 0;
  }

  /** True if it matches the empty string. */
  isNullable(regex: Regex): boolean {
    return (this.#flags[regex]! & NULLABLE) !== 0;
  }

  /** Approximate number of positions that its counts distinguish. */
  counts(regex: Regex): number {
    return this.#counts[regex]!;
  }

  /** Lower bound of a match's length in bytes. */
  bytesMin(regex: Regex): number {
    return this.#bytesMin[regex]!;
  }

  /**
   * True if every match is a match of `free`, which is free text (`FreeText`). False also where a quick check
   * cannot decide.
   */
  isWithin(regex: Regex, free: Regex): boolean {
    return this.#freeText.isWithin(regex, free);
  }

  /** Matches one byte of the set. */
  set(set: ByteSet): Regex {
    if (set.every((word) => word === 0)) return this.empty;
    const regex = this.#keep({ kind: "set", set });
    this.#sets.set(regex, set);
    return regex;
  }

  /** Matches one byte of inclusive ranges. */
  bytes(...ranges: readonly (readonly [number, number])[]): Regex {
    return this.set(byteSet(...ranges));
  }

  #byte(byte: number): Regex {
    let regex = this.#bytes[byte];
    if (regex === undefined) {
      regex = this.bytes([byte, byte]);
      this.#bytes[byte] = regex;
    }
    return regex;
  }

  /** Matches exactly these bytes. */
  literal(bytes: ArrayLike<number>): Regex {
    let regex = this.epsilon;
    for (let i = bytes.length - 1; i >= 0; i--) regex = this.join(this.#byte(bytes[i]!), regex);
    return regex;
  }

  /** Concatenation. */
  cat(...parts: readonly Regex[]): Regex {
    let regex = this.epsilon;
    for (let i = parts.length - 1; i >= 0; i--) regex = this.join(parts[i]!, regex);
    return regex;
  }

  /** Repetition of `min` to `max` iterations; `max` may be Infinity. */
  repeat(of: Regex, min: number, max: number): Regex {
    if (max === 0 || of === this.epsilon) return this.epsilon;
    if (of === this.empty) return min === 0 ? this.epsilon : this.empty;
    if (min === 1 && max === 1) return of;
    if (of === this.any || this.isStar(of)) return of;
    return this.#keep({ kind: "repeat", of, min: this.isNullable(of) ? 0 : min, max });
  }

  /** True for a repetition without bounds (Kleene star). */
  isStar(regex: Regex): boolean {
    if (this.kindOf(regex) !== "repeat") return false;
    return this.minOf(regex) === 0 && this.maxOf(regex) === Number.POSITIVE_INFINITY;
  }

  /** Kleene star. */
  star(of: Regex): Regex {
    return this.repeat(of, 0, Number.POSITIVE_INFINITY);
  }

  /** Optional expression. */
  optional(of: Regex): Regex {
    return this.alt([of, this.epsilon]);
  }

  /** Alternation (union) of expressions. */
  alt(given: readonly Regex[]): Regex {
    const parts: Regex[] = [];
    let only: Regex | null = null;
    let set: ByteSet | null = null;
    let hasEpsilon = false;
    let isNullable = false;
    for (const part of this.#flat("alt", given)) {
      if (this.kindOf(part) === "set") {
        only = set === null ? part : null;
        set = set === null ? this.setOf(part) : unionOf(set, this.setOf(part));
      } else if (part === this.any) return this.any;
      else if (part === this.epsilon) hasEpsilon = true;
      else if (part !== this.empty) {
        parts.push(part);
        isNullable ||= this.isNullable(part);
      }
    }
    if (set !== null) parts.push(only ?? this.set(set));
    if (hasEpsilon && !isNullable) parts.push(this.epsilon);
    mergeCounts(this, parts);
    const free = parts.length > 1 ? parts.find((part) => this.#freeText.timesOf(part) !== null) : undefined;
    if (free === undefined) return this.#many("alt", parts, this.empty);
    const others = parts.filter((part) => !this.#freeText.isWithin(part, free));
    return this.#many("alt", [free, ...others], this.empty);
  }

  /** Intersection of expressions. */
  and(given: readonly Regex[]): Regex {
    const parts: Regex[] = [];
    let only: Regex | null = null;
    let set: ByteSet | null = null;
    for (const part of this.#flat("and", given)) {
      if (this.kindOf(part) === "set") {
        only = set === null ? part : null;
        set = set === null ? this.setOf(part) : intersectionOf(set, this.setOf(part));
      } else if (part === this.empty) return this.empty;
      else if (part !== this.any) parts.push(part);
    }
    if (set !== null) parts.push(only ?? this.set(set));
    if (parts.includes(this.empty)) return this.empty;
    if (parts.includes(this.epsilon))
      return parts.every((part) => this.isNullable(part)) ? this.epsilon : this.empty;
    for (const excluded of parts) {
      if (this.kindOf(excluded) !== "not") continue;
      const of = this.partOf(excluded, 0);
      if (this.#freeText.timesOf(of) === null) continue;
      if (parts.some((part) => this.#freeText.isWithin(part, of))) return this.empty;
    }
    return this.#many("and", parts, this.any);
  }

  /** Replaces expressions of the kind by their parts. */
  #flat(kind: "alt" | "and", given: readonly Regex[]): Regex[] {
    const flat: Regex[] = [];
    for (const one of given) {
      if (this.kindOf(one) !== kind) flat.push(one);
      else for (let index = 0; index < this.partCount(one); index++) flat.push(this.partOf(one, index));
    }
    return flat;
  }

  /** Complement. */
  not(of: Regex): Regex {
    if (of === this.empty) return this.any;
    if (of === this.any) return this.empty;
    return this.kindOf(of) === "not" ? this.partOf(of, 0) : this.#keep({ kind: "not", of });
  }

  /** Language that the automaton accepts from the state; empty for the dead state -1. */
  automaton(automaton: Automaton, state = 0): Regex {
    if (state < 0) return this.empty;
    return this.#keep({ kind: "automaton", automaton, state });
  }

  /** Alternation of strings with shared prefixes. */
  literals(strings: readonly Uint8Array[]): Regex {
    const sorted = [...strings].sort(compareBytes);
    const build = (from: number, to: number, depth: number): Regex => {
      const parts: Regex[] = [];
      let at = from;
      while (at < to && sorted[at]!.length === depth) at++;
      if (at > from) parts.push(this.epsilon);
      if (at === to - 1) parts.push(this.literal(sorted[at]!.subarray(depth)));
      else {
        while (at < to) {
          const byte = sorted[at]![depth]!;
          const first = at;
          while (at < to && sorted[at]![depth] === byte) at++;
          // A run without a branch is one literal, so that long common prefixes need no recursion.
          let end = depth + 1;
          while (
            sorted[first]!.length > end &&
            sorted[at - 1]!.length > end &&
            sorted[first]![end] === sorted[at - 1]![end]
          )
            end++;
          parts.push(this.cat(this.literal(sorted[first]!.subarray(depth, end)), build(first, at, end)));
        }
      }
      return this.alt(parts);
    };
    return build(0, sorted.length, 0);
  }

  /** Concatenation of two expressions. */
  protected join(head: Regex, tail: Regex): Regex {
    if (head === this.empty || tail === this.empty) return this.empty;
    if (head === this.epsilon) return tail;
    if (tail === this.epsilon) return head;
    if (head === this.any && this.isNullable(tail)) return head;
    const kind = this.kindOf(head);
    // Moves a final byte set, such as a quote, into the alternatives. Otherwise each of their derivatives
    // would be concatenated with it again.
    if (kind === "alt" && this.kindOf(tail) === "set")
      return this.alt(this.partsOf(head).map((part) => this.join(part, tail)));
    if (kind === "cat") return this.join(this.partOf(head, 0), this.join(this.partOf(head, 1), tail));
    return this.#keep({ kind: "cat", head, tail });
  }

  #many(kind: "alt" | "and", given: Regex[], none: Regex): Regex {
    const parts = sortedOnce(given);
    if (parts.length === 0) return none;
    return parts.length === 1 ? parts[0]! : this.#keep({ kind, parts });
  }

  #keep(shape: RegexShape): Regex {
    const { size } = this;
    const regex = this.#lists.numberOf(numbersOf(shape, asNumber, this.#automatonNumber)) as Regex;
    if (regex < size) return regex;
    const { isNullable, isBoolean, isCounted, counts, bytesMin } = factsOf(shape, this);
    this.#flags = withRoom(this.#flags, size + 1);
    this.#counts = withRoom(this.#counts, size + 1);
    this.#bytesMin = withRoom(this.#bytesMin, size + 1);
    this.#flags[regex] = (isNullable ? NULLABLE : 0) | (isBoolean ? BOOLEAN : 0) | (isCounted ? COUNTED : 0);
    this.#counts[regex] = counts;
    this.#bytesMin[regex] = bytesMin;
    return regex;
  }

  readonly #automatonNumber = (automaton: Automaton): number => {
    let number = this.#automatonNumbers.get(automaton.name);
    if (number === undefined) {
      number = this.#automata.push(automaton) - 1;
      this.#automatonNumbers.set(automaton.name, number);
    }
    return number;
  };
}

const asNumber = (regex: Regex): number => regex;

/** Compares byte strings in the order of their bytes. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}
