import { Budget, ConstraintError } from "../error.ts";
import { type Grammar, IN_SEQUENCE, terminalsOf } from "../grammar.ts";
import type { Pieces } from "../mask/job.ts";
import { sortedOnce } from "../regex/numbers.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { Lexer, type LexState, NO_ENDS, NO_STATE } from "./lexer.ts";
import { Lists } from "./lists.ts";
import { type Frame, type Item, ParseSet } from "./parse-set.ts";
import { Productions } from "./productions.ts";

/** All that a text which has been read so far may be: terminals under way, each since a set. */
export interface ParseState {
  /** Of each thread, the set and what is under way since. What is beyond `count` is of no account. */
  readonly sets: readonly ParseSet[];
  readonly lexes: readonly LexState[];
  readonly count: number;
  /** Whether the text may end here. */
  readonly mayEnd: boolean;
}

/** A `ParseState` that is written anew again and again: a walk of a vocabulary goes through millions. */
export interface Place extends ParseState {
  readonly sets: ParseSet[];
  readonly lexes: LexState[];
  count: number;
  mayEnd: boolean;
}

/** A place without threads. */
export function noPlace(): Place {
  return { sets: [], lexes: [], count: 0, mayEnd: false };
}

/** One thread more, unless it is there already. */
export function addThread(place: Place, set: ParseSet, lex: LexState): void {
  const { sets, lexes, count } = place;
  for (let i = 0; i < count; i++) if (sets[i] === set && lexes[i] === lex) return;
  sets[count] = set;
  lexes[count] = lex;
  place.count = count + 1;
}

/** A state of its own, which stays as it is. */
export function copyOf({ sets, lexes, count, mayEnd }: ParseState): Place {
  return { sets: sets.slice(0, count), lexes: lexes.slice(0, count), count, mayEnd };
}

/** Sets that are remembered, and numbers of states; beyond, all are forgotten and made anew as they are needed. */
const SETS_MAX = 5000;
const STATES_MAX = 2 ** 16;
/** Places in productions, counts of repetitions included. */
const ITEMS_MAX = 2 ** 22;

/**
 * An Earley parser (Earley, "An efficient context-free parsing algorithm", CACM 1970) that reads bytes. It makes a set at
 * each place where a terminal may end, and keeps sets by what is in them and not by where they are: so what was parsed once
 * is looked up the next time, in this text or another, and the sets become an automaton. The last symbol of a production
 * completes what the production would (a tail call), so that lists do not grow chains.
 */
export class Parser {
  readonly lexer: Lexer;
  readonly #productions: Productions;
  /** Items are numbered: the first of each production. */
  readonly #firstItems: Float64Array;
  /** Sets by the items that they were made of, and by what ended where: sets and terminals, in pairs. */
  #kernels = new Lists();
  #setsOfKernels: ParseSet[] = [];
  #endings = new Lists();
  #setsAfter: ParseSet[] = [];
  /** Threads of states, and the number of the first of them. */
  #states = new Lists();
  #firstState = 0;
  #frames = 1;
  #setCount = 0;
  #start: ParseState | null = null;
  /** Written anew by each `follow`, `read` and `numberOf`. */
  readonly #ending = noPlace();
  readonly #between = noPlace();
  readonly #key: number[] = [];

  /** Reads what the grammar allows; its terminals become expressions of `regexes`. */
  static of(grammar: Grammar, regexes: Regexes): Parser {
    const { value } = Parser.inPieces(grammar, regexes, new Budget(Number.POSITIVE_INFINITY)).next();
    return value!;
  }

  /** The same, as work that can be cut. */
  static *inPieces(grammar: Grammar, regexes: Regexes, budget: Budget): Pieces<Parser> {
    return new Parser(grammar, regexes, yield* terminalsOf(grammar, regexes, budget));
  }

  private constructor(grammar: Grammar, regexes: Regexes, terminals: readonly Regex[]) {
    this.lexer = new Lexer(regexes, terminals);
    const isEmpty = Uint8Array.from(terminals, (regex) => (regexes.isNullable(regex) ? 1 : 0));
    this.#productions = new Productions(grammar, isEmpty);
    const { count } = this.#productions;
    this.#firstItems = new Float64Array(count);
    let items = 0;
    for (let production = 0; production < count; production++) {
      this.#firstItems[production] = items;
      items += 1 + this.#productions.dotMax(production);
    }
    if (items >= ITEMS_MAX) throw new ConstraintError(`it counts up to ${items}; ${ITEMS_MAX} is the most`);
  }

  /** Before the first byte. */
  get start(): ParseState {
    if (this.#start === null) {
      const frame: Frame = { id: 0, origin: null };
      const set = this.#setOf(this.#itemsOf(0, frame));
      const start = noPlace();
      if (set.lex !== NO_STATE) addThread(start, set, set.lex);
      start.mayEnd = set.isFinal;
      this.#start = start;
    }
    return this.#start;
  }

  /** After one more byte; null: no text goes on so. */
  next(state: ParseState, byte: number): ParseState | null {
    const to = noPlace();
    return this.follow(state, byte, to) ? to : null;
  }

  /** Writes to `to` what the text may be after bytes [from, end), one at least. False: no text goes on so. */
  read(state: ParseState, bytes: Uint8Array, from: number, end: number, to: Place): boolean {
    let before = state;
    // So that the last one is written to `to`.
    let [after, spare] = (end - from) % 2 === 1 ? [to, this.#between] : [this.#between, to];
    for (let at = from; at < end; at++) {
      if (!this.follow(before, bytes[at]!, after)) return false;
      before = after;
      [after, spare] = [spare, after];
    }
    return true;
  }

  /** The state's number: the same one for the same threads, unless it was forgotten meanwhile. No other state ever has it. */
  numberOf({ sets, lexes, count, mayEnd }: ParseState): number {
    const key = this.#key;
    key[0] = mayEnd ? 1 : 0;
    for (let i = 0; i < count; i++) {
      key[2 * i + 1] = sets[i]!.id;
      key[2 * i + 2] = lexes[i]!;
    }
    if (this.#states.size >= STATES_MAX) {
      this.#firstState += STATES_MAX;
      this.#states = new Lists();
    }
    return this.#firstState + this.#states.numberOf(key, 1 + 2 * count);
  }

  /** Whether any text goes on with the byte. */
  goesOn({ lexes, count }: ParseState, byte: number): boolean {
    for (let i = 0; i < count; i++) if (this.lexer.next(lexes[i]!, byte) !== NO_STATE) return true;
    return false;
  }

  /** Writes to `to` what the text may be after one more byte. False: no text goes on so. */
  follow({ sets, lexes, count }: ParseState, byte: number, to: Place): boolean {
    const { lexer } = this;
    const ending = this.#ending;
    ending.count = 0;
    to.count = 0;
    for (let i = 0; i < count; i++) {
      const set = sets[i]!;
      const lex = lexer.next(lexes[i]!, byte);
      if (lex === NO_STATE) continue;
      const isEnding = lexer.endsOf(lex) !== NO_ENDS;
      if (isEnding) addThread(ending, set, lex);
      if (!isEnding || lexer.goesOn(lex)) addThread(to, set, lex);
    }
    to.mayEnd = false;
    if (ending.count === 0) return to.count > 0;
    const after = this.#afterAll(ending);
    if (after.lex !== NO_STATE) addThread(to, after, after.lex);
    to.mayEnd = after.isFinal;
    return true;
  }

  /** The byte that must follow; null: the text may end, or go on in several ways. */
  onlyByte({ lexes, count, mayEnd }: ParseState): number | null {
    if (mayEnd) return null;
    let only = -1;
    for (let i = 0; i < count; i++) {
      const byte = this.lexer.onlyByte(lexes[i]!);
      if (byte < 0 || (only >= 0 && only !== byte)) return null;
      only = byte;
    }
    return only < 0 ? null : only;
  }

  /** The set after terminals that began at `set` and end as those of the state do. */
  after(set: ParseSet, lex: LexState): ParseSet {
    const ending = this.#ending;
    ending.count = 0;
    addThread(ending, set, lex);
    return this.#afterAll(ending);
  }

  #afterAll({ sets, lexes, count }: Place): ParseSet {
    if (this.#setsOfKernels.length >= SETS_MAX) {
      this.#kernels = new Lists();
      this.#setsOfKernels = [];
      this.#endings = new Lists();
      this.#setsAfter = [];
    }
    const { lexer } = this;
    const key = this.#key;
    for (let i = 0; i < count; i++) {
      key[2 * i] = sets[i]!.id;
      key[2 * i + 1] = lexer.endsOf(lexes[i]!);
    }
    const number = this.#endings.numberOf(key, 2 * count);
    const known = this.#setsAfter[number];
    if (known !== undefined) return known;
    const items: Item[] = [];
    for (let i = 0; i < count; i++) {
      for (const terminal of lexer.terminalsOf(lexer.endsOf(lexes[i]!)))
        for (const item of sets[i]!.itemsFor(~terminal)) items.push(this.#advance(item));
    }
    const after = this.#setOf(items);
    this.#setsAfter[number] = after;
    return after;
  }

  /** All that a nonterminal may be, of which nothing is done. */
  #itemsOf(nonterminal: number, frame: Frame): Item[] {
    const productions = this.#productions;
    const items: Item[] = [];
    for (let one = productions.firstOf(nonterminal); one < productions.firstOf(nonterminal + 1); one++)
      items.push({ production: one, dot: 0, frame });
    return items;
  }

  #advance({ production, dot, frame }: Item): Item {
    const productions = this.#productions;
    const isEndless = productions.maxOf(production) === Number.POSITIVE_INFINITY;
    const next = isEndless ? Math.min(dot + 1, productions.minOf(production)) : dot + 1;
    return { production, dot: next, frame };
  }

  /** The set of these items and all that follows from them. */
  #setOf(kernel: readonly Item[]): ParseSet {
    const keys = sortedOnce(kernel.map((item) => this.#keyOf(item)));
    const number = this.#kernels.numberOf(keys);
    const known = this.#setsOfKernels[number];
    if (known !== undefined) return known;
    const set = this.#close(kernel);
    this.#setsOfKernels[number] = set;
    return set;
  }

  #keyOf({ production, dot, frame }: Item): number {
    return frame.id * ITEMS_MAX + this.#firstItems[production]! + dot;
  }

  #close(kernel: readonly Item[]): ParseSet {
    const productions = this.#productions;
    const known = new Set<number>();
    const items: Item[] = [];
    const add = (item: Item): void => {
      const key = this.#keyOf(item);
      if (known.has(key)) return;
      known.add(key);
      items.push(item);
    };
    /** By what they wait for: `~terminal`, or the number of a frame. */
    const waiting = new Map<number, Item[]>();
    /** Of the nonterminals that begin here. */
    const frames = new Map<number, Frame>();
    const set = new ParseSet(this.#setCount++);
    let isFinal = false;
    const begin = (nonterminal: number, frame: Frame): void => {
      for (const item of this.#itemsOf(nonterminal, frame)) add(item);
    };
    const frameOf = (nonterminal: number): Frame => {
      let frame = frames.get(nonterminal);
      if (frame === undefined) {
        frame = { id: this.#frames++, origin: set };
        frames.set(nonterminal, frame);
        begin(nonterminal, frame);
      }
      return frame;
    };
    const wait = (item: Item, symbol: number): void => {
      const what = symbol < 0 ? symbol : frameOf(symbol).id;
      const others = waiting.get(what);
      if (others === undefined) waiting.set(what, [item]);
      else others.push(item);
    };
    const complete = ({ id, origin }: Frame): void => {
      if (origin === null) isFinal = true;
      // What began here and is complete is empty: those that wait for it have gone on already.
      else if (origin !== set) for (const item of origin.itemsFor(id)) add(this.#advance(item));
    };
    for (const item of kernel) add(item);
    for (let i = 0; i < items.length; i++) {
      const item = items[i]!;
      const { production, dot, frame } = item;
      const min = productions.minOf(production);
      if (min !== IN_SEQUENCE) {
        const symbol = productions.symbolOf(production, 0);
        // Going on over an empty one changes nothing.
        if (dot >= min || productions.canBeEmpty(symbol)) complete(frame);
        if (dot < productions.maxOf(production)) wait(item, symbol);
      } else if (dot === productions.symbolCount(production)) complete(frame);
      else {
        const symbol = productions.symbolOf(production, dot);
        if (symbol >= 0 && dot === productions.symbolCount(production) - 1) begin(symbol, frame);
        else wait(item, symbol);
        if (productions.canBeEmpty(symbol)) add(this.#advance(item));
      }
    }
    this.lexer.regexes.budget.spend(items.length);
    const terminals = [...waiting.keys()].filter((what) => what < 0).map((what) => ~what);
    set.fill(waiting, this.lexer.start(terminals.sort((a, b) => a - b)), isFinal);
    return set;
  }
}
