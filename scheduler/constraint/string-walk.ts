import type { Budget } from "./error.ts";
import type { FreeParts } from "./free-parts.ts";
import type { Regex, Regexes } from "./regex/regexes.ts";
import type { Mask, Trie } from "./vocabulary.ts";

/** In place of the number of a state: what is left is not known yet, is nothing that matches, or no more than the end. */
const UNKNOWN = -1;
const DEAD = -2;
const END = -3;
/** Nodes between two looks at the budget. */
const NODES = 32;
/** Nodes below parts that a state came to, from which on it is found out which of them it goes on with whole. */
const LOOPS_AFTER_NODES = 2048;

/**
 * A walk of the vocabulary along the rest of one string, its closing quote included: as mask-walk.ts, but by the expression
 * alone, without a parser, and many times as fast: what is left after each byte is kept in a table, as states of an automaton.
 */
export class StringWalk {
  /** Tokens that stay inside of the string, up to its quote at most. */
  readonly inside: Mask;
  /** Those with the quote and more after it. */
  readonly beyond: Mask;
  /** Whether those have their quote where a free string has it, so far. */
  isAlike = true;
  readonly #quoteEnd: Uint16Array;
  readonly #regexes: Regexes;
  readonly #trie: Trie;
  readonly #parts: FreeParts | null;
  readonly #budget: Budget;
  /** What is left in each state, and the state's number by that. */
  readonly #rests: Regex[] = [];
  readonly #numbers = new Map<Regex, number>();
  /** The state after each of 256 bytes, by state. */
  #table = new Int32Array(16 * 256);
  /** By state: nodes below parts that were met, and the bytes that begin characters which lead back to it. */
  readonly #partNodes: number[] = [];
  readonly #loops: (Uint32Array | null)[] = [];
  /** By depth: the state, and where the children end. */
  readonly #states: number[] = [];
  readonly #ends: number[] = [];
  #child = 1;

  /** `quoteEnd`: by token, its bytes up to the quote that would end a free string and with it. `parts`: of the trie; null: none
   *  are known. */
  constructor(
    regexes: Regexes,
    trie: Trie,
    parts: FreeParts | null,
    quoteEnd: Uint16Array,
    rest: Regex,
    budget: Budget,
  ) {
    this.#quoteEnd = quoteEnd;
    this.inside = new Uint32Array(Math.ceil(quoteEnd.length / 32));
    this.beyond = new Uint32Array(this.inside.length);
    this.#regexes = regexes;
    this.#trie = trie;
    this.#parts = parts;
    this.#budget = budget;
    this.#states.push(this.#stateOf(rest));
    this.#ends.push(trie.ends[0]!);
  }

  /** Walks until its budget is paused. False: there is more to walk. */
  run(): boolean {
    const { bytes, ends, tokens, firstTokens } = this.#trie;
    const { inside } = this;
    const [states, frameEnds] = [this.#states, this.#ends];
    let child = this.#child;
    let nodes = NODES;
    while (states.length > 0) {
      if (child === frameEnds.at(-1)!) {
        states.pop();
        frameEnds.pop();
        continue;
      }
      if (nodes === NODES) {
        if (this.#budget.isPaused) break;
        this.#budget.spend(NODES);
        nodes = 0;
      }
      nodes++;
      const state = states.at(-1)!;
      const byte = bytes[child]!;
      const end = ends[child]!;
      let next = this.#table[state * 256 + byte]!;
      if (next === UNKNOWN) next = this.#find(state, byte);
      if (next === DEAD) {
        child = end;
        continue;
      }
      const after = firstTokens[child + 1]!;
      for (let at = firstTokens[child]!; at < after; at++) {
        const token = tokens[at]!;
        inside[token >>> 5]! |= 1 << (token & 31);
      }
      if (next === END) {
        this.#goBeyond(states.length, child + 1, end);
        child = end;
        continue;
      }
      const part = this.#parts === null ? -1 : this.#parts.at(child);
      if (part >= 0 && this.#isWhole(part, next, end - child)) {
        this.#addInside(child + 1, end);
        child = end;
        continue;
      }
      child++;
      if (child === end) continue;
      states.push(next);
      frameEnds.push(end);
    }
    this.#child = child;
    return states.length === 0;
  }

  /** Whether the state goes on with all tokens of a part of so many nodes. */
  #isWhole(part: number, state: number, nodes: number): boolean {
    const parts = this.#parts!;
    let loops = this.#loops[state]!;
    if (loops === null) {
      this.#partNodes[state]! += nodes;
      if (this.#partNodes[state]! < LOOPS_AFTER_NODES) return false;
      loops = parts.loopsOf(this.#rests[state]!);
      this.#loops[state] = loops;
    }
    return parts.isWhole(part, loops);
  }

  /** The tokens of nodes [from, to). */
  #addInside(from: number, to: number): void {
    const { tokens, firstTokens } = this.#trie;
    const end = firstTokens[to]!;
    for (let at = firstTokens[from]!; at < end; at++) {
      const token = tokens[at]!;
      this.inside[token >>> 5]! |= 1 << (token & 31);
    }
  }

  /** The tokens of nodes [from, to), which follow the quote after so many bytes. */
  #goBeyond(bytes: number, from: number, to: number): void {
    const { tokens, firstTokens } = this.#trie;
    const end = firstTokens[to]!;
    for (let at = firstTokens[from]!; at < end; at++) {
      const token = tokens[at]!;
      this.beyond[token >>> 5]! |= 1 << (token & 31);
      this.isAlike &&= this.#quoteEnd[token] === bytes;
    }
  }

  #find(state: number, byte: number): number {
    const rest = this.#regexes.derivative(this.#rests[state]!, byte);
    // After its quote nothing of a string goes on.
    const isDead = !this.#regexes.isNullable(rest) && this.#regexes.isEmpty(rest);
    const next = isDead ? DEAD : this.#regexes.isNullable(rest) ? END : this.#stateOf(rest);
    this.#table[state * 256 + byte] = next;
    return next;
  }

  #stateOf(rest: Regex): number {
    const known = this.#numbers.get(rest);
    if (known !== undefined) return known;
    this.#budget.spend(8);
    const number = this.#rests.length;
    if (256 * number === this.#table.length) {
      const larger = new Int32Array(2 * this.#table.length);
      larger.set(this.#table);
      this.#table = larger;
    }
    this.#table.fill(UNKNOWN, 256 * number, 256 * (number + 1));
    this.#rests.push(rest);
    this.#partNodes.push(0);
    this.#loops.push(null);
    this.#numbers.set(rest, number);
    return number;
  }
}
