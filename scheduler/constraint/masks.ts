import { Budget } from "./error.ts";
import { forcedToken } from "./forced.ts";
import { FreeString } from "./free-string.ts";
import { again, Job, type Pieces } from "./job.ts";
import type { LexState } from "./lexer.ts";
import { MaskMemory } from "./mask-memory.ts";
import { MaskWalk } from "./mask-walk.ts";
import type { Parser, ParseSet, ParseState, Thread } from "./parser.ts";
import { remember } from "./recent.ts";
import type { Regex, Regexes } from "./regex/regexes.ts";
import { type StringMasks, StringTokens } from "./string-tokens.ts";
import type { Mask, Trie, Vocabulary } from "./vocabulary.ts";

/** Masks that are remembered, by their memory and by their number. */
const MASK_BYTES_MAX = 64 * 2 ** 20;
const MASKS_MAX = 65_536;
/** Masks under way that are remembered, and states of which it is remembered what must follow. */
const JOBS_MAX = 256;
const FORCED_MAX = 65_536;
/** Steps of work for one mask. */
const MASK_STEPS = 4_000_000;
/** Expressions after which others are begun. */
const REGEXES_MAX = 100_000;
const unlimited = new Budget(Number.POSITIVE_INFINITY);

/**
 * Which tokens may come next. A token may if its bytes lead the parser anywhere: everything that a grammar has begun can be
 * completed. So the vocabulary's trie is walked as far as the parser goes along (mask-walk.ts).
 *
 * Of text that is forced one token alone may be the one that comes (forced.ts).
 */
export class Masks {
  readonly vocabulary: Vocabulary;
  /** Of all masks, also of those that are copied for a row. */
  readonly memory: MaskMemory;
  /** Of the expressions that new parsers are made with, and of those that others were made with. */
  #freeString: FreeString;
  readonly #strings = new WeakMap<Regexes, FreeString>();
  /** By what `#keyOf` makes of a state. Ordered by last use. */
  readonly #masks = new Map<string, Mask>();
  readonly #jobs = new Map<string, Job<unknown>>();
  readonly #forced = new Map<string, number | null>();
  readonly #masksMax: number;
  #parsers = 0;
  readonly #parserIds = new WeakMap<Parser, number>();

  /** Remembers masks of so many bytes, and 16 at least. */
  constructor(vocabulary: Vocabulary, keptBytesMax: number = MASK_BYTES_MAX) {
    this.vocabulary = vocabulary;
    this.memory = new MaskMemory(vocabulary.size);
    this.#masksMax = Math.min(MASKS_MAX, Math.max(16, Math.floor(keptBytesMax / this.memory.bytes)));
    this.#freeString = this.#newStrings(new StringTokens(vocabulary));
  }

  #newStrings(tokens: StringTokens): FreeString {
    const strings = new FreeString(tokens, this.memory);
    this.#strings.set(strings.regexes, strings);
    return strings;
  }

  /** What parsers for these masks are made with: equal strings of different grammars are then one. Others after some time, so
   *  that what parsers without texts were made with is forgotten. */
  get regexes(): Regexes {
    const { regexes, tokens } = this.#freeString;
    if (regexes.size > REGEXES_MAX) this.#freeString = this.#newStrings(tokens);
    return this.#freeString.regexes;
  }

  /** Of masks that are remembered. */
  get keptBytes(): number {
    return this.memory.bytes * this.#masks.size;
  }

  /** The mask, if it is known; else work towards it, which may have been begun already: ask again when it is done. A mask is
   *  lent: it is of use until others are asked for. */
  find(parser: Parser, given: ParseState): Mask | Job<unknown> {
    const state = alikeOf(given);
    if (state === null) {
      const key = `alike ${this.#keyOf(parser, given)}`;
      return this.#jobOf(key, parser, () => this.#findAlike(parser, given));
    }
    const key = this.#keyOf(parser, state);
    const known = this.#masks.get(key);
    if (known === undefined)
      return this.#jobOf(key, parser, (budget) => this.#make(parser, state, key, budget));
    this.#keep(key, known);
    return known;
  }

  #jobOf(key: string, { lexer }: Parser, work: (budget: Budget) => Pieces<unknown>): Job<unknown> {
    const job =
      this.#jobs.get(key) ??
      new Job(
        MASK_STEPS,
        (budget) => spentOn(lexer.regexes, budget, work(budget)),
        () => this.#jobs.delete(key),
      );
    remember(this.#jobs, key, job, JOBS_MAX);
    return job;
  }

  *#findAlike({ lexer }: Parser, { threads }: ParseState): Pieces<void> {
    const height = this.vocabulary.trie.height;
    for (const { lex } of threads) {
      const rests: Regex[] = [];
      for (const rest of lex.rests) rests.push(yield* again(() => lexer.regexes.clamped(rest, height)));
      lex.clamped = lexer.state(lex.terminals, rests);
    }
  }

  *#make(parser: Parser, { threads }: ParseState, key: string, budget: Budget): Pieces<void> {
    const strings = this.#strings.get(parser.lexer.regexes) ?? null;
    this.#keep(key, yield* new MaskWriter(parser, this, strings, budget).write(threads));
  }

  #keep(key: string, mask: Mask): void {
    const gone = remember(this.#masks, key, mask, this.#masksMax);
    if (gone !== undefined) this.memory.giveBack(gone);
  }

  /** Throws ConstraintError when it takes too much work. */
  maskOf(parser: Parser, state: ParseState): Mask {
    for (;;) {
      const found = this.find(parser, state);
      if (!(found instanceof Job)) return found;
      found.run(Number.POSITIVE_INFINITY);
    }
  }

  /** The token that must come next, see forced.ts; null: there is none such. */
  forcedOf(parser: Parser, state: ParseState): number | null {
    if (parser.onlyByte(state) === null) return null;
    const key = this.#keyOf(parser, state);
    let forced = this.#forced.get(key);
    if (forced === undefined) forced = forcedToken(this.vocabulary, parser, state);
    remember(this.#forced, key, forced, FORCED_MAX);
    return forced;
  }

  #keyOf(parser: Parser, { threads, mayEnd }: ParseState): string {
    let id = this.#parserIds.get(parser);
    if (id === undefined) {
      id = this.#parsers++;
      this.#parserIds.set(parser, id);
    }
    let key = mayEnd ? `${id}.` : `${id}`;
    for (const { set, lex } of threads) key += `,${set.id}:${lex.id}`;
    return key;
  }
}

/** The work, while which expressions are made within the budget. */
function* spentOn(regexes: Regexes, budget: Budget, work: Pieces<unknown>): Pieces<unknown> {
  for (;;) {
    // Of the same expressions others may be in hand between two pieces.
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

/** The state in which all tokens go on that go on in this one: what may still come is not counted beyond a token. Null: it is
 *  not known yet. */
function alikeOf({ threads, mayEnd }: ParseState): ParseState | null {
  const alike: Thread[] = [];
  for (const { set, lex } of threads) {
    if (lex.clamped === null) return null;
    alike.push({ set, lex: lex.clamped });
  }
  return { threads: alike, mayEnd };
}

/** Writes the mask of one place. */
class MaskWriter {
  readonly #parser: Parser;
  readonly #trie: Trie;
  readonly #memory: MaskMemory;
  /** Null: the parser's expressions are of others. */
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

  *write(threads: readonly Thread[]): Pieces<Mask> {
    for (const { set, lex } of threads) yield* this.#add(set, lex);
    return this.#mask;
  }

  /** Of terminals inside of strings the tokens that stay there, whichever string it is; what reaches a quote of each by
   *  itself; and all other terminals together. */
  *#add(set: ParseSet, lex: LexState): Pieces<void> {
    const { lexer } = this.#parser;
    const others: number[] = [];
    const kinds = yield* again(() => lex.rests.map((rest) => this.#strings?.kindOf(rest) ?? "other"));
    const hasOpen = yield* this.#addOpen(lex.rests.filter((_, index) => kinds[index] === "broad"));
    for (const [index, terminal] of lex.terminals.entries()) {
      const rest = lex.rests[index]!;
      const thread = { set, lex: lexer.state([terminal], [rest])! };
      if (kinds[index] === "other") others.push(index);
      else if (kinds[index] === "broad") yield* this.#addBroad(thread, this.#strings!, hasOpen);
      else yield* this.#addCounted(thread, this.#strings!);
    }
    const isWhole = others.length === lex.terminals.length;
    const left = isWhole
      ? lex
      : lexer.state(
          others.map((index) => lex.terminals[index]!),
          others.map((index) => lex.rests[index]!),
        );
    if (left === null) return;
    yield* this.#walk(this.#trie, this.#mask, { set, lex: left });
  }

  /** Tokens that do not reach a quote, of several strings at once: names that are told apart by patterns go on with one or
   *  another. False: they are not known. */
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

  /** `hasOpen`: the mask has the tokens already that do not reach a quote. */
  *#addBroad(thread: Thread, strings: FreeString, hasOpen: boolean): Pieces<void> {
    const [rest] = thread.lex.rests as readonly [Regex];
    const after = yield* this.#afterQuote(thread, strings);
    let isKnown = hasOpen;
    for (const set of strings.tokens.others) {
      const tokens = isKnown ? yield* strings.tokensOf(set, rest, this.#budget) : null;
      if (tokens === null) isKnown = false;
      else this.#allow(tokens, after);
    }
    if (!isKnown) yield* this.#walk(this.#trie, this.#mask, thread);
    this.#memory.giveBack(after);
  }

  *#addCounted(thread: Thread, strings: FreeString): Pieces<void> {
    const { min, max } = strings.limitsOf(thread.lex.rests[0]!)!;
    const after = yield* this.#afterQuote(thread, strings);
    this.#allow(strings.tokens.within(min, max), after);
    this.#memory.giveBack(after);
  }

  /** Of tokens with a quote those that go on after it, wherever in them it is. */
  *#afterQuote({ set, lex }: Thread, strings: FreeString): Pieces<Mask> {
    const mask = this.#memory.none();
    // Strings end with their quote: whatever the string, the same is complete after it.
    const { ends } = this.#parser.lexer.state(lex.terminals, [strings.regexes.epsilon])!;
    const after = yield* again(() => this.#parser.after(set, ends));
    if (after.lex !== null) {
      yield* this.#walk(strings.tokens.afterQuote, mask, { set: after, lex: after.lex });
    }
    return mask;
  }

  /** `after`: what may follow the string. */
  #allow({ inside, beyond }: StringMasks, after: Mask): void {
    const mask = this.#mask;
    for (let word = 0; word < mask.length; word++)
      mask[word]! |= inside[word]! | (after[word]! & beyond[word]!);
  }

  *#walk(trie: Trie, mask: Mask, thread: Thread): Pieces<void> {
    const walk = new MaskWalk(this.#parser, trie, mask, this.#budget, thread);
    while (!(yield* again(() => walk.run()))) yield;
  }
}

function allow(mask: Mask, tokens: Mask): void {
  for (let word = 0; word < mask.length; word++) mask[word]! |= tokens[word]!;
}
