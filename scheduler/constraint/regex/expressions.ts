import { type ByteSet, byteSet, intersectionOf, unionOf } from "./byte-set.ts";
import { FreeText } from "./free-text.ts";
import { mergeCounts } from "./merged-counts.ts";
import { pairOf, sortedOnce } from "./numbers.ts";
import { type Automaton, factsOf, type Node, type Regex, type RegexShape } from "./shape.ts";

/** Odd, with bits all over it (2 ** 32 by the golden ratio). */
const HASH_FACTOR = 0x9e3779b1;

/**
 * Regular expressions over bytes, each kept once and simplified as it is made, so that equal ones have equal numbers.
 *
 * Nothing is ever forgotten: the owner replaces the whole when `size` has grown too large.
 */
export class Expressions {
  /** Matches nothing. */
  readonly empty: Regex;
  /** Matches the empty string alone. */
  readonly epsilon: Regex;
  /** Matches every string. */
  readonly any: Regex;
  protected readonly nodes: Node[] = [];
  readonly #ids = new Map<string, Regex>();
  /** Concatenations, by both numbers. */
  readonly #cats = new Map<number, Regex>();
  /** Alternatives and intersections, by a hash of their parts. */
  readonly #lists = new Map<number, Regex[]>();
  readonly #freeText = new FreeText(this);
  /** By byte. */
  readonly #bytes: (Regex | undefined)[] = [];

  constructor() {
    this.empty = this.#intern("0", { kind: "empty" });
    this.epsilon = this.#intern("1", { kind: "epsilon" });
    this.any = this.#intern("*", { kind: "any" });
  }

  /** Expressions made so far. */
  get size(): number {
    return this.nodes.length;
  }

  /** What the expression is. */
  shapeOf(regex: Regex): RegexShape {
    return this.nodes[regex]!.shape;
  }

  /** Whether it holds an intersection or a complement, so that its language may be empty without its being `empty`. */
  isBoolean(regex: Regex): boolean {
    return this.nodes[regex]!.isBoolean;
  }

  /** Whether it holds a repetition with a count. */
  isCounted(regex: Regex): boolean {
    return this.nodes[regex]!.isCounted;
  }

  /** Whether it matches the empty string. */
  isNullable(regex: Regex): boolean {
    return this.nodes[regex]!.isNullable;
  }

  /** About how many places its counts tell apart. */
  counts(regex: Regex): number {
    return this.nodes[regex]!.counts;
  }

  /** No match has fewer bytes. */
  bytesMin(regex: Regex): number {
    return this.nodes[regex]!.bytesMin;
  }

  /** Whether all that it matches is matched by free text, which is something any number of times; false also where that is not seen at
   *  a glance. */
  isWithin(regex: Regex, free: Regex): boolean {
    return this.#freeText.isWithin(regex, free);
  }

  /** One byte of the set. */
  set(set: ByteSet): Regex {
    if (set.every((word) => word === 0)) return this.empty;
    return this.#intern(`s${set.join()}`, { kind: "set", set });
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
    const node = this.nodes[of]!;
    if (node.shape.kind === "any") return of;
    if (node.shape.kind === "repeat" && node.shape.min === 0 && node.shape.max === Infinity) return of;
    const least = node.isNullable ? 0 : min;
    return this.#intern(`r${of},${least},${max}`, { kind: "repeat", of, min: least, max });
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
      const node = this.nodes[part]!;
      if (node.shape.kind === "set") {
        only = set === null ? part : null;
        set = set === null ? node.shape.set : unionOf(set, node.shape.set);
      } else if (part === this.any) return this.any;
      else if (part === this.epsilon) hasEpsilon = true;
      else if (part !== this.empty) {
        parts.push(part);
        isNullable ||= node.isNullable;
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
      const { shape } = this.nodes[part]!;
      if (shape.kind === "set") {
        only = set === null ? part : null;
        set = set === null ? shape.set : intersectionOf(set, shape.set);
      } else if (part === this.empty) return this.empty;
      else if (part !== this.any) parts.push(part);
    }
    if (set !== null) parts.push(only ?? this.set(set));
    if (parts.includes(this.empty)) return this.empty;
    if (parts.includes(this.epsilon))
      return parts.every((part) => this.isNullable(part)) ? this.epsilon : this.empty;
    for (const excluded of parts) {
      const { shape } = this.nodes[excluded]!;
      if (shape.kind !== "not" || this.#freeText.timesOf(shape.of) === null) continue;
      if (parts.some((part) => this.#freeText.isWithin(part, shape.of))) return this.empty;
    }
    return this.#many("and", parts, this.any);
  }

  /** With the parts of those that are of the kind in place of them. */
  #flat(kind: "alt" | "and", given: readonly Regex[]): Regex[] {
    const flat: Regex[] = [];
    for (const one of given) {
      const { shape } = this.nodes[one]!;
      if (shape.kind === kind) for (const part of shape.parts) flat.push(part);
      else flat.push(one);
    }
    return flat;
  }

  /** What it does not match. */
  not(of: Regex): Regex {
    if (of === this.empty) return this.any;
    if (of === this.any) return this.empty;
    const { shape } = this.nodes[of]!;
    if (shape.kind === "not") return shape.of;
    return this.#intern(`n${of}`, { kind: "not", of });
  }

  /** What the automaton accepts from the state; -1 is dead. */
  automaton(automaton: Automaton, state = 0): Regex {
    if (state < 0) return this.empty;
    return this.#intern(`a${automaton.name}:${state}`, { kind: "automaton", automaton, state });
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
    const node = this.nodes[head]!;
    const rest = this.nodes[tail]!;
    // A quote is within what it ends: else each derivative of that would be put together with it anew, from the end on.
    if (node.shape.kind === "alt" && rest.shape.kind === "set")
      return this.alt(node.shape.parts.map((part) => this.join(part, tail)));
    if (node.shape.kind === "cat") return this.join(node.shape.head, this.join(node.shape.tail, tail));
    const key = pairOf(head, tail);
    let id = this.#cats.get(key);
    if (id === undefined) {
      id = this.#add({ kind: "cat", head, tail });
      this.#cats.set(key, id);
    }
    return id;
  }

  #many(kind: "alt" | "and", given: Regex[], none: Regex): Regex {
    const parts = sortedOnce(given);
    if (parts.length === 0) return none;
    if (parts.length === 1) return parts[0]!;
    let hash = kind === "alt" ? 1 : 2;
    for (const part of parts) hash = Math.imul(hash ^ part, HASH_FACTOR);
    const alike = this.#lists.get(hash);
    for (const id of alike ?? []) {
      const { shape } = this.nodes[id]!;
      if (shape.kind === kind && areEqual(shape.parts, parts)) return id;
    }
    const id = this.#add({ kind, parts });
    if (alike === undefined) this.#lists.set(hash, [id]);
    else alike.push(id);
    return id;
  }

  #intern(key: string, shape: RegexShape): Regex {
    let id = this.#ids.get(key);
    if (id === undefined) {
      id = this.#add(shape);
      this.#ids.set(key, id);
    }
    return id;
  }

  #add(shape: RegexShape): Regex {
    // In one order, so that nodes are alike to the engine that runs this.
    const { isNullable, isBoolean, isCounted, counts, bytesMin } = factsOf(
      shape,
      (part) => this.nodes[part]!,
    );
    const [partition, next, isEmpty] = [null, null, null];
    const node = { shape, isNullable, isBoolean, isCounted, counts, bytesMin, partition, next, isEmpty };
    return (this.nodes.push(node) - 1) as Regex;
  }
}

function areEqual(a: readonly Regex[], b: readonly Regex[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Byte strings in the order of their bytes. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) if (a[i] !== b[i]) return a[i]! - b[i]!;
  return a.length - b.length;
}
