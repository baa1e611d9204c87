import { Budget, ConstraintError } from "./error.ts";
import type { Grammar, Production } from "./grammar.ts";
import { terminalsOf } from "./grammar.ts";
import type { Pieces } from "./job.ts";
import { type Ends, Lexer, type LexState } from "./lexer.ts";
import type { Regex, Regexes } from "./regex/regexes.ts";

/** What waits for a nonterminal to be complete. The item goes on with the symbol after it. */
interface Frame {
  readonly id: number;
  /** Set in which the nonterminal began; null: the whole text. */
  readonly origin: ParseSet | null;
  readonly waiting: Item[];
}

/** A production, what of it is done, and the items that it completes. `dot` counts symbols, or the times of a repetition. */
interface Item {
  readonly production: number;
  readonly dot: number;
  readonly frame: Frame;
}

/** A place between two terminals: everything that may be under way there. Never changes once it is made, but for what is
 *  remembered in it. */
export class ParseSet {
  /** Items that wait for a terminal, by terminal. */
  readonly byTerminal = new Map<number, Item[]>();
  /** Sets after terminals that end together, by number of the ends. */
  readonly after = new Map<number, ParseSet>();
  /** Whether the text may end here. */
  isFinal = false;
  /** Before the next terminal; null: there is none. */
  lex: LexState | null = null;

  constructor(readonly id: number) {}
}

/** A terminal, or several, under way since a set. */
export interface Thread {
  readonly set: ParseSet;
  readonly lex: LexState;
}

/** All that a text which has been read so far may be. A value: what it was can be gone back to, and gone on from twice. */
export interface ParseState {
  readonly threads: readonly Thread[];
  /** Whether the text may end here. */
  readonly mayEnd: boolean;
}

/** A `ParseState` that is written anew again and again: a walk of a vocabulary goes through millions. */
export interface Place {
  /** Of each thread, the set and what is under way since. What is beyond `count` is of no account. */
  readonly sets: ParseSet[];
  readonly lexes: LexState[];
  count: number;
  mayEnd: boolean;
}

/** A place of these threads. */
export function placeOf(threads: readonly Thread[]): Place {
  const sets = threads.map(({ set }) => set);
  return { sets, lexes: threads.map(({ lex }) => lex), count: threads.length, mayEnd: false };
}

/** One thread more, unless it is there already. */
function addThread(place: Place, set: ParseSet, lex: LexState): void {
  const { sets, lexes, count } = place;
  for (let i = 0; i < count; i++) if (sets[i] === set && lexes[i] === lex) return;
  sets[count] = set;
  lexes[count] = lex;
  place.count = count + 1;
}

/** Sets that are remembered; beyond, all are forgotten and made anew as they are needed. */
const SETS_MAX = 5000;
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
  readonly #productions: readonly Production[];
  /** By nonterminal, the numbers of its productions. */
  readonly #ofNonterminal: readonly (readonly number[])[];
  readonly #isNullable: readonly boolean[];
  readonly #isEmptyTerminal: readonly boolean[];
  /** Items are numbered: the first of each production. */
  readonly #firstItems: readonly number[];
  readonly #sets = new Map<string, ParseSet>();
  readonly #startSymbol: number;
  #frames = 0;
  #setCount = 0;
  #start: ParseState | null = null;
  /** Of `follow`. */
  readonly #ending = placeOf([]);

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
    this.#productions = grammar.nonterminals.flat();
    let count = 0;
    this.#ofNonterminal = grammar.nonterminals.map((productions) => productions.map(() => count++));
    const isEmptyTerminal = terminals.map((regex) => regexes.isNullable(regex));
    this.#isNullable = nullableOf(grammar, isEmptyTerminal);
    this.#isEmptyTerminal = isEmptyTerminal;
    let items = 0;
    this.#firstItems = this.#productions.map((production) => {
      const first = items;
      items += 1 + (production.kind === "sequence" ? production.symbols.length : lastCount(production));
      return first;
    });
    if (items >= ITEMS_MAX) throw new ConstraintError(`it counts up to ${items}; ${ITEMS_MAX} is the most`);
    this.#startSymbol = grammar.start;
  }

  /** Before the first byte. */
  get start(): ParseState {
    if (this.#start === null) {
      const frame: Frame = { id: this.#frames++, origin: null, waiting: [] };
      const items = this.#ofNonterminal[this.#startSymbol]!.map((production) => ({
        production,
        dot: 0,
        frame,
      }));
      const set = this.#setOf(items);
      this.#start = this.stateAt(set);
    }
    return this.#start;
  }

  /** Where nothing but what begins at the set is under way. */
  stateAt(set: ParseSet): ParseState {
    return { threads: set.lex === null ? [] : [{ set, lex: set.lex }], mayEnd: set.isFinal };
  }

  /** After one more byte; null: no text goes on so. */
  next({ threads }: ParseState, byte: number): ParseState | null {
    const to = placeOf([]);
    if (!this.follow(placeOf(threads), byte, to)) return null;
    const { sets, lexes, mayEnd } = to;
    return { threads: lexes.map((lex, index) => ({ set: sets[index]!, lex })), mayEnd };
  }

  /** Whether any text goes on with the byte. */
  goesOn({ lexes, count }: Place, byte: number): boolean {
    for (let i = 0; i < count; i++) if (this.lexer.next(lexes[i]!, byte) !== null) return true;
    return false;
  }

  /** Writes to `to` what the text may be after one more byte. False: no text goes on so. */
  follow({ sets, lexes, count }: Place, byte: number, to: Place): boolean {
    const { lexer } = this;
    const ending = this.#ending;
    ending.count = 0;
    to.count = 0;
    for (let i = 0; i < count; i++) {
      const set = sets[i]!;
      const lex = lexer.next(lexes[i]!, byte);
      if (lex === null) continue;
      const isEnding = lex.ends.terminals.length > 0;
      if (isEnding) addThread(ending, set, lex);
      if (!isEnding || lexer.goesOn(lex)) addThread(to, set, lex);
    }
    to.mayEnd = false;
    if (ending.count === 0) return to.count > 0;
    const after = this.#afterAll(ending);
    if (after.lex !== null) addThread(to, after, after.lex);
    to.mayEnd = after.isFinal;
    return true;
  }

  /** The byte that must follow; null: the text may end, or go on in several ways. */
  onlyByte({ threads, mayEnd }: ParseState): number | null {
    if (mayEnd) return null;
    let only = -1;
    for (const { lex } of threads) {
      const byte = this.lexer.onlyByte(lex);
      if (byte < 0 || (only >= 0 && only !== byte)) return null;
      only = byte;
    }
    return only < 0 ? null : only;
  }

  /** The set after terminals that began at `set` and end together. */
  after(set: ParseSet, ends: Ends): ParseSet {
    let after = set.after.get(ends.id);
    if (after === undefined) {
      after = this.#setOf(this.#advanced(set, ends));
      set.after.set(ends.id, after);
    }
    return after;
  }

  #afterAll({ sets, lexes, count }: Place): ParseSet {
    if (count === 1) return this.after(sets[0]!, lexes[0]!.ends);
    const items: Item[] = [];
    for (let i = 0; i < count; i++) items.push(...this.#advanced(sets[i]!, lexes[i]!.ends));
    return this.#setOf(items);
  }

  #advanced(set: ParseSet, ends: Ends): Item[] {
    return ends.terminals.flatMap((terminal) =>
      set.byTerminal.get(terminal)!.map((item) => this.#advance(item)),
    );
  }

  #advance({ production, dot, frame }: Item): Item {
    const rule = this.#productions[production]!;
    const next =
      rule.kind === "repeat" && rule.max === Number.POSITIVE_INFINITY ? Math.min(dot + 1, rule.min) : dot + 1;
    return { production, dot: next, frame };
  }

  /** The set of these items and all that follows from them. */
  #setOf(kernel: readonly Item[]): ParseSet {
    const keys = kernel.map((item) => this.#keyOf(item)).sort((a, b) => a - b);
    const key = keys.filter((one, index) => one !== keys[index - 1]).join();
    let set = this.#sets.get(key);
    if (set !== undefined) return set;
    if (this.#sets.size >= SETS_MAX) {
      this.#sets.clear();
      this.#start = null;
    }
    set = this.#close(kernel);
    this.#sets.set(key, set);
    return set;
  }

  #keyOf({ production, dot, frame }: Item): number {
    return frame.id * ITEMS_MAX + this.#firstItems[production]! + dot;
  }

  #close(kernel: readonly Item[]): ParseSet {
    const set = new ParseSet(this.#setCount++);
    const known = new Set<number>();
    const items: Item[] = [];
    const add = (item: Item): void => {
      const key = this.#keyOf(item);
      if (known.has(key)) return;
      known.add(key);
      items.push(item);
    };
    /** Of the nonterminals that begin here. */
    const frames = new Map<number, Frame>();
    const begin = (nonterminal: number, frame: Frame): void => {
      for (const production of this.#ofNonterminal[nonterminal]!) add({ production, dot: 0, frame });
    };
    const wait = (item: Item, symbol: number): void => {
      if (symbol < 0) {
        const waiting = set.byTerminal.get(~symbol);
        if (waiting === undefined) set.byTerminal.set(~symbol, [item]);
        else waiting.push(item);
        return;
      }
      let frame = frames.get(symbol);
      if (frame === undefined) {
        frame = { id: this.#frames++, origin: set, waiting: [] };
        frames.set(symbol, frame);
        begin(symbol, frame);
      }
      frame.waiting.push(item);
    };
    const complete = ({ origin, waiting }: Frame): void => {
      if (origin === null) set.isFinal = true;
      // What began here and is complete is empty: those that wait for it have gone on already.
      else if (origin !== set) for (const item of waiting) add(this.#advance(item));
    };
    for (const item of kernel) add(item);
    for (let i = 0; i < items.length; i++) {
      const item = items[i]!;
      const { production, dot, frame } = item;
      const rule = this.#productions[production]!;
      if (rule.kind === "repeat") {
        // Going on over an empty one changes nothing.
        if (dot >= rule.min || this.#canBeEmpty(rule.symbol)) complete(frame);
        if (dot < rule.max) wait(item, rule.symbol);
        continue;
      }
      const symbol = rule.symbols[dot];
      if (symbol === undefined) complete(frame);
      else {
        if (symbol >= 0 && dot === rule.symbols.length - 1) begin(symbol, frame);
        else wait(item, symbol);
        if (this.#canBeEmpty(symbol)) add(this.#advance(item));
      }
    }
    this.lexer.regexes.budget.spend(items.length);
    set.lex = this.lexer.start([...set.byTerminal.keys()].sort((a, b) => a - b));
    return set;
  }

  #canBeEmpty(symbol: number): boolean {
    return symbol < 0 ? this.#isEmptyTerminal[~symbol]! : this.#isNullable[symbol]!;
  }
}

/** The highest count that a repetition tells apart. */
function lastCount({ min, max }: Production & { readonly kind: "repeat" }): number {
  return max === Number.POSITIVE_INFINITY ? min : max;
}

/** By nonterminal, whether it may be empty. */
function nullableOf({ nonterminals }: Grammar, isEmptyTerminal: readonly boolean[]): boolean[] {
  const isNullable = nonterminals.map(() => false);
  const canBeEmpty = (symbol: number): boolean =>
    symbol < 0 ? isEmptyTerminal[~symbol]! : isNullable[symbol]!;
  for (let hasChanged = true; hasChanged; ) {
    hasChanged = false;
    nonterminals.forEach((productions, nonterminal) => {
      if (isNullable[nonterminal]) return;
      const isEmpty = productions.some((production) =>
        production.kind === "sequence"
          ? production.symbols.every(canBeEmpty)
          : production.min === 0 || canBeEmpty(production.symbol),
      );
      if (!isEmpty) return;
      isNullable[nonterminal] = true;
      hasChanged = true;
    });
  }
  return isNullable;
}
