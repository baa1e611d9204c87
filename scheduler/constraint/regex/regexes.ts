import { Budget } from "../error.ts";
import { hasByte, type Partition, Partitions } from "./byte-set.ts";
import { Clamping, type Unlimited } from "./clamping.ts";
import { CountedIntersections } from "./counted.ts";
import { Expressions } from "./expressions.ts";
import type { Regex, RegexShape } from "./shape.ts";

export type { Automaton, Regex, RegexShape } from "./shape.ts";

/** Bytes of a way to an end that is tried again. */
const WAY_MAX = 16;
/** States that are searched for an end before it is counted how far it is. */
const NEAR_STATES = 3;

/**
 * Regular expressions over bytes with intersection and complement, matched by derivatives (Brzozowski, "Derivatives of
 * regular expressions", JACM 1964; with byte classes as in Owens, Reppy and Turon, "Regular-expression derivatives
 * re-examined", JFP 2009). As each is kept once, expressions are the states of an automaton that is built only as far as it is
 * walked.
 */
export class Regexes extends Expressions {
  readonly #partitions = new Partitions();
  readonly #counted = new CountedIntersections(this);
  readonly #clamping = new Clamping(this, this.#counted);
  /** Bytes that led from one expression to an end. */
  #way: readonly number[] = [];
  /** Spent by derivatives, which are broken off where it is paused; replaced by the owner per piece of work. */
  budget = new Budget(Number.POSITIVE_INFINITY);

  /** Bytes that lead to the same derivative are in one class. */
  partitionOf(regex: Regex): Partition {
    const node = this.nodes[regex]!;
    node.partition ??= this.#partition(node.shape);
    return node.partition;
  }

  /** The coarsest partition finer than both. */
  refine(a: Partition, b: Partition): Partition {
    return this.#partitions.refine(a, b);
  }

  /** One class. */
  get wholePartition(): Partition {
    return this.#partitions.whole;
  }

  /** What may follow the byte in a match. */
  derivative(regex: Regex, byte: number): Regex {
    const node = this.nodes[regex]!;
    const { classOf, representatives } = this.partitionOf(regex);
    node.next ??= new Int32Array(representatives.length).fill(-1);
    const index = classOf[byte]!;
    let next = node.next[index]!;
    if (next === -1) {
      next = this.#derive(node.shape, representatives[index]!);
      node.next[index] = next;
    }
    return next as Regex;
  }

  /** Whether it matches nothing at all. Exact; what is found out is remembered. */
  isEmpty(regex: Regex): boolean {
    const node = this.nodes[regex]!;
    if (!node.isBoolean || node.isNullable) return regex === this.empty;
    if (node.isEmpty === null) {
      const { shape } = node;
      if (shape.kind === "cat") node.isEmpty = this.isEmpty(shape.head) || this.isEmpty(shape.tail);
      else if (shape.kind === "alt") node.isEmpty = shape.parts.every((part) => this.isEmpty(part));
      else if (shape.kind === "repeat") node.isEmpty = this.isEmpty(shape.of);
      else if (!this.#goesSameWay(regex) && !this.#isNear(regex)) {
        const isEmpty = shape.kind === "and" ? this.#counted.isEmpty(shape.parts) : null;
        if (isEmpty === null) this.#search(regex, Number.POSITIVE_INFINITY);
        else node.isEmpty = isEmpty;
      }
    }
    return node.isEmpty!;
  }

  /** Finds out whether anything matches if an end may be near, or a state that is known to have one. False: it may not be. */
  #isNear(regex: Regex): boolean {
    return this.nodes[regex]!.bytesMin <= WAY_MAX && this.#search(regex, NEAR_STATES);
  }

  /** Finds out whether anything can be reached that matches, from so many states: those first that seem nearest to an end, and else
   *  depth first, as ends are far where lengths are counted. False: not from these. */
  #search(start: Regex, statesMax: number): boolean {
    const parents = new Map<Regex, { readonly at: Regex; readonly byte: number } | null>([[start, null]]);
    const open = [start];
    for (let states = 0; open.length > 0; states++) {
      if (states === statesMax) return false;
      const at = open.pop()!;
      const found: Regex[] = [];
      for (const byte of this.partitionOf(at).representatives) {
        const next = this.derivative(at, byte);
        if (this.#hasEnd(next)) {
          const way = [byte];
          for (let on = at, from = parents.get(on)!; ; on = from.at, from = parents.get(on)!) {
            this.nodes[on]!.isEmpty = false;
            if (from === null) break;
            way.push(from.byte);
          }
          if (way.length <= WAY_MAX) this.#way = way.reverse();
          return true;
        }
        if (next === this.empty || this.nodes[next]!.isEmpty === true || parents.has(next)) continue;
        parents.set(next, { at, byte });
        found.push(next);
      }
      open.push(...found.sort((a, b) => this.nodes[b]!.bytesMin - this.nodes[a]!.bytesMin));
    }
    for (const at of parents.keys()) this.nodes[at]!.isEmpty = true;
    return true;
  }

  /** Whether the way that was found last leads to an end from here too, as it often does from one place of a text and the
   *  next. */
  #goesSameWay(start: Regex): boolean {
    const passed = [start];
    let at = start;
    for (const byte of this.#way) {
      at = this.derivative(at, byte);
      if (this.#hasEnd(at)) {
        for (const one of passed) this.nodes[one]!.isEmpty = false;
        return true;
      }
      if (at === this.empty) return false;
      passed.push(at);
    }
    return false;
  }

  /** Whether it is known that something matches. */
  #hasEnd(regex: Regex): boolean {
    const { isBoolean, isNullable, isEmpty } = this.nodes[regex]!;
    return isNullable || isEmpty === false || (!isBoolean && regex !== this.empty);
  }

  /** Whether it matches the bytes. */
  matches(regex: Regex, bytes: ArrayLike<number>): boolean {
    let at = regex;
    for (let i = 0; i < bytes.length && at !== this.empty; i++) at = this.derivative(at, bytes[i]!);
    return this.isNullable(at);
  }

  /** An expression that goes the same way as this one for the next `bytes` bytes, and has fewer states (`Clamping`). */
  clamped(regex: Regex, bytes: number): Regex {
    return this.#clamping.clamped(regex, bytes);
  }

  /** An intersection with a limit of length, without that limit; or with a length that is not limited. Null: it is neither. */
  unlimited(regex: Regex): Unlimited | null {
    return this.#clamping.unlimited(regex);
  }

  #partition(shape: RegexShape): Partition {
    const { whole } = this.#partitions;
    switch (shape.kind) {
      case "empty":
      case "epsilon":
      case "any":
        return whole;
      case "set":
        return this.#partitions.ofSet(shape.set);
      case "cat": {
        const head = this.partitionOf(shape.head);
        return this.isNullable(shape.head)
          ? this.#partitions.refine(head, this.partitionOf(shape.tail))
          : head;
      }
      case "repeat":
      case "not":
        return this.partitionOf(shape.of);
      case "alt":
      case "and": {
        let partition = whole;
        for (const part of shape.parts)
          partition = this.#partitions.refine(partition, this.partitionOf(part));
        return partition;
      }
      case "automaton":
        return this.#partitions.ofClasses(shape.automaton.classOf);
    }
  }

  #derive(shape: RegexShape, byte: number): Regex {
    this.budget.breakOff();
    this.budget.spend(1);
    switch (shape.kind) {
      case "empty":
      case "epsilon":
        return this.empty;
      case "any":
        return this.any;
      case "set":
        return hasByte(shape.set, byte) ? this.epsilon : this.empty;
      case "cat": {
        const first = this.join(this.derivative(shape.head, byte), shape.tail);
        if (!this.isNullable(shape.head)) return first;
        const second = this.derivative(shape.tail, byte);
        if (first === this.empty) return second;
        return second === this.empty ? first : this.alt([first, second]);
      }
      case "repeat": {
        const { of, min, max } = shape;
        return this.join(this.derivative(of, byte), this.repeat(of, Math.max(min - 1, 0), max - 1));
      }
      case "alt": {
        this.budget.spend(shape.parts.length);
        const parts: Regex[] = [];
        for (const part of shape.parts) {
          const next = this.derivative(part, byte);
          if (next !== this.empty) parts.push(next);
        }
        return parts.length === 1 ? parts[0]! : this.alt(parts);
      }
      case "and": {
        this.budget.spend(shape.parts.length);
        const parts: Regex[] = [];
        for (const part of shape.parts) {
          const next = this.derivative(part, byte);
          if (next === this.empty) return next;
          parts.push(next);
        }
        return this.and(parts);
      }
      case "not":
        return this.not(this.derivative(shape.of, byte));
      case "automaton": {
        const { automaton, state } = shape;
        return this.automaton(
          automaton,
          automaton.next[state * automaton.classes + automaton.classOf[byte]!]!,
        );
      }
    }
  }
}
