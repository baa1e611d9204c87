import { Budget, ConstraintError } from "../error.ts";
import { type Grammar, IN_SEQUENCE, terminalsOf } from "../grammar.ts";
import type { Pieces } from "../mask/job.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { sortedOnce } from "../regex/shape.ts";
import { type CameItems, Distinct, isFull } from "./distinct.ts";
import { Lexer, type LexState, NO_ENDS, NO_STATE } from "./lexer.ts";
import { Lists } from "./lists.ts";
import { type Frame, type Item, ParseSet } from "./parse-set.ts";
import { AFTER_ITEM, BEFORE_ITEM, Productions } from "./productions.ts";

/**
 * State of all parses of the text so far: threads, each an Earley set and the terminals under way since it.
 */
export interface ParseState {
  /** Earley set of each thread and the lexer state since it; entries beyond `count` are ignored. */
  readonly sets: readonly ParseSet[];
  readonly lexes: readonly LexState[];
  /**
   * Bytes of each thread since its set, a UTF-16 unit each, where an unfinished item must differ from others;
   * else "". Null if the bytes are not known, or the grammar has no distinct items. Items of unknown text
   * count as different from all.
   */
  readonly texts: readonly string[] | null;
  readonly count: number;
  /** True if the text may end here. */
  readonly mayEnd: boolean;
}

/** Mutable `ParseState`, reused because a walk of a vocabulary visits millions of states. */
export interface Place extends ParseState {
  readonly sets: ParseSet[];
  readonly lexes: LexState[];
  texts: string[] | null;
  count: number;
  mayEnd: boolean;
}

/** Place without threads. */
export function noPlace(): Place {
  return { sets: [], lexes: [], texts: null, count: 0, mayEnd: false };
}

/** Adds a thread, unless it is there already. */
export function addThread(place: Place, set: ParseSet, lex: LexState): void {
  const { sets, lexes, count } = place;
  for (let i = 0; i < count; i++) if (sets[i] === set && lexes[i] === lex) return;
  sets[count] = set;
  lexes[count] = lex;
  place.count = count + 1;
}

/** Adds a thread with its text since the set, unless it is there already. */
function addText(place: Place, texts: string[], set: ParseSet, lex: LexState, text: string): void {
  const { sets, lexes, count } = place;
  for (let i = 0; i < count; i++) if (sets[i] === set && lexes[i] === lex && texts[i] === text) return;
  sets[count] = set;
  lexes[count] = lex;
  texts[count] = text;
  place.count = count + 1;
}

/** Independent copy of a state. */
export function copyOf({ sets, lexes, texts, count, mayEnd }: ParseState): Place {
  return {
    sets: sets.slice(0, count),
    lexes: lexes.slice(0, count),
    texts: texts?.slice(0, count) ?? null,
    count,
    mayEnd,
  };
}

/** Cached sets, and state numbers, at most. Beyond that all are dropped and made again on demand. */
const SETS_MAX = 5000;
const STATES_MAX = 2 ** 16;
/** Places in productions, counts of repetitions included. */
const ITEMS_MAX = 2 ** 22;

/**
 * Earley parser that reads bytes (Earley, "An efficient context-free parsing algorithm", CACM 1970). It makes
 * an Earley set at each place where a terminal may end. Sets are interned by their items, not by their place
 * in the text. So a transition is computed once for all texts, and the sets become the states of an
 * automaton.
 *
 * The last symbol of a production completes the production's own frame (a tail call), so that right recursion
 * grows no chains of items.
 */
export class Parser {
  readonly lexer: Lexer;
  readonly #productions: Productions;
  readonly #terminals: readonly Regex[];
  /** Null if the grammar has no distinct items. */
  readonly #distinct: Distinct | null;
  /** Number of the first item of each production. */
  readonly #firstItems: Float64Array;
  /**
   * Sets by their kernel items, and sets by the pairs of a set and its ending terminals that lead to them.
   */
  #kernels = new Lists();
  #setsOfKernels: ParseSet[] = [];
  #endings = new Lists();
  #setsAfter: ParseSet[] = [];
  /** States by their threads, and the number of the first of them. */
  #states = new Lists();
  #firstState = 0;
  #textNumbers = new Map<string, number>();
  #frames = 1;
  #setCount = 0;
  #start: ParseState | null = null;
  /** Scratch, overwritten by each `follow`, `read` and `numberOf`. */
  readonly #ending = noPlace();
  readonly #between = noPlace();
  readonly #key: number[] = [];

  /** Parser of the grammar; its terminals become expressions of `regexes`. */
  static of(grammar: Grammar, regexes: Regexes): Parser {
    const { value } = Parser.inPieces(grammar, regexes, new Budget(Number.POSITIVE_INFINITY)).next();
    return value!;
  }

  /** Builds the parser as work that can be suspended. */
  static *inPieces(grammar: Grammar, regexes: Regexes, budget: Budget): Pieces<Parser> {
    return new Parser(grammar, regexes, yield* terminalsOf(grammar, regexes, budget));
  }

  private constructor(grammar: Grammar, regexes: Regexes, terminals: readonly Regex[]) {
    this.lexer = new Lexer(regexes, terminals);
    const isEmpty = Uint8Array.from(terminals, (regex) => (regexes.isNullable(regex) ? 1 : 0));
    this.#productions = new Productions(grammar, isEmpty);
    this.#terminals = terminals;
    this.#distinct = this.#productions.hasDistinct ? new Distinct(regexes) : null;
    const { count } = this.#productions;
    this.#firstItems = new Float64Array(count);
    let items = 0;
    for (let production = 0; production < count; production++) {
      this.#firstItems[production] = items;
      items += 1 + this.#productions.dotMax(production);
    }
    if (items >= ITEMS_MAX) throw new ConstraintError(`it counts up to ${items}; ${ITEMS_MAX} is the most`);
  }

  /** State before the first byte. */
  get start(): ParseState {
    if (this.#start === null) {
      const frame: Frame = { id: 0, origin: null };
      const set = this.#setOf(this.#itemsOf(0, frame));
      const start = noPlace();
      if (set.lex !== NO_STATE) addThread(start, set, set.lex);
      if (this.#distinct !== null) start.texts = [""];
      start.mayEnd = set.isFinal;
      this.#start = start;
    }
    return this.#start;
  }

  /** State after one more byte; null if no text continues with it. */
  next(state: ParseState, byte: number): ParseState | null {
    const to = noPlace();
    return this.follow(state, byte, to) ? to : null;
  }

  /** Writes to `to` the state after bytes [from, end), at least one. False if no text continues with them. */
  read(state: ParseState, bytes: Uint8Array, from: number, end: number, to: Place): boolean {
    let before = state;
    // Makes the last step write to `to`.
    let [after, spare] = (end - from) % 2 === 1 ? [to, this.#between] : [this.#between, to];
    for (let at = from; at < end; at++) {
      if (!this.follow(before, bytes[at]!, after)) return false;
      before = after;
      [after, spare] = [spare, after];
    }
    return true;
  }

  /**
   * Number of the state: equal for equal threads, unless the table was dropped in between. No other state
   * ever gets it.
   */
  numberOf({ sets, lexes, texts, count, mayEnd }: ParseState): number {
    const key = this.#key;
    key[0] = mayEnd ? 1 : 0;
    for (let i = 0; i < count; i++) {
      key[2 * i + 1] = sets[i]!.id;
      key[2 * i + 2] = lexes[i]!;
    }
    if (this.#states.size >= STATES_MAX) {
      this.#firstState += STATES_MAX;
      this.#states = new Lists();
      this.#textNumbers = new Map();
    }
    if (texts === null) return this.#firstState + this.#states.numberOf(key, 1 + 2 * count);
    key[0] += 2;
    for (let i = 0; i < count; i++) key[2 * count + 1 + i] = this.#numberOfText(texts[i]!);
    return this.#firstState + this.#states.numberOf(key, 1 + 3 * count);
  }

  #numberOfText(text: string): number {
    const numbers = this.#textNumbers;
    const number = numbers.get(text) ?? numbers.size;
    numbers.set(text, number);
    return number;
  }

  /** True if any thread continues with the byte. */
  goesOn({ lexes, count }: ParseState, byte: number): boolean {
    for (let i = 0; i < count; i++) if (this.lexer.next(lexes[i]!, byte) !== NO_STATE) return true;
    return false;
  }

  /** Writes to `to` the state after one more byte. False if no text continues with it. */
  follow(state: ParseState, byte: number, to: Place): boolean {
    const { sets, lexes, texts, count } = state;
    if (texts !== null) return this.#followTexts(state, texts, byte, to);
    const { lexer } = this;
    const ending = this.#ending;
    ending.count = 0;
    to.count = 0;
    to.texts = null;
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

  /** Variant of `follow` that records the texts of distinct items. */
  #followTexts(
    { sets, lexes, count }: ParseState,
    texts: readonly string[],
    byte: number,
    to: Place,
  ): boolean {
    const { lexer } = this;
    const ending = noPlace();
    ending.texts = [];
    to.count = 0;
    to.texts ??= [];
    for (let i = 0; i < count; i++) {
      const set = sets[i]!;
      const lex = lexer.next(lexes[i]!, byte);
      if (lex === NO_STATE) continue;
      const text = set.distinct === null ? "" : texts[i]! + String.fromCharCode(byte);
      const isEnding = lexer.endsOf(lex) !== NO_ENDS;
      if (isEnding) addText(ending, ending.texts, set, lex, text);
      if (!isEnding || lexer.goesOn(lex)) addText(to, to.texts, set, lex, text);
    }
    to.mayEnd = false;
    if (ending.count === 0) return to.count > 0;
    const isPlain = ending.sets.every(({ distinct }) => distinct === null);
    const after = isPlain ? this.#afterAll(ending) : this.#setOf(this.#itemsAfter(ending));
    if (after.lex !== NO_STATE) addText(to, to.texts, after, after.lex, "");
    to.mayEnd = after.isFinal;
    return true;
  }

  /** Earlier items that begin with the text of the thread's unfinished item. */
  cameLike({ sets, texts }: ParseState, thread: number): string[] {
    const { distinct, isMixed } = sets[thread]!;
    if (texts === null || distinct === null || isMixed) return [];
    return this.#distinct!.begunSo(distinct, texts[thread]!);
  }

  /**
   * Writes to `to` the state as if no items had come, for threads whose unfinished item may still become an
   * earlier one.
   */
  forgetCame(state: ParseState, to: Place): void {
    const { sets, lexes, texts, count, mayEnd } = state;
    to.count = 0;
    to.mayEnd = mayEnd;
    to.texts = null;
    for (let i = 0; i < count; i++) {
      const isLike = texts !== null && this.cameLike(state, i).length > 0;
      addThread(to, sets[i]!, isLike ? this.#plainOf(lexes[i]!, sets[i]!.distinct!, texts[i]!) : lexes[i]!);
    }
  }

  /** Lexer state without the exclusion of earlier items. */
  #plainOf(lex: LexState, { terminal, item }: CameItems, text: string): LexState {
    const { lexer } = this;
    let rest = item;
    for (let at = 0; at < text.length; at++) rest = lexer.regexes.derivative(rest, text.charCodeAt(at));
    const parts: number[] = [];
    for (let index = 0; index < lexer.count(lex); index++) {
      const one = lexer.terminal(lex, index);
      parts.push(one, one === terminal ? rest : lexer.rest(lex, index));
    }
    return lexer.state(parts);
  }

  /** Only byte that can follow; null if the text may end, or continue in several ways. */
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

  /** Set after terminals that began at `set` and end in `lex`. */
  after(set: ParseSet, lex: LexState): ParseSet {
    const ending = this.#ending;
    ending.count = 0;
    addThread(ending, set, lex);
    return this.#afterAll(ending);
  }

  #afterAll(ending: Place): ParseSet {
    const { sets, lexes, count } = ending;
    this.#forgetMany();
    const { lexer } = this;
    const key = this.#key;
    for (let i = 0; i < count; i++) {
      key[2 * i] = sets[i]!.id;
      key[2 * i + 1] = lexer.endsOf(lexes[i]!);
    }
    const number = this.#endings.numberOf(key, 2 * count);
    const known = this.#setsAfter[number];
    if (known !== undefined) return known;
    const after = this.#setOf(this.#itemsAfter(ending));
    this.#setsAfter[number] = after;
    return after;
  }

  #forgetMany(): void {
    if (this.#setsOfKernels.length < SETS_MAX) return;
    this.#kernels = new Lists();
    this.#setsOfKernels = [];
    this.#endings = new Lists();
    this.#setsAfter = [];
    this.#distinct?.forget();
  }

  /** Kernel items after the terminals that end (Earley's scan). */
  #itemsAfter({ sets, lexes, texts, count }: Place): Item[] {
    const { lexer } = this;
    const items: Item[] = [];
    for (let i = 0; i < count; i++) {
      const text = texts?.[i] ?? null;
      for (const terminal of lexer.terminalsOf(lexer.endsOf(lexes[i]!))) {
        for (const item of sets[i]!.itemsFor(~terminal)) {
          const next = item.came === null ? this.#advance(item) : this.#comeTo(item, item.came, text);
          if (next !== null) items.push(next);
        }
      }
    }
    return items;
  }

  /** Advances over an item of a list or its separator. Null if the item is equal to an earlier one. */
  #comeTo(item: Item, came: CameItems, text: string | null): Item | null {
    if (item.dot === AFTER_ITEM) return { ...item, dot: BEFORE_ITEM };
    if (text !== null && this.#distinct!.has(came, text)) return null;
    return { ...item, dot: AFTER_ITEM, came: this.#distinct!.with(came, text) };
  }

  /** Initial items of a nonterminal's productions (Earley's predict). */
  #itemsOf(nonterminal: number, frame: Frame): Item[] {
    const productions = this.#productions;
    const items: Item[] = [];
    for (let one = productions.firstOf(nonterminal); one < productions.firstOf(nonterminal + 1); one++) {
      let came: CameItems | null = null;
      if (productions.isDistinct(one)) {
        const terminal = ~productions.symbolOf(one, 0);
        came = this.#distinct!.none(
          `${one}:${frame.id}`,
          terminal,
          this.#terminals[terminal]!,
          productions.distinctMin(one),
        );
      }
      items.push({ production: one, dot: 0, frame, came });
    }
    return items;
  }

  #advance({ production, dot, frame, came }: Item): Item {
    const productions = this.#productions;
    const isEndless = productions.maxOf(production) === Number.POSITIVE_INFINITY;
    const next = isEndless ? Math.min(dot + 1, productions.minOf(production)) : dot + 1;
    return { production, dot: next, frame, came };
  }

  /** Set with this kernel and its closure. */
  #setOf(kernel: readonly Item[]): ParseSet {
    const keys = sortedOnce(kernel.map((item) => this.#keyOf(item)));
    const number = this.#kernels.numberOf(keys);
    const known = this.#setsOfKernels[number];
    if (known !== undefined) return known;
    const set = this.#close(kernel);
    this.#setsOfKernels[number] = set;
    return set;
  }

  #keyOf({ production, dot, frame, came }: Item): number {
    // `came` alone identifies the list and its place in a text.
    if (came !== null) return -(2 * came.id + dot + 1);
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
    /** Items by what they wait for: `~terminal`, or the number of a frame. */
    const waiting = new Map<number, Item[]>();
    /** Frames of the nonterminals predicted here. */
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
      // A frame that begins and ends in this set is empty: the items that wait for it have advanced
      // already.
      else if (origin !== set) for (const item of origin.itemsFor(id)) add(this.#advance(item));
    };
    for (const item of kernel) add(item);
    for (let i = 0; i < items.length; i++) {
      const item = items[i]!;
      const { production, dot, frame, came } = item;
      const min = productions.minOf(production);
      if (came !== null) {
        const isBefore = dot === BEFORE_ITEM;
        if (!isBefore && came.count >= came.min) complete(frame);
        const hasMore = came.count < productions.maxOf(production) && !isFull(came, came.count, came.bytes);
        if (isBefore || (hasMore && this.#distinct!.hasRest(came)))
          wait(item, productions.symbolOf(production, dot));
      } else if (min !== IN_SEQUENCE) {
        const symbol = productions.symbolOf(production, 0);
        // Advancing over an empty symbol changes nothing.
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
    terminals.sort((a, b) => a - b);
    set.fill(
      waiting,
      this.#distinct === null ? this.lexer.start(terminals) : this.#startOf(set, terminals, waiting),
      isFinal,
    );
    return set;
  }

  /**
   * Lexer state before the first byte of any of the terminals. Terminals of distinct items exclude the
   * earlier items.
   */
  #startOf(
    set: ParseSet,
    terminals: readonly number[],
    waiting: ReadonlyMap<number, readonly Item[]>,
  ): LexState {
    const parts = terminals.flatMap((terminal) => {
      const rests = waiting.get(~terminal)!.map(({ came, dot }) => {
        if (came === null || dot !== BEFORE_ITEM) return this.#terminals[terminal]!;
        set.isMixed ||= set.distinct !== null;
        set.distinct = came;
        return this.#distinct!.restOf(came);
      });
      set.isMixed ||= rests.length > 1 && set.distinct !== null;
      return [terminal, this.lexer.regexes.alt(rests)];
    });
    return this.lexer.state(parts);
  }
}
