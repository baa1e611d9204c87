import type { Regex, Regexes } from "../regex/regexes.ts";
import type { Trie } from "./vocabulary.ts";

/** Nodes below a node from which on it is recorded as a part. */
const PART_NODES_MIN = 16;
/** Stand-in for the number of a free string's state, for nodes that are no part. */
export const NO_PART = 255;
/** Words of a byte set. */
const WORDS = 8;

/**
 * Subtrees ("parts") of a vocabulary's trie in which everything is text inside a free JSON string. Whole
 * characters follow each other there, and no quote ends the string. Each part records the bytes with which
 * its characters begin. If all those characters lead an expression back to itself, every token of the part is
 * allowed without a walk.
 */
export class FreeParts {
  /**
   * Number (`freeStates`) of the free string's derivative at each node that has a large subtree; else
   * NO_PART.
   */
  readonly states: Uint8Array;
  readonly #regexes: Regexes;
  /** Expression of a free string with its closing quote. */
  readonly #free: Regex;
  readonly #numbers: ReadonlyMap<Regex, number>;
  readonly #meanings: readonly Uint8Array[];
  /** Part number of each node; -1 if it is none. */
  readonly partOf: Int32Array;
  /** Byte sets with which the characters of each part begin, WORDS words per part. */
  readonly #begins: number[] = [];

  /**
   * `meanings` gives the byte class of each trie byte; all bytes of a class have the same derivative of a
   * free string.
   */
  constructor(regexes: Regexes, free: Regex, trie: Trie, meanings: readonly Uint8Array[]) {
    this.#regexes = regexes;
    this.#free = free;
    this.#numbers = freeStates(regexes, free);
    this.states = new Uint8Array(trie.bytes.length).fill(NO_PART);
    this.partOf = new Int32Array(trie.bytes.length).fill(-1);
    this.#meanings = meanings;
    this.#visit(trie, 0, free);
  }

  /**
   * True if all tokens of the part continue a string that loops on every character whose first byte is in
   * `loops`.
   */
  isWhole(part: number, loops: Uint32Array): boolean {
    for (let word = 0; word < WORDS; word++)
      if ((this.#begins[part * WORDS + word]! & ~loops[word]!) !== 0) return false;
    return true;
  }

  /**
   * Set of bytes with which characters begin below the node, where `rest` is the free string's derivative.
   * Null if not everything below is text inside the string.
   */
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

/**
 * Derivatives of a free string inside it, numbered. The numbers are the same for the same string in another
 * `Regexes`.
 */
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

/** Characters on which expressions loop: their derivative is the expression itself. */
export class Loops {
  readonly #regexes: Regexes;
  /** Expression of a free string with its closing quote. */
  readonly #free: Regex;
  /** Set of bytes that begin looping characters, for each expression. */
  readonly #loops = new Map<Regex, Uint32Array>();
  readonly #freeStates: ReadonlyMap<Regex, number>;

  constructor(regexes: Regexes, free: Regex) {
    this.#regexes = regexes;
    this.#free = free;
    this.#freeStates = freeStates(regexes, free);
  }

  /** Number of the expression if it is a derivative of a free string (`freeStates`); -1 if it is not. */
  freeStateOf(rest: Regex): number {
    return this.#freeStates.get(rest) ?? -1;
  }

  /** Bytes that begin only characters after which the derivative equals the expression. */
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

  /**
   * True if all characters that begin with the byte are characters of the string and lead back to `start`.
   */
  #leadsBack(start: Regex, first: number): boolean {
    const regexes = this.#regexes;
    /** Derivative of the string for each derivative of the free string inside a character. */
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
