import { Budget } from "./error.ts";
import type { LexState } from "./lexer.ts";
import type { Parser, ParseSet, ParseState, Thread } from "./parser.ts";
import { type Regex, Regexes } from "./regex/regexes.ts";
import { allCharacters, jsonEncoding } from "./regex/text.ts";
import { type Trie, trieOf, type Vocabulary } from "./vocabulary.ts";

/** One bit per token, bit t % 32 of word t / 32 for token t. Shared by all matchers at the same place: never written to. */
export type Mask = Uint32Array;

/** Masks that are remembered, by their memory. */
const MASK_BYTES_MAX = 64 * 2 ** 20;
/** Steps of work for one mask: about 200 ms. */
const MASK_STEPS = 4_000_000;
/** Expressions after which all are forgotten. */
const REGEXES_MAX = 200_000;

/**
 * Which tokens may come next. A token may if its bytes lead the parser anywhere: everything that a grammar has begun can be
 * completed. So the vocabulary's trie is walked as far as the parser goes along.
 *
 * Inside of a free JSON string nearly every token goes on, and the walk would be long. What may come there is worked out
 * once for the vocabulary: the tokens that stay inside, and a small trie of what follows the closing quote in those that do
 * not. Strings with limits or exceptions are walked only where they differ from a free one.
 */
export class Masks {
  readonly vocabulary: Vocabulary;
  readonly #words: number;
  #shared: Shared;
  /** By parser, threads' sets and their lexers' states. Ordered by last use. */
  readonly #masks = new Map<string, Mask>();
  readonly #masksMax: number;
  #parsers = 0;
  readonly #parserIds = new WeakMap<Parser, number>();
  #budget = new Budget(MASK_STEPS);
  /** Where a free string is changed into another. */
  readonly #scratch: Uint32Array;

  constructor(vocabulary: Vocabulary) {
    this.vocabulary = vocabulary;
    this.#words = Math.ceil(vocabulary.size / 32);
    this.#masksMax = Math.max(16, Math.floor(MASK_BYTES_MAX / (4 * this.#words)));
    this.#scratch = new Uint32Array(this.#words);
    this.#shared = new Shared(vocabulary);
  }

  /** What parsers for these masks are made with: equal strings of different grammars are then one. */
  get regexes(): Regexes {
    if (this.#shared.regexes.size > REGEXES_MAX) this.#shared = new Shared(this.vocabulary);
    return this.#shared.regexes;
  }

  /** Throws ConstraintError when it takes too much work. */
  maskOf(parser: Parser, { threads }: ParseState): Mask {
    const alike = threads.map(({ set, lex }) => ({ set, lex: this.#clamped(parser, lex) }));
    const state = { threads: alike, mayEnd: false };
    const key = this.#keyOf(parser, state);
    const known = this.#masks.get(key);
    if (known !== undefined) {
      this.#masks.delete(key);
      this.#masks.set(key, known);
      return known;
    }
    const { regexes } = parser.lexer;
    this.#budget = new Budget(MASK_STEPS);
    regexes.budget = this.#budget;
    const mask = new Uint32Array(this.#words);
    try {
      for (const thread of state.threads) this.#add(parser, thread, mask);
    } finally {
      regexes.budget = new Budget(Number.POSITIVE_INFINITY);
    }
    if (this.#masks.size >= this.#masksMax) this.#masks.delete(this.#masks.keys().next().value!);
    this.#masks.set(key, mask);
    return mask;
  }

  /** The state in which all tokens go on that go on in this one: what may still come is not counted beyond a token. */
  #clamped({ lexer }: Parser, lex: LexState): LexState {
    if (lex.clamped === null) {
      const height = this.vocabulary.trie.heights[0]!;
      const rests = lex.rests.map((rest) => lexer.regexes.clamped(rest, height));
      lex.clamped = lexer.state(lex.terminals, rests)!;
    }
    return lex.clamped;
  }

  #keyOf(parser: Parser, { threads }: ParseState): string {
    let id = this.#parserIds.get(parser);
    if (id === undefined) {
      id = this.#parsers++;
      this.#parserIds.set(parser, id);
    }
    let key = `${id}`;
    for (const { set, lex } of threads) key += `,${set.id}:${lex.id}`;
    return key;
  }

  #add(parser: Parser, { set, lex }: Thread, mask: Mask): void {
    const { lexer } = parser;
    const shared = this.#shared.regexes === lexer.regexes ? this.#shared : null;
    const others: number[] = [];
    lex.terminals.forEach((terminal, index) => {
      const rest = lex.rests[index]!;
      if (shared?.resemblesString(rest)) {
        const alone = lexer.state([terminal], [rest])!;
        this.#addString(parser, { set, lex: alone }, shared, mask);
      } else others.push(index);
    });
    const isWhole = others.length === lex.terminals.length;
    const left = isWhole
      ? lex
      : lexer.state(
          others.map((index) => lex.terminals[index]!),
          others.map((index) => lex.rests[index]!),
        );
    if (left !== null) this.#walk(parser, this.vocabulary.trie, 0, set, left, mask);
  }

  /** Tokens below the node along which one terminal, or several, go on since a set. */
  #walk(parser: Parser, trie: Trie, node: number, set: ParseSet, lex: LexState, mask: Mask): void {
    const { lexer } = parser;
    const end = trie.ends[node]!;
    for (let child = node + 1; child < end; child = trie.ends[child]!) {
      this.#budget.spend(1);
      const next = lexer.next(lex, trie.bytes[child]!);
      if (next === null) continue;
      setBits(mask, trie, trie.firstTokens[child]!, trie.firstTokens[child + 1]!);
      if (trie.ends[child] === child + 1) continue;
      if (next.ends.terminals.length === 0) this.#walk(parser, trie, child, set, next, mask);
      else {
        const after = parser.after(set, next.ends);
        if (!lexer.goesOn(next)) {
          if (after.lex !== null) this.#walk(parser, trie, child, after, after.lex, mask);
        } else if (after.lex === null) this.#walk(parser, trie, child, set, next, mask);
        else {
          const threads = [
            { set, lex: next },
            { set: after, lex: after.lex },
          ];
          this.#walkAll(parser, trie, child, { threads, mayEnd: false }, mask);
        }
      }
    }
  }

  /** Tokens below the node along which any thread goes on. */
  #walkAll(parser: Parser, trie: Trie, node: number, state: ParseState, mask: Mask): void {
    const end = trie.ends[node]!;
    for (let child = node + 1; child < end; child = trie.ends[child]!) {
      this.#budget.spend(state.threads.length);
      const next = parser.next(state, trie.bytes[child]!);
      if (next === null) continue;
      setBits(mask, trie, trie.firstTokens[child]!, trie.firstTokens[child + 1]!);
      if (trie.ends[child] === child + 1) continue;
      const [only, another] = next.threads;
      if (only === undefined) continue;
      if (another === undefined) this.#walk(parser, trie, child, only.set, only.lex, mask);
      else this.#walkAll(parser, trie, child, next, mask);
    }
  }

  /** A thread inside of one string that resembles a free one: the free one's tokens, put right where they differ. */
  #addString(parser: Parser, { set, lex }: Thread, shared: Shared, mask: Mask): void {
    const rest = lex.rests[0]!;
    const limits = shared.limitsOf(rest);
    const scratch = this.#scratch;
    scratch.fill(0);
    // Strings end with their quote: whatever the string, the same is complete after it.
    const ends = parser.lexer.state(lex.terminals, [shared.regexes.epsilon])!.ends;
    const after = parser.after(set, ends);
    if (after.lex !== null) this.#walk(parser, shared.afterQuote, 0, after, after.lex, scratch);
    if (limits === null) {
      for (let word = 0; word < scratch.length; word++) scratch[word]! |= shared.inside[word]!;
      this.#correct(parser, 0, set, lex, rest, shared.freeString, scratch);
    } else {
      const { inside, beyond } = shared.tokensWithin(limits.min, limits.max);
      for (let word = 0; word < scratch.length; word++)
        scratch[word] = (scratch[word]! & beyond[word]!) | inside[word]!;
    }
    for (let word = 0; word < mask.length; word++) mask[word]! |= scratch[word]!;
  }

  /** `mask` is right for `free` below the node; makes it right for `rest`. */
  #correct(
    parser: Parser,
    node: number,
    set: ParseSet,
    lex: LexState,
    rest: Regex,
    free: Regex,
    mask: Mask,
  ): void {
    const { trie } = this.vocabulary;
    const { regexes } = parser.lexer;
    const end = trie.ends[node]!;
    for (let child = node + 1; child < end; child = trie.ends[child]!) {
      this.#budget.spend(1);
      const byte = trie.bytes[child]!;
      const nextFree = regexes.derivative(free, byte);
      const next = regexes.derivative(rest, byte);
      if (next === nextFree) continue;
      const height = trie.heights[child]!;
      if (regexes.clamped(next, height) === regexes.clamped(nextFree, height)) continue;
      const nextLex = parser.lexer.next(lex, byte);
      const isApart =
        nextLex === null ||
        nextFree === regexes.empty ||
        regexes.isNullable(next) ||
        regexes.isNullable(nextFree);
      if (!isApart) {
        this.#correct(parser, child, set, nextLex, next, nextFree, mask);
        continue;
      }
      clearBits(mask, trie, trie.firstTokens[child]!, trie.firstTokens[trie.ends[child]!]!);
      if (nextLex === null) continue;
      setBits(mask, trie, trie.firstTokens[child]!, trie.firstTokens[child + 1]!);
      const threads = [{ set, lex: nextLex }];
      if (nextLex.ends.terminals.length > 0) {
        const after = parser.after(set, nextLex.ends);
        if (after.lex !== null) threads.push({ set: after, lex: after.lex });
      }
      this.#walkAll(parser, trie, child, { threads, mayEnd: false }, mask);
    }
  }
}

/** How many characters a string may still have. `max` may be Infinity. */
interface Limits {
  readonly min: number;
  readonly max: number;
}

/** Pairs of limits that are remembered. */
const WITHIN_MAX = 256;
/** Characters of a token are counted up to here. */
const CHARACTERS_MAX = 254;
/** The token is not of the kind. */
const NONE = 255;

/** What is worked out once for a vocabulary: the free JSON string. */
class Shared {
  readonly regexes: Regexes = new Regexes();
  /** The inside of a string and its closing quote. */
  readonly freeString: Regex;
  /** Tokens that stay inside of a free string, up to the quote at most. */
  readonly inside: Mask;
  /** Of tokens that go beyond the quote, what comes after it. */
  readonly afterQuote: Trie;
  readonly #trie: Trie;
  readonly #character: Regex;
  readonly #quote: Regex;
  /** By token, its characters, one that is begun among them: of those that do not reach the quote, that end with it, and
   *  that go beyond it. NONE for others. */
  readonly #open: Uint8Array;
  readonly #closed: Uint8Array;
  readonly #beyond: Uint8Array;
  /** Most characters of a token, as far as they are counted. */
  #longest = 0;
  readonly #resembles = new Map<Regex, boolean>();
  readonly #within = new Map<string, { readonly inside: Mask; readonly beyond: Mask }>();

  constructor({ size, trie }: Vocabulary) {
    const { regexes } = this;
    this.#trie = trie;
    const { anyText, oneOf } = jsonEncoding(regexes);
    this.#character = oneOf(allCharacters);
    this.#quote = regexes.bytes([34, 34]);
    this.freeString = regexes.cat(anyText, this.#quote);
    this.#open = new Uint8Array(size).fill(NONE);
    this.#closed = new Uint8Array(size).fill(NONE);
    this.#beyond = new Uint8Array(size).fill(NONE);
    const beyond: { text: Uint8Array; token: number }[] = [];
    const path: number[] = [];
    const note = (counts: Uint8Array, node: number, characters: number): void => {
      for (let at = trie.firstTokens[node]!; at < trie.firstTokens[node + 1]!; at++)
        counts[trie.tokens[at]!] = Math.min(characters, CHARACTERS_MAX);
      this.#longest = Math.max(this.#longest, Math.min(characters, CHARACTERS_MAX));
    };
    const visit = (node: number, rest: Regex, before: number): void => {
      const end = trie.ends[node]!;
      for (let child = node + 1; child < end; child = trie.ends[child]!) {
        const next = regexes.derivative(rest, trie.bytes[child]!);
        if (next === regexes.empty) continue;
        if (next === regexes.epsilon) {
          note(this.#closed, child, before);
          collect(child, before);
        } else {
          const characters = rest === this.freeString ? before + 1 : before;
          note(this.#open, child, characters);
          visit(child, next, characters);
        }
      }
    };
    const collect = (node: number, characters: number): void => {
      const end = trie.ends[node]!;
      for (let child = node + 1; child < end; child = trie.ends[child]!) {
        path.push(trie.bytes[child]!);
        const bytes = Uint8Array.from(path);
        note(this.#beyond, child, characters);
        for (let at = trie.firstTokens[child]!; at < trie.firstTokens[child + 1]!; at++)
          beyond.push({ text: bytes, token: trie.tokens[at]! });
        collect(child, characters);
        path.pop();
      }
    };
    visit(0, this.freeString, 0);
    this.afterQuote = trieOf(beyond);
    this.inside = this.tokensWithin(0, Number.POSITIVE_INFINITY).inside;
  }

  /** Of a string about which nothing is said but how many characters come; null for others. */
  limitsOf(rest: Regex): Limits | null {
    if (rest === this.freeString) return { min: 0, max: Number.POSITIVE_INFINITY };
    const shape = this.regexes.shapeOf(rest);
    if (shape.kind !== "cat" || shape.tail !== this.#quote) return null;
    const head = this.regexes.shapeOf(shape.head);
    if (head.kind !== "repeat" || head.of !== this.#character) return null;
    const isBounded = head.max < Number.POSITIVE_INFINITY;
    const isCounted = head.min <= CHARACTERS_MAX && (head.max < CHARACTERS_MAX || !isBounded);
    if (this.#longest === CHARACTERS_MAX && !isCounted) return null;
    const max = head.max >= this.#longest ? Number.POSITIVE_INFINITY : head.max;
    return { min: Math.min(head.min, this.#longest + 1), max };
  }

  /** Tokens that stay inside of a string that may have so many characters more, and those that may go beyond it. */
  tokensWithin(min: number, max: number): { readonly inside: Mask; readonly beyond: Mask } {
    const key = `${min} ${max}`;
    let within = this.#within.get(key);
    if (within === undefined) {
      const inside = new Uint32Array(Math.ceil(this.#open.length / 32));
      const beyond = new Uint32Array(inside.length);
      for (let token = 0; token < this.#open.length; token++) {
        const bit = 1 << (token & 31);
        const open = this.#open[token]!;
        const closed = this.#closed[token]!;
        const past = this.#beyond[token]!;
        if (open !== NONE && open <= max) inside[token >>> 5]! |= bit;
        else if (closed !== NONE && closed >= min && closed <= max) inside[token >>> 5]! |= bit;
        if (past !== NONE && past >= min && past <= max) beyond[token >>> 5]! |= bit;
      }
      within = { inside, beyond };
      if (this.#within.size >= WITHIN_MAX) this.#within.clear();
      this.#within.set(key, within);
    }
    return within;
  }

  /** Whether an expression is that of a string that for most tokens is as a free one after a byte. */
  resemblesString(rest: Regex): boolean {
    if (this.limitsOf(rest) !== null) return true;
    let resembles = this.#resembles.get(rest);
    if (resembles === undefined) {
      resembles = this.#compare(rest);
      this.#resembles.set(rest, resembles);
    }
    return resembles;
  }

  #compare(rest: Regex): boolean {
    const { regexes } = this;
    const trie = this.#trie;
    let same = 0;
    let all = 0;
    for (let child = 1; child < trie.bytes.length; child = trie.ends[child]!) {
      const byte = trie.bytes[child]!;
      const free = regexes.derivative(this.freeString, byte);
      if (free === regexes.empty) continue;
      const tokens = trie.firstTokens[trie.ends[child]!]! - trie.firstTokens[child]!;
      const next = regexes.derivative(rest, byte);
      all += tokens;
      const height = trie.heights[child]!;
      if (regexes.clamped(next, height) === regexes.clamped(free, height)) same += tokens;
    }
    return 2 * same > all;
  }
}

function setBits(mask: Mask, { tokens }: Trie, from: number, to: number): void {
  for (let at = from; at < to; at++) {
    const token = tokens[at]!;
    mask[token >>> 5]! |= 1 << (token & 31);
  }
}

function clearBits(mask: Mask, { tokens }: Trie, from: number, to: number): void {
  for (let at = from; at < to; at++) {
    const token = tokens[at]!;
    mask[token >>> 5]! &= ~(1 << (token & 31));
  }
}
