import type { Regex, Regexes } from "../regex/regexes.ts";
import type { Trie } from "./vocabulary.ts";

/** Nodes below a node that make it worth being known as a part. */
const PART_NODES_MIN = 16;
/** In place of the number of a free string's state, for nodes that are no part. */
export const NO_PART = 255;
/** Words of a set of bytes. */
const WORDS = 8;

/**
 * Parts of a vocabulary's trie in which all is text inside of a free JSON string: below their nodes, characters follow each
 * other whole, and no quote ends them. Of each it is known with which bytes its characters begin. A string of which such
 * characters lead back to where it was goes on with all tokens of the part, so that it need not be walked.
 */
export class FreeParts {
  /** By node with many below it, what is left of a free string, as `freeStates` numbers it; else NO_PART. */
  readonly states: Uint8Array;
  readonly #regexes: Regexes;
  /** A free string. */
  readonly #free: Regex;
  readonly #numbers: ReadonlyMap<Regex, number>;
  readonly #meanings: readonly Uint8Array[];
  /** By node, the number of its part; -1: it is none. */
  readonly partOf: Int32Array;
  /** By part, the set of bytes with which its characters begin. */
  readonly #begins: number[] = [];

  /** `meanings`: what each byte of the trie stands for, which all lead a free string the same way. */
  constructor(regexes: Regexes, free: Regex, trie: Trie, meanings: readonly Uint8Array[]) {
    this.#regexes = regexes;
    this.#free = free;
    this.#numbers = freeStates(regexes, free);
    this.states = new Uint8Array(trie.bytes.length).fill(NO_PART);
    this.partOf = new Int32Array(trie.bytes.length).fill(-1);
    this.#meanings = meanings;
    this.#visit(trie, 0, free);
  }

  /** Whether all tokens of the part go on with a string that may be continued by any characters that begin with `loops`. */
  isWhole(part: number, loops: Uint32Array): boolean {
    for (let word = 0; word < WORDS; word++)
      if ((this.#begins[part * WORDS + word]! & ~loops[word]!) !== 0) return false;
    return true;
  }

  /** The bytes with which characters begin below the node, at which `rest` is left of a free string; null: not all of it is
   *  text inside of one. */
  #visit(trie: Trie, node: number, rest: Regex): Uint32Array | null {
    const regexes = this.#regexes;
    const end = trie.ends[node]!;
    const isBetween = rest === this.#free;
    let begins: Uint32Array | null = new Uint32Array(WORDS);
    for (let child = node + 1; child < end; child = trie.ends[child]!) {
      const bytes = this.#meanings[trie.bytes[child]!]!;
      const next = regexes.derivative(rest, bytes[0]!);
      const isInside = next !== regexes.empty && next !== regexes.epsilon;
      if (isInside && trie.ends[child]! - child > PART_NODES_MIN)
        this.states[child] = this.#numbers.get(next)!;
      const below = isInside ? this.#visit(trie, child, next) : null;
      if (below === null) begins = null;
      else if (begins !== null) {
        for (let word = 0; word < WORDS; word++) begins[word]! |= below[word]!;
        if (isBetween) for (const byte of bytes) begins[byte >>> 5]! |= 1 << (byte & 31);
      }
    }
    if (begins !== null && isBetween && end - node > PART_NODES_MIN) {
      this.partOf[node] = this.#begins.length / WORDS;
      this.#begins.push(...begins);
    }
    return begins;
  }
}

/** What may be left of a free string inside of it, each with a number: the same ones for the same string of other `regexes`. */
export function freeStates(regexes: Regexes, free: Regex): ReadonlyMap<Regex, number> {
  const numbers = new Map([[free, 0]]);
  for (const state of numbers.keys()) {
    for (const byte of regexes.partitionOf(state).representatives) {
      const next = regexes.derivative(state, byte);
      if (next !== regexes.empty && next !== regexes.epsilon && !numbers.has(next))
        numbers.set(next, numbers.size);
    }
  }
  return numbers;
}

/** With which characters strings stay where they are. */
export class Loops {
  readonly #regexes: Regexes;
  /** A free string. */
  readonly #free: Regex;
  /** By expression, the set of bytes that begin characters which lead back to it. */
  readonly #loops = new Map<Regex, Uint32Array>();
  readonly #freeStates: ReadonlyMap<Regex, number>;

  constructor(regexes: Regexes, free: Regex) {
    this.#regexes = regexes;
    this.#free = free;
    this.#freeStates = freeStates(regexes, free);
  }

  /** The number of what is left if it is what is left of a free string (`freeStates`); -1: it is not. */
  freeStateOf(rest: Regex): number {
    return this.#freeStates.get(rest) ?? -1;
  }

  /** The bytes that begin characters after each of which what is left of a string is the same as before. */
  loopsOf(rest: Regex): Uint32Array {
    let loops = this.#loops.get(rest);
    if (loops === undefined) {
      loops = new Uint32Array(WORDS);
      const { classOf, representatives } = this.#regexes.refine(
        this.#regexes.partitionOf(this.#free),
        this.#regexes.partitionOf(rest),
      );
      const isLoop = representatives.map((byte) => this.#leadsBack(rest, byte));
      for (let byte = 0; byte < 256; byte++)
        if (isLoop[classOf[byte]!]) loops[byte >>> 5]! |= 1 << (byte & 31);
      this.#loops.set(rest, loops);
    }
    return loops;
  }

  /** Whether all characters that begin with the byte are characters of the string, and lead back to it. */
  #leadsBack(start: Regex, first: number): boolean {
    const regexes = this.#regexes;
    /** What is left of the free string, which is within a character, and of this one. */
    const rests = new Map<Regex, Regex>();
    const isBack = (free: Regex, rest: Regex, byte: number): boolean => {
      const nextFree = regexes.derivative(free, byte);
      const next = regexes.derivative(rest, byte);
      if (nextFree === regexes.empty) return true;
      if (nextFree === this.#free) return next === start;
      if (nextFree === regexes.epsilon || regexes.isNullable(next) || regexes.isEmpty(next)) return false;
      const known = rests.get(nextFree);
      if (known === undefined) rests.set(nextFree, next);
      return known === undefined || known === next;
    };
    if (!isBack(this.#free, start, first) || regexes.derivative(this.#free, first) === regexes.empty)
      return false;
    for (const [free, rest] of rests) {
      const { representatives } = regexes.refine(regexes.partitionOf(free), regexes.partitionOf(rest));
      regexes.budget.spend(representatives.length);
      if (!representatives.every((byte) => isBack(free, rest, byte))) return false;
    }
    return true;
  }
}
