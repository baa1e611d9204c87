import type { Budget } from "../error.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { type FreeParts, type Loops, NO_PART } from "./free-parts.ts";
import type { StringMasks, TokenSet } from "./string-tokens.ts";
import type { Mask } from "./vocabulary.ts";

/** In place of the number of a state: what is left is not known yet, is nothing that matches, or no more than the end; or is not
 *  the same after all that a byte of the trie stands for. */
const UNKNOWN = -1;
const DEAD = -2;
const END = -3;
const APART = -4;
/** Nodes between two looks at the budget: a step each. */
const NODES = 64;
/** Of a way from a state by a byte that is met the first time, and of a new state, in steps of work. */
const FIND_STEPS = 16;
const STATE_STEPS = 64;
/** Of a token that is read by its own bytes. */
const TOKEN_STEPS = 2;
/** Nodes below parts that a state came to, from which on it is found out which of them it goes on with whole. */
const LOOPS_AFTER_NODES = 2048;

/**
 * A walk of some tokens along the rest of one string, its closing quote included: as mask-walk.ts, but by the expression
 * alone, without a parser, and many times as fast: what is left after each byte is kept in a table, as states of an automaton.
 * Of all tokens those are taken out that do not go on.
 */
export class StringWalk {
  readonly #inside: Mask;
  readonly #beyond: Mask;
  /** Whether those have their quote where a free string has it, so far. */
  isAlike = true;
  readonly #quoteEnd: Uint16Array;
  readonly #regexes: Regexes;
  readonly #loops: Loops;
  readonly #set: TokenSet;
  readonly #budget: Budget;
  /** What is left in each state, and the state's number by that. */
  readonly #rests: Regex[] = [];
  readonly #numbers = new Map<Regex, number>();
  /** The state after each of 256 bytes, by state. Grows. */
  #table: Int32Array;
  /** By state: which of a free string it is; nodes below parts that were met, and the bytes that begin characters which lead back to it. */
  readonly #freeStates: number[] = [];
  readonly #partNodes: number[] = [];
  readonly #loopsOf: (Uint32Array | null)[] = [];
  /** By depth, the state after the node that is being walked or above it. */
  readonly #states: Int32Array;
  /** The node to be walked next. */
  #child = 1;

  /** `quoteEnd`: by token, its bytes up to the quote that would end a free string and with it. `masks`: all tokens of the set are
   *  inside, and none beyond, before the walk. `table`: what another walk left, to be written over; a few states at least. */
  constructor(
    regexes: Regexes,
    loops: Loops,
    set: TokenSet,
    quoteEnd: Uint16Array,
    rest: Regex,
    { inside, beyond }: StringMasks,
    budget: Budget,
    table: Int32Array,
  ) {
    this.#table = table;
    this.#inside = inside;
    this.#beyond = beyond;
    this.#quoteEnd = quoteEnd;
    this.#regexes = regexes;
    this.#loops = loops;
    this.#set = set;
    this.#budget = budget;
    this.#states = new Int32Array(set.trie.height + 1);
    this.#states[0] = this.#stateOf(rest);
  }

  /** What another walk may write over once this one has ended. */
  get table(): Int32Array {
    return this.#table;
  }

  /** Walks until its budget is paused. False: there is more to walk. */
  run(): boolean {
    const { parts, trie } = this.#set;
    const { bytes, depths, ends, firstTokens } = trie;
    const states = this.#states;
    let [child, table, nodes] = [this.#child, this.#table, 0];
    while (child < bytes.length) {
      if (nodes >= NODES) {
        this.#budget.spend(nodes);
        if (this.#budget.isPaused) break;
        nodes = 0;
      }
      nodes += 1;
      const depth = depths[child]!;
      const state = states[depth - 1]!;
      const next = table[state * 256 + bytes[child]!]!;
      if (next >= 0) {
        states[depth] = next;
        const isPart = parts !== null && parts.states[child] !== NO_PART;
        child = isPart && this.#isWhole(parts, child, next) ? ends[child]! : child + 1;
      } else if (next === UNKNOWN) {
        this.#child = child; // which may be broken off
        this.#find(state, bytes[child]!);
        table = this.#table;
      } else {
        const end = ends[child]!;
        const [first, below, last] = [firstTokens[child]!, firstTokens[child + 1]!, firstTokens[end]!];
        if (next === DEAD) this.#takeOut(first, last);
        else if (next === END) {
          this.#takeOut(below, last);
          this.#goBeyond(depth, below, last);
        } else {
          this.#child = child; // which may be broken off
          this.#readTokens(state, depth - 1, first, last);
          table = this.#table;
          nodes += TOKEN_STEPS * (last - first);
        }
        child = end;
      }
    }
    this.#child = child;
    return child === bytes.length;
  }

  /** Whether the state goes on with all tokens below a part. */
  #isWhole(parts: FreeParts, node: number, state: number): boolean {
    if (parts.states[node] === this.#freeStates[state]) return true;
    const part = parts.partOf[node]!;
    if (part < 0) return false;
    let loops = this.#loopsOf[state]!;
    if (loops === null) {
      this.#partNodes[state]! += this.#set.trie.ends[node]! - node;
      if (this.#partNodes[state]! < LOOPS_AFTER_NODES) return false;
      loops = this.#loops.loopsOf(this.#rests[state]!);
      this.#loopsOf[state] = loops;
    }
    return parts.isWhole(part, loops);
  }

  /** Tokens [from, to) of the trie, each by its own bytes from `depth` on: so many bytes of all led to the state. */
  #readTokens(state: number, depth: number, from: number, to: number): void {
    const { bytes, offsets } = this.#set;
    for (let at = from; at < to; at++) {
      const first = offsets[at]!;
      const end = offsets[at + 1]!;
      let next = state;
      let byte = first + depth;
      while (byte < end && next >= 0) next = this.#after(next, bytes[byte++]!);
      if (next === DEAD || byte < end) this.#takeOut(at, at + 1);
      if (next === END && byte < end) this.#goBeyond(byte - first, at, at + 1);
    }
  }

  #after(state: number, byte: number): number {
    const next = this.#table[state * 256 + byte]!;
    return next === UNKNOWN ? this.#find(state, byte) : next;
  }

  /** Tokens [from, to) of the trie. */
  #takeOut(from: number, to: number): void {
    const { tokens } = this.#set.trie;
    for (let at = from; at < to; at++) {
      const token = tokens[at]!;
      this.#inside[token >>> 5]! &= ~(1 << (token & 31));
    }
  }

  /** Tokens [from, to) of the trie, which follow the quote after so many bytes. */
  #goBeyond(bytes: number, from: number, to: number): void {
    const { tokens } = this.#set.trie;
    for (let at = from; at < to; at++) {
      const token = tokens[at]!;
      this.#beyond[token >>> 5]! |= 1 << (token & 31);
      this.isAlike &&= this.#quoteEnd[token] === bytes;
    }
  }

  /** Where the byte of the trie, or of a token, leads from the state. */
  #find(state: number, byte: number): number {
    this.#budget.spend(FIND_STEPS);
    const regexes = this.#regexes;
    const before = this.#rests[state]!;
    const { classOf } = regexes.partitionOf(before);
    const alike = this.#set.meanings[byte]!;
    const first = alike[0]!;
    let next = APART;
    if (alike.every((one) => classOf[one] === classOf[first])) {
      const rest = regexes.derivative(before, first);
      // After its quote nothing of a string goes on.
      if (regexes.isNullable(rest)) next = END;
      else next = regexes.isEmpty(rest) ? DEAD : this.#stateOf(rest);
    }
    this.#table[state * 256 + byte] = next;
    return next;
  }

  #stateOf(rest: Regex): number {
    const known = this.#numbers.get(rest);
    if (known !== undefined) return known;
    this.#budget.spend(STATE_STEPS);
    const number = this.#rests.length;
    if (256 * number === this.#table.length) {
      const larger = new Int32Array(2 * this.#table.length);
      larger.set(this.#table);
      this.#table = larger;
    }
    this.#table.fill(UNKNOWN, 256 * number, 256 * (number + 1));
    this.#rests.push(rest);
    this.#partNodes.push(0);
    this.#freeStates.push(this.#loops.freeStateOf(rest));
    this.#loopsOf.push(null);
    this.#numbers.set(rest, number);
    return number;
  }
}
