import { Lists, withRoom } from "../parser/lists.ts";
import { type ByteSet, byteSet, intersectionOf, unionOf } from "./byte-set.ts";
import { FreeText } from "./free-text.ts";
import { mergeCounts } from "./merged-counts.ts";
import { sortedOnce } from "./numbers.ts";
import { type Automaton, factsOf, kinds, numbersOf, type Regex, type RegexShape } from "./shape.ts";
import type { ExpressionTable } from "./tables.ts";

type Kind = RegexShape["kind"];

/** Bits of what is known of an expression. */
const NULLABLE = 1;
const BOOLEAN = 2;
const COUNTED = 4;

/**
 * Regular expressions over bytes, each kept once and simplified as it is made, so that equal ones have equal numbers. They are kept as
 * lists of numbers and not as objects: there are tens of thousands.
 *
 * Nothing is ever forgotten: the owner replaces the whole when `size` has grown too large.
 */
export class Expressions implements ExpressionTable {
  /** Matches nothing. */
  readonly empty: Regex;
  /** Matches the empty string alone. */
  readonly epsilon: Regex;
  /** Matches every string. */
  readonly any: Regex;
  /** By expression, its shape as numbers (`numbersOf`). */
  readonly #lists: Lists;
  /** By expression, what is known of it. */
  #flags: Uint8Array;
  #counts: Float64Array;
  #bytesMin: Float64Array;
  readonly #sets = new Map<Regex, ByteSet>();
  readonly #automata: Automaton[] = [];
  readonly #automatonNumbers = new Map<string, number>();
  readonly #freeText = new FreeText(this);
  /** By byte. */
  readonly #bytes: (Regex | undefined)[] = [];

  /** With room for so many: where there are more, all that is known is copied to larger arrays. */
  constructor(room = 16) {
    this.#lists = new Lists(room);
    this.#flags = new Uint8Array(room);
    this.#counts = new Float64Array(room);
    this.#bytesMin = new Float64Array(room);
    this.empty = this.#keep({ kind: "empty" });
    this.epsilon = this.#keep({ kind: "epsilon" });
    this.any = this.#keep({ kind: "any" });
  }

  /** Expressions made so far. */
  get size(): number {
    return this.#lists.size;
  }

  /** What the expression is: a new value each time. */
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

  /** The `kind` of its shape. */
  kindOf(regex: Regex): Kind {
    return kinds[this.#lists.at(regex, 0)]!;
  }

  /** The parts of its shape, in the order in which that names them. */
  partOf(regex: Regex, index: number): Regex {
    return this.#lists.at(regex, 1 + index) as Regex;
  }

  /** How many parts alternatives or an intersection have. */
  partCount(regex: Regex): number {
    return this.#lists.lengthOf(regex) - 1;
  }

  protected partsOf(regex: Regex): Regex[] {
    return this.#lists.listOf(regex, 1) as Regex[];
  }

  /** Of a repetition. */
  minOf(regex: Regex): number {
    return this.#lists.at(regex, 2);
  }

  /** Of a repetition. */
  maxOf(regex: Regex): number {
    return this.#lists.at(regex, 3);
  }

  /** Of a set. */
  setOf(regex: Regex): ByteSet {
    return this.#sets.get(regex)!;
  }

  protected automatonOf(regex: Regex): Automaton {
    return this.#automata[this.#lists.at(regex, 1)]!;
  }

  /** Of an automaton. */
  protected stateOf(regex: Regex): number {
    return this.#lists.at(regex, 2);
  }

  /** Whether it holds an intersection or a complement, so that its language may be empty without its being `empty`. */
  isBoolean(regex: Regex): boolean {
    return (this.#flags[regex]! & BOOLEAN) !== 0;
  }

  /** Whether it holds a repetition with a count. */
  isCounted(regex: Regex): boolean {
    return (this.#flags[regex]! & COUNTED) !== 0;
  }

  /** Whether it matches the empty string. */
  isNullable(regex: Regex): boolean {
    return (this.#flags[regex]! & NULLABLE) !== 0;
  }

  /** About how many places its counts tell apart. */
  counts(regex: Regex): number {
    return this.#counts[regex]!;
  }

  /** No match has fewer bytes. */
  bytesMin(regex: Regex): number {
    return this.#bytesMin[regex]!;
  }

  /** Whether all that it matches is matched by free text, which is something any number of times; false also where that is not seen at
   *  a glance. */
  isWithin(regex: Regex, free: Regex): boolean {
    return this.#freeText.isWithin(regex, free);
  }

  /** One byte of the set. */
  set(set: ByteSet): Regex {
    if (set.every((word) => word === 0)) return this.empty;
    const regex = this.#keep({ kind: "set", set });
    this.#sets.set(regex, set);
    return regex;
  }

  /** One byte of inclusive ranges. */
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

  /** These bytes and nothing else. */
  literal(bytes: ArrayLike<number>): Regex {
    let regex = this.epsilon;
    for (let i = bytes.length - 1; i >= 0; i--) regex = this.join(this.#byte(bytes[i]!), regex);
    return regex;
  }

  /** One after the other. */
  cat(...parts: readonly Regex[]): Regex {
    let regex = this.epsilon;
    for (let i = parts.length - 1; i >= 0; i--) regex = this.join(parts[i]!, regex);
    return regex;
  }

  /** min to max times; max may be Infinity. */
  repeat(of: Regex, min: number, max: number): Regex {
    if (max === 0 || of === this.epsilon) return this.epsilon;
    if (of === this.empty) return min === 0 ? this.epsilon : this.empty;
    if (min === 1 && max === 1) return of;
    if (of === this.any || this.isStar(of)) return of;
    return this.#keep({ kind: "repeat", of, min: this.isNullable(of) ? 0 : min, max });
  }

  /** Whether it is something any number of times. */
  isStar(regex: Regex): boolean {
    if (this.kindOf(regex) !== "repeat") return false;
    return this.minOf(regex) === 0 && this.maxOf(regex) === Number.POSITIVE_INFINITY;
  }

  /** Any number of times. */
  star(of: Regex): Regex {
    return this.repeat(of, 0, Number.POSITIVE_INFINITY);
  }

  /** Once or not at all. */
  optional(of: Regex): Regex {
    return this.alt([of, this.epsilon]);
  }

  /** What any of them matches. */
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

  /** What all of them match. */
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

  /** With the parts of those that are of the kind in place of them. */
  #flat(kind: "alt" | "and", given: readonly Regex[]): Regex[] {
    const flat: Regex[] = [];
    for (const one of given) {
      if (this.kindOf(one) !== kind) flat.push(one);
      else for (let index = 0; index < this.partCount(one); index++) flat.push(this.partOf(one, index));
    }
    return flat;
  }

  /** What it does not match. */
  not(of: Regex): Regex {
    if (of === this.empty) return this.any;
    if (of === this.any) return this.empty;
    return this.kindOf(of) === "not" ? this.partOf(of, 0) : this.#keep({ kind: "not", of });
  }

  /** What the automaton accepts from the state; -1 is dead. */
  automaton(automaton: Automaton, state = 0): Regex {
    if (state < 0) return this.empty;
    return this.#keep({ kind: "automaton", automaton, state });
  }

  /** Any of the strings; common beginnings are shared. */
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
          // A run without a branch is one literal, so that long common beginnings take no recursion.
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

  /** One after the other. */
  protected join(head: Regex, tail: Regex): Regex {
    if (head === this.empty || tail === this.empty) return this.empty;
    if (head === this.epsilon) return tail;
    if (tail === this.epsilon) return head;
    if (head === this.any && this.isNullable(tail)) return head;
    const kind = this.kindOf(head);
    // A quote is within what it ends: else each derivative of that would be put together with it anew, from the end on.
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

/** Byte strings in the order of their bytes. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}
