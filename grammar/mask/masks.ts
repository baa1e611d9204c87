import { Budget } from "../error.ts";
import { type Lexer, type LexState, NO_STATE } from "../parser/lexer.ts";
import type { ParseSet } from "../parser/parse-set.ts";
import { addThread, copyOf, noPlace, type Parser, type ParseState, type Place } from "../parser/parser.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { DistinctTokens } from "./distinct-tokens.ts";
import { forcedToken } from "./forced.ts";
import { FreeString } from "./free-string.ts";
import { again, allAtOnce, Job, type Pieces } from "./job.ts";
import { MaskMemory, remember } from "./mask-memory.ts";
import { MaskWalk } from "./mask-walk.ts";
import { type StringMasks, StringTokens } from "./string-tokens.ts";
import type { Mask, Trie, Vocabulary } from "./vocabulary.ts";

/** Cached masks at most, by their memory and by their number. */
const MASK_BYTES_MAX = 64 * 2 ** 20;
const MASKS_MAX = 65_536;
/** Mask jobs under way that are remembered. */
const JOBS_MAX = 256;
/** States whose jump-forward token is remembered. */
const FORCED_MAX = 8192;
/** Bytes of an unfinished item up to which such a state is remembered, where items must be distinct. */
const FORCED_TEXT_MAX = 64;
/** Upper bound of a parser's state numbers. */
const STATES_MAX = 2 ** 28;
/** Steps of work for one mask at most. */
const MASK_STEPS = 4_000_000;
/**
 * Expressions in a table before new parsers get a fresh one. The table reserves room for them at once:
 * untouched memory costs nothing, but copying it later would delay a step.
 */
const REGEXES_MAX = 100_000;
const unlimited = new Budget(Number.POSITIVE_INFINITY);

/**
 * Logits masks: the tokens that may come next. A token is allowed if the parser can read its bytes, as every
 * text that the parser accepts can be completed. The mask walk descends the vocabulary's trie as far as the
 * parser accepts it (mask-walk.ts).
 *
 * Jump-forward tokens need no mask: the grammar forces their text (forced.ts).
 */
export class Masks {
  readonly vocabulary: Vocabulary;
  /** Pool of all mask buffers, also of copies made for a batch row. */
  readonly memory: MaskMemory;
  /** Strings of the expression table that new parsers use, and those of every table still in use. */
  #freeString: FreeString;
  readonly #strings = new WeakMap<Regexes, FreeString>();
  /** Masks by the key of a state (`#keyOf`), least recently used first. */
  readonly #masks = new Map<number, Mask>();
  /** Jobs by the key of a state: those that make masks, and those that clamp states. */
  readonly #jobs = new Map<number, Job<unknown>>();
  readonly #alikeJobs = new Map<number, Job<unknown>>();
  readonly #forced = new Map<number, number | null>();
  /** Scratch places of each `find`. */
  readonly #alike = noPlace();
  readonly #plain = noPlace();
  /** Created for the first grammar in which items must be distinct. */
  #distinctTokens: DistinctTokens | null = null;
  readonly #masksMax: number;
  #parsers = 0;
  readonly #parserIds = new WeakMap<Parser, number>();

  /** Caches at most `keptBytesMax` bytes of masks, but at least 16 masks. */
  constructor(
    vocabulary: Vocabulary,
    keptBytesMax: number = MASK_BYTES_MAX,
    tokens = allAtOnce(StringTokens.of(vocabulary)),
  ) {
    this.vocabulary = vocabulary;
    this.memory = new MaskMemory(vocabulary.size);
    this.#masksMax = Math.min(MASKS_MAX, Math.max(16, Math.floor(keptBytesMax / this.memory.bytes)));
    this.#freeString = this.#newStrings(tokens);
  }

  /** Makes them in pieces of up to a tenth of a second. */
  static *open(vocabulary: Vocabulary): Pieces<Masks> {
    return new Masks(vocabulary, MASK_BYTES_MAX, yield* StringTokens.of(vocabulary));
  }

  #newStrings(tokens: StringTokens): FreeString {
    const strings = new FreeString(tokens, this.memory, REGEXES_MAX);
    this.#strings.set(strings.regexes, strings);
    return strings;
  }

  /**
   * Expression table for parsers that use these masks, so that equal strings of different grammars are one
   * expression. A full table is replaced, so that memory of finished parsers is freed.
   */
  get regexes(): Regexes {
    const { regexes, tokens } = this.#freeString;
    if (regexes.size > REGEXES_MAX) this.#freeString = this.#newStrings(tokens);
    return this.#freeString.regexes;
  }

  /** Bytes of all cached masks. */
  get keptBytes(): number {
    return this.memory.bytes * this.#masks.size;
  }

  /**
   * Mask if it is known, else the job that makes it, which may have begun already; call again when it is
   * done. The mask is lent: it is valid until the next call.
   */
  find(parser: Parser, given: ParseState): Mask | Job<unknown> {
    if (given.texts === null) return this.#findPlain(parser, given);
    parser.forgetCame(given, this.#plain);
    const found = this.#findPlain(parser, this.#plain);
    return found instanceof Job ? found : this.#findDistinct(parser, given, found);
  }

  /** Finds the mask of a state without distinct items, or as if no item had come. */
  #findPlain(parser: Parser, given: ParseState): Mask | Job<unknown> {
    const alike = this.#alike;
    if (!alikeOf(parser.lexer, given, alike)) {
      const key = this.#keyOf(parser, given);
      return jobOf(this.#alikeJobs, key, parser, () => this.#findAlike(parser, copyOf(given)));
    }
    const key = this.#keyOf(parser, alike);
    const known = this.#masks.get(key);
    if (known === undefined)
      return jobOf(this.#jobs, key, parser, (budget) => this.#make(parser, copyOf(alike), key, budget));
    this.#keep(key, known);
    return known;
  }

  /**
   * Finds the mask where items must be distinct. `mask` belongs to the state that was just looked up, as if
   * no item had come.
   */
  #findDistinct(parser: Parser, given: ParseState, mask: Mask): Mask | Job<unknown> {
    this.#distinctTokens ??= new DistinctTokens(this.vocabulary);
    const strings = this.#strings.get(parser.lexer.regexes) ?? null;
    if (!this.#distinctTokens.concerns(mask, parser, given, strings)) return mask;
    const key = this.#keyOf(parser, this.#distinctTokens.alike(parser, given));
    const known = this.#masks.get(key);
    if (known === undefined)
      return jobOf(this.#jobs, key, parser, (budget) =>
        this.#makeDistinct(parser, copyOf(given), this.memory.copyOf(mask), key, budget),
      );
    this.#keep(key, known);
    return known;
  }

  *#makeDistinct(parser: Parser, state: ParseState, mask: Mask, key: number, budget: Budget): Pieces<void> {
    const strings = this.#strings.get(parser.lexer.regexes) ?? null;
    yield* this.#distinctTokens!.takeOut(mask, parser, state, strings, budget);
    this.#keep(key, mask);
  }

  *#findAlike({ lexer }: Parser, { lexes }: ParseState): Pieces<void> {
    const { height } = this.vocabulary.trie;
    for (const lex of lexes) {
      const parts: number[] = [];
      for (let index = 0; index < lexer.count(lex); index++) {
        const rest = lexer.rest(lex, index);
        parts.push(lexer.terminal(lex, index), yield* again(() => lexer.regexes.clamped(rest, height)));
      }
      lexer.noteClamped(lex, lexer.state(parts));
    }
  }

  *#make(parser: Parser, state: ParseState, key: number, budget: Budget): Pieces<void> {
    const strings = this.#strings.get(parser.lexer.regexes) ?? null;
    this.#keep(key, yield* new MaskWriter(parser, this, strings, budget).write(state));
  }

  #keep(key: number, mask: Mask): void {
    const gone = remember(this.#masks, key, mask, this.#masksMax);
    if (gone !== undefined) this.memory.giveBack(gone);
  }

  /** Makes the mask at once. Throws ConstraintError if that takes too much work. */
  maskOf(parser: Parser, state: ParseState): Mask {
    for (;;) {
      const found = this.find(parser, state);
      if (!(found instanceof Job)) return found;
      found.run(Number.POSITIVE_INFINITY);
    }
  }

  /** Jump-forward token (forced.ts); null if there is none. */
  forcedOf(parser: Parser, state: ParseState): number | null {
    if (parser.onlyByte(state) === null) return null;
    // Long texts would take more memory than they save.
    if (state.texts?.some((text) => text.length > FORCED_TEXT_MAX) === true)
      return forcedToken(this.vocabulary, parser, state);
    const key = this.#keyOf(parser, state);
    let forced = this.#forced.get(key);
    if (forced === undefined) forced = forcedToken(this.vocabulary, parser, state);
    remember(this.#forced, key, forced, FORCED_MAX);
    return forced;
  }

  #keyOf(parser: Parser, state: ParseState): number {
    let parserId = this.#parserIds.get(parser);
    if (parserId === undefined) {
      parserId = this.#parsers++;
      this.#parserIds.set(parser, parserId);
    }
    return parserId * STATES_MAX + parser.numberOf(state);
  }
}

function jobOf(
  jobs: Map<number, Job<unknown>>,
  key: number,
  { lexer }: Parser,
  work: (budget: Budget) => Pieces<unknown>,
): Job<unknown> {
  const job =
    jobs.get(key) ??
    new Job(
      MASK_STEPS,
      (budget) => spentOn(lexer.regexes, budget, work(budget)),
      () => jobs.delete(key),
    );
  remember(jobs, key, job, JOBS_MAX);
  return job;
}

/** Runs the work with its budget as that of the expression table. */
function* spentOn(regexes: Regexes, budget: Budget, work: Pieces<unknown>): Pieces<unknown> {
  for (;;) {
    // Other jobs may use the same table between two pieces.
    regexes.budget = budget;
    try {
      const { done, value } = work.next();
      if (done === true) return value;
    } finally {
      regexes.budget = unlimited;
    }
    yield;
  }
}

/**
 * Writes to `to` the clamped state, which allows the same tokens: it keeps no counts beyond the length of a
 * token. False if a clamped lexer state is not known yet.
 */
function alikeOf(lexer: Lexer, { sets, lexes, count, mayEnd }: ParseState, to: Place): boolean {
  to.count = 0;
  to.mayEnd = mayEnd;
  for (let i = 0; i < count; i++) {
    const clamped = lexer.clampedOf(lexes[i]!);
    if (clamped === NO_STATE) return false;
    addThread(to, sets[i]!, clamped);
  }
  return true;
}

/** Writes the mask of one state. */
class MaskWriter {
  readonly #parser: Parser;
  readonly #trie: Trie;
  readonly #memory: MaskMemory;
  /** Null if the parser uses a table of expressions unknown to these masks. */
  readonly #strings: FreeString | null;
  readonly #budget: Budget;
  readonly #mask: Mask;

  constructor(parser: Parser, { vocabulary, memory }: Masks, strings: FreeString | null, budget: Budget) {
    this.#parser = parser;
    this.#trie = vocabulary.trie;
    this.#memory = memory;
    this.#strings = strings;
    this.#budget = budget;
    this.#mask = memory.none();
  }

  *write({ sets, lexes }: ParseState): Pieces<Mask> {
    for (const [index, lex] of lexes.entries()) yield* this.#add(sets[index]!, lex);
    return this.#mask;
  }

  /**
   * Adds the tokens of a thread. Broad strings share the tokens that stay inside them; each string adds its
   * tokens with a quote; one walk adds all other terminals.
   */
  *#add(set: ParseSet, lex: LexState): Pieces<void> {
    const { lexer } = this.#parser;
    const rests = Array.from({ length: lexer.count(lex) }, (_, index) => lexer.rest(lex, index));
    const kinds = yield* again(() => rests.map((rest) => this.#strings?.kindOf(rest) ?? "other"));
    const hasOpen = yield* this.#addOpen(rests.filter((_, index) => kinds[index] === "broad"));
    const others: number[] = [];
    for (const [index, rest] of rests.entries()) {
      const terminal = lexer.terminal(lex, index);
      if (kinds[index] === "other") others.push(terminal, rest);
      else yield* this.#addString(set, terminal, rest, this.#strings!, hasOpen);
    }
    const left = lexer.state(others);
    if (left !== NO_STATE) yield* this.#walk(this.#trie, this.#mask, set, left);
  }

  /**
   * Adds tokens without a closing quote, for several strings at once: patterns that tell property names apart
   * are alternatives. False if these tokens are not known.
   */
  *#addOpen(rests: readonly Regex[]): Pieces<boolean> {
    const strings = this.#strings;
    if (strings === null || rests.length === 0) return false;
    const { regexes, tokens } = strings;
    for (const set of tokens.open) {
      const clamped: Regex[] = [];
      for (const rest of rests) clamped.push(yield* again(() => regexes.clamped(rest, set.trie.height)));
      const found = yield* strings.tokensOf(set, regexes.alt(clamped), this.#budget);
      if (found === null) return false;
      allow(this.#mask, found.inside);
    }
    return true;
  }

  /** `hasOpen`: the mask already has the tokens without a closing quote of broad strings. */
  *#addString(
    set: ParseSet,
    terminal: number,
    rest: Regex,
    strings: FreeString,
    hasOpen: boolean,
  ): Pieces<void> {
    const after = yield* this.#afterQuote(set, terminal, strings);
    const limits = strings.limitsOf(rest);
    if (limits !== null) this.#allow(strings.tokens.within(limits.min, limits.max), after);
    else {
      let isKnown = hasOpen;
      for (const tokens of strings.tokens.others) {
        const found = isKnown ? yield* strings.tokensOf(tokens, rest, this.#budget) : null;
        if (found === null) isKnown = false;
        else this.#allow(found, after);
      }
      const { lexer } = this.#parser;
      if (!isKnown) yield* this.#walk(this.#trie, this.#mask, set, lexer.state([terminal, rest]));
    }
    this.#memory.giveBack(after);
  }

  /** Mask of the tokens that the parser accepts after their closing quote, wherever it is in them. */
  *#afterQuote(set: ParseSet, terminal: number, strings: FreeString): Pieces<Mask> {
    const mask = this.#memory.none();
    // Every string ends with its quote, so the parser's place after it is the same.
    const ended = this.#parser.lexer.state([terminal, strings.regexes.epsilon]);
    const after = yield* again(() => this.#parser.after(set, ended));
    if (after.lex !== NO_STATE) yield* this.#walk(strings.tokens.afterQuote, mask, after, after.lex);
    return mask;
  }

  /**
   * Allows tokens inside the string, and those beyond it that are in `after`, the continuations of the quote.
   */
  #allow({ inside, beyond }: StringMasks, after: Mask): void {
    const mask = this.#mask;
    for (let word = 0; word < mask.length; word++)
      mask[word]! |= inside[word]! | (after[word]! & beyond[word]!);
  }

  *#walk(trie: Trie, mask: Mask, set: ParseSet, lex: LexState): Pieces<void> {
    const walk = new MaskWalk(this.#parser, trie, mask, this.#budget, set, lex);
    while (!(yield* again(() => walk.run()))) yield;
  }
}

function allow(mask: Mask, tokens: Mask): void {
  for (let word = 0; word < mask.length; word++) mask[word]! |= tokens[word]!;
}
