import type { Partition } from "./regex/byte-set.ts";
import type { Regex, Regexes } from "./regex/regexes.ts";

/** Terminals that may be under way, each with what is left of it: a state of the automaton of them all. */
export interface LexState {
  readonly id: number;
  readonly terminals: readonly number[];
  /** What is left of each. */
  readonly rests: readonly Regex[];
  /** Terminals that may end here; the same array for the same terminals. */
  readonly ends: Ends;
  readonly partition: Partition;
  /** By class of the partition; undefined: not computed yet, null: nothing goes on so. */
  readonly next: (LexState | null | undefined)[];
  /** Whether anything goes on; null: not known yet. */
  goesOn: boolean | null;
  /** The byte that must follow; -1: none must; null: not known yet. */
  onlyByte: number | null;
  /** The state that masks are made for in its place; null: not known yet. */
  clamped: LexState | null;
}

/** Terminals that end at one place. */
export interface Ends {
  readonly id: number;
  readonly terminals: readonly number[];
}

/** Of a state, in steps of work. */
const STATE_STEPS = 16;

/** The automaton of a grammar's terminals, built as far as it is walked. */
export class Lexer {
  readonly regexes: Regexes;
  readonly #terminals: readonly Regex[];
  readonly #states = new Map<string, LexState>();
  readonly #ends = new Map<string, Ends>();

  constructor(regexes: Regexes, terminals: readonly Regex[]) {
    this.regexes = regexes;
    this.#terminals = terminals;
  }

  /** Before the first byte of any of these terminals; null for none. Terminals that match nothing at all end here as well,
   *  which only the parser may look at: no terminal ends twice. */
  start(terminals: readonly number[]): LexState | null {
    return this.state(
      terminals,
      terminals.map((terminal) => this.#terminals[terminal]!),
    );
  }

  /** With what is left of each terminal. */
  state(terminals: readonly number[], rests: readonly Regex[]): LexState | null {
    if (terminals.length === 0) return null;
    const key = terminals.map((terminal, index) => `${terminal}:${rests[index]}`).join();
    let state = this.#states.get(key);
    if (state === undefined) {
      const { regexes } = this;
      regexes.budget.spend(STATE_STEPS + terminals.length);
      let partition = regexes.wholePartition;
      for (const rest of rests) partition = regexes.refine(partition, regexes.partitionOf(rest));
      const ends = this.#endsOf(terminals.filter((_, index) => regexes.isNullable(rests[index]!)));
      const next = new Array(partition.representatives.length).fill(undefined);
      state = {
        ...{ id: this.#states.size, terminals, rests, ends, partition, next },
        ...{ goesOn: null, onlyByte: null, clamped: null },
      };
      this.#states.set(key, state);
    }
    return state;
  }

  /** After one more byte; null: no terminal goes on with it. */
  next(state: LexState, byte: number): LexState | null {
    const index = state.partition.classOf[byte]!;
    const known = state.next[index];
    if (known !== undefined) return known;
    const { regexes } = this;
    const terminals: number[] = [];
    const rests: Regex[] = [];
    const representative = state.partition.representatives[index]!;
    for (let i = 0; i < state.terminals.length; i++) {
      const rest = regexes.derivative(state.rests[i]!, representative);
      if (regexes.isEmpty(rest)) continue;
      terminals.push(state.terminals[i]!);
      rests.push(rest);
    }
    const next = this.state(terminals, rests);
    state.next[index] = next;
    return next;
  }

  /** Whether any byte can follow. */
  goesOn(state: LexState): boolean {
    state.goesOn ??= state.partition.representatives.some((byte) => this.next(state, byte) !== null);
    return state.goesOn;
  }

  /** The byte that must follow; -1: nothing can, or not it alone. */
  onlyByte(state: LexState): number {
    state.onlyByte ??= this.#onlyByte(state);
    return state.onlyByte;
  }

  #onlyByte(state: LexState): number {
    const { classOf, representatives } = state.partition;
    let only = -1;
    for (const [index, byte] of representatives.entries()) {
      if (this.next(state, byte) === null) continue;
      if (only >= 0 || classOf.indexOf(index, byte + 1) >= 0) return -1;
      only = byte;
    }
    return only;
  }

  #endsOf(terminals: readonly number[]): Ends {
    const key = terminals.join();
    let ends = this.#ends.get(key);
    if (ends === undefined) {
      ends = { id: this.#ends.size, terminals };
      this.#ends.set(key, ends);
    }
    return ends;
  }
}
