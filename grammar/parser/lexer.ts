import type { Partition } from "../regex/byte-set.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { Lists, withRoom } from "./lists.ts";

declare const brand: unique symbol;
/** DFA state of the lexer: the terminals that may be under way, each with its derivative. */
export type LexState = number & { readonly [brand]: "LexState" };
/** Dead state: no terminal continues. */
export const NO_STATE = -1 as LexState;

/** Number of a list of terminals that end at one place; equal lists have equal numbers. */
export type Ends = number;
/** No terminal ends. */
export const NO_ENDS: Ends = 0;

/** Steps of work for a new state. */
const STATE_STEPS = 16;

/** DFA of all terminals of a grammar, built lazily as it is walked. */
export class Lexer {
  readonly regexes: Regexes;
  readonly #terminals: readonly Regex[];
  /** Terminals of each state and their derivatives, alternating. */
  readonly #states = new Lists();
  readonly #ends = new Lists();
  readonly #partitions: Partition[] = [];
  #endsOf = new Int32Array(16);
  /**
   * Transitions. A state's row begins in `#next` at `#nextAt` and has one entry per byte class. An entry is
   * the next state plus 2; 1 for the dead state; 0 if not known yet.
   */
  #nextAt = new Int32Array(16);
  #next = new Int32Array(64);
  #nextEnd = 0;
  /**
   * Facts of each state, 0 if not known yet. `#goesOn` is 1 if a byte can follow, else 2. `#onlyByte` is the
   * only possible byte plus 2, or 1 for none. `#clamped` is the clamped state plus 1.
   */
  #goesOn = new Uint8Array(16);
  #onlyByte = new Int32Array(16);
  #clamped = new Int32Array(16);

  constructor(regexes: Regexes, terminals: readonly Regex[]) {
    this.regexes = regexes;
    this.#terminals = terminals;
    this.#ends.numberOf([]);
  }

  /**
   * State before the first byte of any of these terminals. Terminals that match the empty string end here
   * too, which only the parser may use: no terminal ends twice.
   */
  start(terminals: readonly number[]): LexState {
    return this.state(terminals.flatMap((terminal) => [terminal, this.#terminals[terminal]!]));
  }

  /** State of these terminals, each followed by its derivative in `parts`. */
  state(parts: readonly number[]): LexState {
    if (parts.length === 0) return NO_STATE;
    const { size } = this.#states;
    const state = this.#states.numberOf(parts) as LexState;
    if (state === size) this.#make(state);
    return state;
  }

  #make(state: LexState): void {
    const { regexes } = this;
    const ending: number[] = [];
    let partition = regexes.wholePartition;
    for (let index = 0; index < this.count(state); index++) {
      const rest = this.rest(state, index);
      partition = regexes.refine(partition, regexes.partitionOf(rest));
      if (regexes.isNullable(rest)) ending.push(this.terminal(state, index));
    }
    this.#partitions.push(partition);
    this.#endsOf = withRoom(this.#endsOf, state + 1);
    this.#endsOf[state] = this.#ends.numberOf(ending);
    this.#nextAt = withRoom(this.#nextAt, state + 1);
    this.#nextAt[state] = this.#nextEnd;
    this.#nextEnd += partition.representatives.length;
    this.#next = withRoom(this.#next, this.#nextEnd);
    this.#goesOn = withRoom(this.#goesOn, state + 1);
    this.#onlyByte = withRoom(this.#onlyByte, state + 1);
    this.#clamped = withRoom(this.#clamped, state + 1);
    regexes.budget.spend(STATE_STEPS + this.count(state));
  }

  /** Number of terminals under way. */
  count(state: LexState): number {
    return this.#states.lengthOf(state) / 2;
  }

  terminal(state: LexState, index: number): number {
    return this.#states.at(state, 2 * index);
  }

  /** Derivative of a terminal. */
  rest(state: LexState, index: number): Regex {
    return this.#states.at(state, 2 * index + 1) as Regex;
  }

  /** Terminals that may end here. */
  endsOf(state: LexState): Ends {
    return this.#endsOf[state]!;
  }

  terminalsOf(ends: Ends): number[] {
    return this.#ends.listOf(ends);
  }

  /** State after one more byte. */
  next(state: LexState, byte: number): LexState {
    const at = this.#nextAt[state]! + this.#partitions[state]!.classOf[byte]!;
    const known = this.#next[at]!;
    return known > 0 ? ((known - 2) as LexState) : this.#findNext(state, byte, at);
  }

  #findNext(state: LexState, byte: number, at: number): LexState {
    const { regexes } = this;
    const { classOf, representatives } = this.#partitions[state]!;
    const parts: number[] = [];
    for (let index = 0; index < this.count(state); index++) {
      const rest = regexes.derivative(this.rest(state, index), representatives[classOf[byte]!]!);
      if (!regexes.isEmpty(rest)) parts.push(this.terminal(state, index), rest);
    }
    const next = this.state(parts);
    this.#next[at] = next === NO_STATE ? 1 : next + 2;
    return next;
  }

  /** True if any byte can follow. */
  goesOn(state: LexState): boolean {
    const known = this.#goesOn[state]!;
    if (known > 0) return known === 1;
    const { representatives } = this.#partitions[state]!;
    const goesOn = representatives.some((byte) => this.next(state, byte) !== NO_STATE);
    this.#goesOn[state] = goesOn ? 1 : 2;
    return goesOn;
  }

  /** Only byte that can follow; -1 if none can, or several. */
  onlyByte(state: LexState): number {
    const known = this.#onlyByte[state]!;
    if (known > 0) return known - 2;
    const only = this.#findOnlyByte(state);
    this.#onlyByte[state] = only + 2;
    return only;
  }

  #findOnlyByte(state: LexState): number {
    const { classOf, representatives } = this.#partitions[state]!;
    let only = -1;
    for (const [index, byte] of representatives.entries()) {
      if (this.next(state, byte) === NO_STATE) continue;
      if (only >= 0 || classOf.indexOf(index, byte + 1) >= 0) return -1;
      only = byte;
    }
    return only;
  }

  /** Clamped state, for which masks are made; NO_STATE if not known yet. */
  clampedOf(state: LexState): LexState {
    return (this.#clamped[state]! - 1) as LexState;
  }

  noteClamped(state: LexState, clamped: LexState): void {
    this.#clamped[state] = clamped + 1;
  }
}
