import type { Budget } from "./error.ts";
import type { FreeParts, Loops } from "./free-parts.ts";
import type { Regex, Regexes } from "./regex/regexes.ts";
import type { StringMasks, TokenSet } from "./string-tokens.ts";
import type { Mask } from "./vocabulary.ts";

/** In place of the number of a state: what is left is not known yet, is nothing that matches, or no more than the end. */
const UNKNOWN = -1;
const DEAD = -2;
const END = -3;
/** Nodes between two looks at the budget: a step each. */
const NODES = 64;
/** Of a way from a state by a byte that is met the first time, and of a new state, in steps of work. */
const FIND_STEPS = 16;
const STATE_STEPS = 64;
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
  /** By depth: the state, and where the children end. */
  readonly #states: Int32Array;
  readonly #frameEnds: Int32Array;
  #depth = 0;
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
    const depths = set.trie.heights[0]! + 1;
    this.#states = new Int32Array(depths);
    this.#frameEnds = new Int32Array(depths);
    this.#states[0] = this.#stateOf(rest);
    this.#frameEnds[0] = set.trie.ends[0]!;
  }

  /** What another walk may write over once this one has ended. */
  get table(): Int32Array {
    return this.#table;
  }

  /** Walks until its budget is paused. False: there is more to walk. */
  run(): boolean {
    const { parts, trie } = this.#set;
    const { bytes, ends } = trie;
    const [states, frameEnds, freeStates] = [this.#states, this.#frameEnds, this.#freeStates];
    let [child, depth, table, nodes] = [this.#child, this.#depth, this.#table, 0];
    while (depth >= 0) {
      if (child === frameEnds[depth]) {
        depth -= 1;
        continue;
      }
      if (nodes === NODES) {
        this.#budget.spend(NODES);
        if (this.#budget.isPaused) break;
        nodes = 0;
      }
      nodes += 1;
      const state = states[depth]!;
      const end = ends[child]!;
      let next = table[state * 256 + bytes[child]!]!;
      if (next === UNKNOWN) {
        // Which may be broken off.
        this.#child = child;
        this.#depth = depth;
        next = this.#find(state, bytes[child]!);
        table = this.#table;
      }
      if (next >= 0) {
        const isLeaf = end === child + 1;
        const isFree = parts !== null && parts.states[child] === freeStates[next];
        if (!isLeaf && !isFree && (parts === null || !this.#isWhole(parts, child, next, end - child))) {
          child += 1;
          depth += 1;
          states[depth] = next;
          frameEnds[depth] = end;
          continue;
        }
      } else if (next === DEAD) this.#takeOut(child, end);
      else {
        this.#takeOut(child + 1, end);
        this.#goBeyond(depth + 1, child + 1, end);
      }
      child = end;
    }
    this.#child = child;
    this.#depth = depth;
    return depth < 0;
  }

  /** Whether the state goes on with all tokens below a node, which are so many nodes. */
  #isWhole(parts: FreeParts, node: number, state: number, nodes: number): boolean {
    const part = parts.partOf[node]!;
    if (part < 0) return false;
    let loops = this.#loopsOf[state]!;
    if (loops === null) {
      this.#partNodes[state]! += nodes;
      if (this.#partNodes[state]! < LOOPS_AFTER_NODES) return false;
      loops = this.#loops.loopsOf(this.#rests[state]!);
      this.#loopsOf[state] = loops;
    }
    return parts.isWhole(part, loops);
  }

  /** The tokens of nodes [from, to). */
  #takeOut(from: number, to: number): void {
    const { tokens, firstTokens } = this.#set.trie;
    const end = firstTokens[to]!;
    for (let at = firstTokens[from]!; at < end; at++) {
      const token = tokens[at]!;
      this.#inside[token >>> 5]! &= ~(1 << (token & 31));
    }
  }

  /** The tokens of nodes [from, to), which follow the quote after so many bytes. */
  #goBeyond(bytes: number, from: number, to: number): void {
    const { tokens, firstTokens } = this.#set.trie;
    const end = firstTokens[to]!;
    for (let at = firstTokens[from]!; at < end; at++) {
      const token = tokens[at]!;
      this.#beyond[token >>> 5]! |= 1 << (token & 31);
      this.isAlike &&= this.#quoteEnd[token] === bytes;
    }
  }

  #find(state: number, byte: number): number {
    this.#budget.spend(FIND_STEPS);
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
