import type { Budget } from "../error.ts";
import { DISTINCT_BYTES_MAX, DISTINCT_ITEMS_MAX } from "../grammar.ts";
import { type CameItems, isFull } from "../parser/distinct.ts";
import { noPlace, type Parser, type ParseState } from "../parser/parser.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { hasTexts } from "../regex/text-count.ts";
import type { FreeString } from "./free-string.ts";
import { again, type Pieces } from "./job.ts";
import { childOf, type Mask, tokenBytes, type Vocabulary } from "./vocabulary.ts";

const COMMA = 44;
const QUOTE = 34;
const BRACKET = 91;
/** Stand-ins for item texts in a cache key; no byte is a unit of them. */
const LONG = "\u0100";
const FULL = "\u0101";
const whiteSpace = new Set([9, 10, 13, 32]);

/**
 * Tokens in which an item of a list ends and the next begins. A mask ignores the text of an item that ends
 * inside a token. Where no two items may be equal, the parser reads those tokens one by one.
 */
export class DistinctTokens {
  readonly #vocabulary: Vocabulary;
  /**
   * Tokens with a comma; those with one after a quote, after an opening bracket, and after a quote and then a
   * bracket.
   */
  readonly #withComma: number[] = [];
  readonly #afterQuote: number[] = [];
  readonly #afterBracket: number[] = [];
  readonly #afterQuoteBracket: number[] = [];
  /** True for an expression that matches more texts than a list may have items. */
  readonly #isRich = new WeakMap<Regexes, Map<Regex, boolean>>();

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    for (const token of vocabulary.trie.tokens) {
      const bytes = tokenBytes(vocabulary, token);
      const last = bytes.lastIndexOf(COMMA);
      if (last < 0) continue;
      this.#withComma.push(token);
      const quote = bytes.indexOf(QUOTE);
      const isAfterQuote = quote >= 0 && quote < last;
      if (isAfterQuote) this.#afterQuote.push(token);
      const bracket = bytes.lastIndexOf(BRACKET, last);
      if (bracket < 0) continue;
      this.#afterBracket.push(token);
      if (isAfterQuote && quote < bracket) this.#afterQuoteBracket.push(token);
    }
  }

  /** Removes from the mask the tokens that make two items equal, or that can only continue to equal items. */
  *takeOut(
    mask: Mask,
    parser: Parser,
    state: ParseState,
    strings: FreeString | null,
    budget: Budget,
  ): Pieces<void> {
    const place = noPlace();
    for (const token of this.#tokensIn(mask, parser, state, strings)) {
      if (budget.isPaused) yield;
      const bytes = tokenBytes(this.#vocabulary, token);
      budget.spend(bytes.length);
      const goesOn = yield* again(
        () => this.#isSafe(parser, state, bytes) || parser.read(state, bytes, 0, bytes.length, place),
      );
      if (!goesOn) mask[token >>> 5]! &= ~(1 << (token & 31));
    }
  }

  /**
   * State with one stand-in for all texts that make no difference to a mask. Such a text is longer than any
   * token and begins no earlier item.
   */
  alike(parser: Parser, state: ParseState): ParseState {
    const { height } = this.#vocabulary.trie;
    const texts = state.texts!.slice(0, state.count).map((text, thread) => {
      const { distinct, isMixed } = state.sets[thread]!;
      if (distinct === null || isMixed || text.length <= height) return text;
      if (parser.cameLike(state, thread).length > 0) return text;
      const bytes = distinct.bytes + text.length;
      if (bytes > DISTINCT_BYTES_MAX) return FULL;
      return bytes + height > DISTINCT_BYTES_MAX ? text : LONG;
    });
    return { ...state, texts };
  }

  /** True if the mask may contain a token that must be read by itself. */
  concerns(mask: Mask, parser: Parser, state: ParseState, strings: FreeString | null): boolean {
    return this.#tokensIn(mask, parser, state, strings).next().done !== true;
  }

  *#tokensIn(mask: Mask, parser: Parser, state: ParseState, strings: FreeString | null): Generator<number> {
    const isIn = (token: number): boolean => ((mask[token >>> 5]! >>> (token & 31)) & 1) === 1;
    for (const token of this.#crossing(parser, state, strings)) if (isIn(token)) yield token;
    for (const token of this.#alongItems(parser, state)) if (isIn(token)) yield token;
  }

  /** Tokens in which an item may end and another begin. */
  #crossing(
    { lexer }: Parser,
    { sets, lexes, count }: ParseState,
    strings: FreeString | null,
  ): Iterable<number> {
    let isInList = false;
    let isInString = strings !== null;
    for (let i = 0; i < count; i++) {
      const set = sets[i]!;
      if (set.isMixed) return this.#vocabulary.trie.tokens;
      isInList ||= set.isInList;
      for (let index = 0; isInString && index < lexer.count(lexes[i]!); index++) {
        const rest = lexer.rest(lexes[i]!, index);
        isInString = strings!.endsWithQuote(rest) && !lexer.regexes.isNullable(rest);
      }
    }
    if (isInString) return isInList ? this.#afterQuote : this.#afterQuoteBracket;
    return isInList ? this.#withComma : this.#afterBracket;
  }

  /** Tokens that write part or the rest of an earlier item, and any text after it. */
  #alongItems(parser: Parser, state: ParseState): number[] {
    const { trie } = this.#vocabulary;
    const found: number[] = [];
    for (let i = 0; i < state.count; i++) {
      const begun = state.texts![i]!.length;
      for (const text of parser.cameLike(state, i)) {
        let node = 0;
        for (let at = begun; at < text.length; at++) {
          node = childOf(trie, node, text.charCodeAt(at));
          if (node < 0) break;
          const last = at === text.length - 1 ? trie.ends[node]! : node + 1;
          found.push(...trie.tokens.subarray(trie.firstTokens[node]!, trie.firstTokens[last]!));
        }
      }
    }
    return found;
  }

  /**
   * True if in every thread at most one item ends within the token, and the next item has enough completions.
   * Completions are enough if they outnumber all possible earlier items. Returns false too if a quick check cannot decide.
   */
  #isSafe({ lexer }: Parser, { sets, lexes, texts, count }: ParseState, bytes: Uint8Array): boolean {
    for (let i = 0; i < count; i++) {
      const { distinct, isMixed } = sets[i]!;
      if (distinct === null || isMixed || lexer.count(lexes[i]!) !== 1) return false;
      if (!this.#isSafeItem(lexer.regexes, lexer.rest(lexes[i]!, 0), distinct, texts![i]!.length, bytes))
        return false;
    }
    return true;
  }

  /** Checks one thread: `under` is the derivative of the item after `begun` bytes. */
  #isSafeItem(regexes: Regexes, under: Regex, came: CameItems, begun: number, bytes: Uint8Array): boolean {
    let [at, rest] = [0, under];
    for (; at < bytes.length && !regexes.isNullable(rest); at++) rest = regexes.derivative(rest, bytes[at]!);
    if (at === bytes.length) return !regexes.isEmpty(rest);
    if (bytes[at] !== COMMA || isFull(came, came.count + 1, came.bytes + begun + at)) return false;
    at += 1;
    while (whiteSpace.has(bytes[at]!)) at += 1;
    let next = came.item;
    for (; at < bytes.length && !regexes.isNullable(next); at++) next = regexes.derivative(next, bytes[at]!);
    return !regexes.isNullable(next) && this.#hasMany(regexes, next);
  }

  /** True if the expression matches more texts than a list may have items. */
  #hasMany(regexes: Regexes, regex: Regex): boolean {
    let known = this.#isRich.get(regexes);
    if (known === undefined) {
      known = new Map();
      this.#isRich.set(regexes, known);
    }
    let isRich = known.get(regex);
    if (isRich === undefined) {
      isRich = hasTexts(regexes, regex, DISTINCT_ITEMS_MAX);
      known.set(regex, isRich);
    }
    return isRich;
  }
}
