import type { Budget } from "../error.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { type FreeParts, type Loops, NO_PART } from "./free-parts.ts";
import type { StringMasks, TokenSet } from "./string-tokens.ts";
import type { Mask } from "./vocabulary.ts";

/**
 * Special state numbers: not computed yet; no match possible; the string has ended; the bytes of the trie
 * byte's class lead to different states.
 */
const UNKNOWN = -1;
const DEAD = -2;
const END = -3;
const APART = -4;
/** Nodes between two checks of the budget, one step of work each. */
const NODES = 64;
/** Steps of work for a new transition, and for a new state. */
const FIND_STEPS = 16;
const STATE_STEPS = 64;
/** Steps of work for a token that is read by its original bytes. */
const TOKEN_STEPS = 2;
/** Nodes below parts that a state has visited before its looping bytes are computed. */
const LOOPS_AFTER_NODES = 2048;

/**
 * Walk of a token set along the rest of one string with its closing quote. It works as mask-walk.ts, but
 * follows only the expression, without a parser, and much faster. Derivatives are DFA states in a transition
 * table. The walk removes all tokens that do not continue the string.
 */
export class StringWalk {
  readonly #inside: Mask;
  readonly #beyond: Mask;
  /** True while each token that contains the closing quote has it at the same byte as in a free string. */
  isAlike = true;
  readonly #quoteEnd: Uint16Array;
  readonly #regexes: Regexes;
  readonly #loops: Loops;
  readonly #set: TokenSet;
  readonly #budget: Budget;
  /** Expression of each DFA state, and the state of each expression. */
  readonly #rests: Regex[] = [];
  readonly #numbers = new Map<Regex, number>();
  /** Transition table, 256 next states per state. Grows. */
  #table: Int32Array;
  /**
   * For each state: its free-string state, nodes visited below parts, and bytes that begin looping
   * characters.
   */
  readonly #freeStates: number[] = [];
  readonly #partNodes: number[] = [];
  readonly #loopsOf: (Uint32Array | null)[] = [];
  /** DFA state at each depth of the path to the current node. */
  readonly #states: Int32Array;
  /** Node to walk next. */
  #child = 1;

  /**
   * `quoteEnd`: bytes of each token up to and including the quote that would end a free string. `masks`: before the
   * walk, all tokens of the set count as inside the string, and none as beyond it. `table`: buffer of a finished walk to
   * overwrite, with room for at least a few states.
   */
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

  /** Table that another walk may overwrite after this one has ended. */
  get table(): Int32Array {
    return this.#table;
  }

  /** Walks until its budget is paused. False if more is left to walk. */
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
        this.#child = child; // the next call may be interrupted
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
          this.#child = child; // the next call may be interrupted
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

  /** True if the state accepts all tokens below a part. */
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

  /**
   * Reads tokens [from, to) of the trie by their original bytes from `depth` on: their first `depth` bytes
   * led to the state.
   */
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

  /** Removes tokens [from, to) of the trie. */
  #takeOut(from: number, to: number): void {
    const { tokens } = this.#set.trie;
    for (let at = from; at < to; at++) {
      const token = tokens[at]!;
      this.#inside[token >>> 5]! &= ~(1 << (token & 31));
    }
  }

  /** Marks tokens [from, to) of the trie as going beyond a quote that ends after `bytes` bytes. */
  #goBeyond(bytes: number, from: number, to: number): void {
    const { tokens } = this.#set.trie;
    for (let at = from; at < to; at++) {
      const token = tokens[at]!;
      this.#beyond[token >>> 5]! |= 1 << (token & 31);
      this.isAlike &&= this.#quoteEnd[token] === bytes;
    }
  }

  /** Computes the transition from the state on a byte of the trie or of a token. */
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
      // A string ends with its quote.
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
