import { Budget } from "../error.ts";
import { withRoom } from "../parser/lists.ts";
import { hasByte, type Partition, Partitions } from "./byte-set.ts";
import { Clamping, type Unlimited } from "./clamping.ts";
import { CountedIntersections } from "./counted.ts";
import { Expressions } from "./expressions.ts";
import type { Regex } from "./shape.ts";
import type { RegexTable } from "./tables.ts";

export type { Automaton, Regex, RegexShape } from "./shape.ts";

/** Longest path to an end, in bytes, that is kept to be tried again. */
const WAY_MAX = 16;
/** States that are searched before any counting of iterations. */
const NEAR_STATES = 3;
/** Emptiness of a boolean expression's language; 0 if not known yet. */
const HAS_END = 1;
const IS_EMPTY = 2;

/**
 * Regular expressions over bytes with intersection and complement, matched by derivatives (Brzozowski,
 * "Derivatives of regular expressions", JACM 1964). Derivatives are taken per byte class, as in Owens, Reppy
 * and Turon, "Regular-expression derivatives re-examined", JFP 2009. Expressions are interned, so they are
 * the states of a DFA that is built lazily as it is walked.
 */
export class Regexes extends Expressions implements RegexTable {
  readonly #partitions = new Partitions();
  readonly #counted = new CountedIntersections(this);
  readonly #clamping = new Clamping(this, this.#counted);
  /**
   * Partition number plus 1 of each expression, and the offset of its derivatives in `#next`; 0 if not known
   * yet.
   */
  #partitionOf: Int32Array;
  #nextAt: Int32Array;
  /** Derivative plus 1 for each class of an expression's partition; 0 if not known yet. */
  #next: Int32Array;
  #nextEnd = 1;
  #emptiness: Uint8Array;
  /** Bytes that last led from an expression to an end. */
  #way: readonly number[] = [];
  /**
   * Budget of the derivatives, which are interrupted while it is paused. The owner replaces it for each piece
   * of work.
   */
  budget = new Budget(Number.POSITIVE_INFINITY);

  constructor(room = 16) {
    super(room);
    this.#partitionOf = new Int32Array(room);
    this.#nextAt = new Int32Array(room);
    this.#next = new Int32Array(4 * room);
    this.#emptiness = new Uint8Array(room);
  }

  /** Byte classes of the expression: all bytes of a class have the same derivative. */
  partitionOf(regex: Regex): Partition {
    const known = this.#partitionOf[regex] ?? 0;
    if (known > 0) return this.#partitions.all[known - 1]!;
    const partition = this.#partition(regex);
    this.#partitionOf = withRoom(this.#partitionOf, this.size);
    this.#partitionOf[regex] = partition.id + 1;
    return partition;
  }

  /** Coarsest partition that refines both. */
  refine(a: Partition, b: Partition): Partition {
    return this.#partitions.refine(a, b);
  }

  /** Partition with a single class. */
  get wholePartition(): Partition {
    return this.#partitions.whole;
  }

  /** Derivative by the byte: the possible rests of a match after it. */
  derivative(regex: Regex, byte: number): Regex {
    const { classOf, representatives } = this.partitionOf(regex);
    const index = classOf[byte]!;
    const at = (this.#nextAt[regex] || this.#placeNext(regex, representatives.length)) + index;
    const known = this.#next[at]!;
    if (known > 0) return (known - 1) as Regex;
    const next = this.#derive(regex, representatives[index]!);
    this.#next[at] = next + 1;
    return next;
  }

  #placeNext(regex: Regex, classes: number): number {
    const at = this.#nextEnd;
    this.#nextEnd += classes;
    this.#next = withRoom(this.#next, this.#nextEnd);
    this.#nextAt = withRoom(this.#nextAt, this.size);
    this.#nextAt[regex] = at;
    return at;
  }

  /** True if the language is empty. Exact and cached. */
  isEmpty(regex: Regex): boolean {
    if (!this.isBoolean(regex) || this.isNullable(regex)) return regex === this.empty;
    let emptiness = this.#emptiness[regex] ?? 0;
    if (emptiness === 0) {
      this.#findEmptiness(regex);
      emptiness = this.#emptiness[regex]!;
    }
    return emptiness === IS_EMPTY;
  }

  #findEmptiness(regex: Regex): void {
    const kind = this.kindOf(regex);
    let isEmpty: boolean | null = null;
    if (kind === "cat") isEmpty = this.isEmpty(this.partOf(regex, 0)) || this.isEmpty(this.partOf(regex, 1));
    else if (kind === "alt") isEmpty = this.partsOf(regex).every((part) => this.isEmpty(part));
    else if (kind === "repeat") isEmpty = this.isEmpty(this.partOf(regex, 0));
    else if (this.#goesSameWay(regex) || this.#isNear(regex)) return;
    else if (kind === "and")
      isEmpty = this.#isEmptyUncounted(regex) || this.#counted.isEmpty(this.partsOf(regex));
    if (isEmpty === null) this.#search(regex, Number.POSITIVE_INFINITY);
    else this.#noteEmptiness(regex, isEmpty);
  }

  /**
   * True if an intersection is empty even without its counted parts. Many intersections share the uncounted
   * parts, which have few states.
   */
  #isEmptyUncounted(regex: Regex): boolean {
    const uncounted = this.partsOf(regex).filter((part) => !this.isCounted(part));
    return uncounted.length < this.partCount(regex) && this.isEmpty(this.and(uncounted));
  }

  #noteEmptiness(regex: Regex, isEmpty: boolean): void {
    this.#emptiness = withRoom(this.#emptiness, this.size);
    this.#emptiness[regex] = isEmpty ? IS_EMPTY : HAS_END;
  }

  /**
   * Decides emptiness by a short search if an end, or a state known to have one, may be near. False if
   * undecided.
   */
  #isNear(regex: Regex): boolean {
    return this.bytesMin(regex) <= WAY_MAX && this.#search(regex, NEAR_STATES);
  }

  /**
   * Searches at most `statesMax` states for one that can end, and records emptiness. The search is depth
   * first, as ends are far where lengths are counted, and prefers states that seem nearest to an end. False
   * if undecided.
   */
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
            this.#noteEmptiness(on, false);
            if (from === null) break;
            way.push(from.byte);
          }
          if (way.length <= WAY_MAX) this.#way = way.reverse();
          return true;
        }
        if (next === this.empty || this.#emptiness[next] === IS_EMPTY || parents.has(next)) continue;
        parents.set(next, { at, byte });
        found.push(next);
      }
      open.push(...found.sort((a, b) => this.bytesMin(b) - this.bytesMin(a)));
    }
    for (const at of parents.keys()) this.#noteEmptiness(at, true);
    return true;
  }

  /**
   * True if the last path found leads to an end from here too, as is common at neighbouring places of a text.
   */
  #goesSameWay(start: Regex): boolean {
    const passed = [start];
    let at = start;
    for (const byte of this.#way) {
      at = this.derivative(at, byte);
      if (this.#hasEnd(at)) {
        for (const one of passed) this.#noteEmptiness(one, false);
        return true;
      }
      if (at === this.empty) return false;
      passed.push(at);
    }
    return false;
  }

  /** True if the language is known not to be empty. */
  #hasEnd(regex: Regex): boolean {
    if (this.isNullable(regex) || this.#emptiness[regex] === HAS_END) return true;
    return !this.isBoolean(regex) && regex !== this.empty;
  }

  /** True if it matches the bytes. */
  matches(regex: Regex, bytes: ArrayLike<number>): boolean {
    let at = regex;
    for (let i = 0; i < bytes.length && at !== this.empty; i++) at = this.derivative(at, bytes[i]!);
    return this.isNullable(at);
  }

  /** Expression equivalent to this one for the next `bytes` bytes, with fewer states (`Clamping`). */
  clamped(regex: Regex, bytes: number): Regex {
    return this.#clamping.clamped(regex, bytes);
  }

  /**
   * Length limit of an intersection, and the intersection without its upper limit, if it has one. Null for
   * other expressions.
   */
  unlimited(regex: Regex): Unlimited | null {
    return this.#clamping.unlimited(regex);
  }

  #partition(regex: Regex): Partition {
    const { whole } = this.#partitions;
    const kind = this.kindOf(regex);
    switch (kind) {
      case "empty":
      case "epsilon":
      case "any":
        return whole;
      case "set":
        return this.#partitions.ofSet(this.setOf(regex));
      case "cat": {
        const head = this.partOf(regex, 0);
        const partition = this.partitionOf(head);
        return this.isNullable(head)
          ? this.#partitions.refine(partition, this.partitionOf(this.partOf(regex, 1)))
          : partition;
      }
      case "repeat":
      case "not":
        return this.partitionOf(this.partOf(regex, 0));
      case "alt":
      case "and": {
        let partition = whole;
        for (let index = 0; index < this.partCount(regex); index++)
          partition = this.#partitions.refine(partition, this.partitionOf(this.partOf(regex, index)));
        return partition;
      }
      case "automaton":
        return this.#partitions.ofClasses(this.automatonOf(regex).classOf);
    }
  }

  #derive(regex: Regex, byte: number): Regex {
    this.budget.breakOff();
    this.budget.spend(1);
    const kind = this.kindOf(regex);
    switch (kind) {
      case "empty":
      case "epsilon":
        return this.empty;
      case "any":
        return this.any;
      case "set":
        return hasByte(this.setOf(regex), byte) ? this.epsilon : this.empty;
      case "cat": {
        const [head, tail] = [this.partOf(regex, 0), this.partOf(regex, 1)];
        const first = this.join(this.derivative(head, byte), tail);
        if (!this.isNullable(head)) return first;
        const second = this.derivative(tail, byte);
        if (first === this.empty) return second;
        return second === this.empty ? first : this.alt([first, second]);
      }
      case "repeat": {
        const of = this.partOf(regex, 0);
        const [min, max] = [this.minOf(regex), this.maxOf(regex)];
        return this.join(this.derivative(of, byte), this.repeat(of, Math.max(min - 1, 0), max - 1));
      }
      case "alt":
      case "and": {
        const count = this.partCount(regex);
        this.budget.spend(count);
        const parts: Regex[] = [];
        for (let index = 0; index < count; index++) {
          const next = this.derivative(this.partOf(regex, index), byte);
          if (next !== this.empty) parts.push(next);
          else if (kind === "and") return next;
        }
        if (parts.length === 1) return parts[0]!;
        return kind === "alt" ? this.alt(parts) : this.and(parts);
      }
      case "not":
        return this.not(this.derivative(this.partOf(regex, 0), byte));
      case "automaton": {
        const automaton = this.automatonOf(regex);
        const row = this.stateOf(regex) * automaton.classes;
        return this.automaton(automaton, automaton.next[row + automaton.classOf[byte]!]!);
      }
    }
  }
}
