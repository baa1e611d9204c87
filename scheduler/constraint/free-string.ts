import type { Budget } from "./error.ts";
import { FreeParts } from "./free-parts.ts";
import type { Pieces } from "./job.ts";
import { remember } from "./recent.ts";
import { type Regex, Regexes } from "./regex/regexes.ts";
import { allCharacters, jsonEncoding } from "./regex/text.ts";
import { StringWalk } from "./string-walk.ts";
import { type Mask, type Trie, tokenBytes, trieOf, type Vocabulary } from "./vocabulary.ts";

/** How many characters a string may still have. `max` may be Infinity. */
interface Limits {
  readonly min: number;
  readonly max: number;
}

/** Tokens that stay inside of a string, up to its quote at most; and those with a quote that may end it and more after it. */
export interface StringTokens {
  readonly inside: Mask;
  readonly beyond: Mask;
}

/** `free`: for most tokens as a free string after a byte; `broad`: the rest of a string with which many tokens go on. */
export type StringKind = "free" | "broad" | "other";

/** Pairs of limits, and broad expressions, whose tokens are remembered. */
const WITHIN_MAX = 256;
const BROAD_MAX = 128;
/** An expression is broad if more tokens than one in so many begin as it does. */
const BROAD = 16;
/** Limits of more characters than this are left out of account at first. */
const BASE_CHARACTERS = 16;
/** Steps of work to find out whether any characters may go on a string, or one of several. */
const OPEN_STEPS_MAX = 6000;
export const OPEN_TOGETHER_STEPS_MAX = 20_000;
/** Characters of a token are counted up to here. */
const CHARACTERS_MAX = 254;
/** The token is not of the kind. */
const NONE = 255;

/**
 * Inside of a JSON string of which nothing is demanded nearly every token goes on, and a walk would be long. So what may come
 * there is worked out once for a vocabulary: the tokens that stay inside, and a small trie of what follows the closing quote in
 * those that do not. Also how many characters each has, for strings whose length alone is limited.
 */
export class FreeString {
  readonly regexes: Regexes = new Regexes();
  /** The inside of a string and its closing quote. */
  readonly regex: Regex;
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
  /** By token that goes beyond the quote: its bytes up to the quote and with it; 0 for others. */
  readonly #quoteEnd: Uint16Array;
  /** Most characters of a token, as far as they are counted. */
  #longest = 0;
  readonly #kinds = new Map<Regex, StringKind>();
  readonly #within = new Map<string, StringTokens>();
  /** By expression, ordered by last use; of all tokens, and of those that reach the quote of a free string. */
  readonly #broad = new Map<Regex, StringTokens | null>();
  readonly #quoted = new Map<Regex, StringTokens | null>();
  /** Tokens that do not reach the quote of a free string, and those that do. */
  readonly openTokens: Mask;
  readonly #quoteTrie: Trie;
  readonly #parts: FreeParts;
  /** By expression, see `isAlwaysOpen`. */
  readonly #alwaysOpen = new Map<Regex, boolean>();

  constructor(vocabulary: Vocabulary) {
    const { regexes } = this;
    const { size, trie } = vocabulary;
    this.#trie = trie;
    const { anyText, oneOf } = jsonEncoding(regexes);
    this.#character = oneOf(allCharacters);
    this.#quote = regexes.bytes([34, 34]);
    this.regex = regexes.cat(anyText, this.#quote);
    this.#open = new Uint8Array(size).fill(NONE);
    this.#closed = new Uint8Array(size).fill(NONE);
    this.#beyond = new Uint8Array(size).fill(NONE);
    this.#quoteEnd = new Uint16Array(size);
    const beyond: { text: Uint8Array; token: number }[] = [];
    const path: number[] = [];
    const note = (counts: Uint8Array, node: number, characters: number): void => {
      for (let at = trie.firstTokens[node]!; at < trie.firstTokens[node + 1]!; at++)
        counts[trie.tokens[at]!] = Math.min(characters, CHARACTERS_MAX);
      this.#longest = Math.max(this.#longest, Math.min(characters, CHARACTERS_MAX));
    };
    const visit = (node: number, rest: Regex, before: number, depth: number): void => {
      const end = trie.ends[node]!;
      for (let child = node + 1; child < end; child = trie.ends[child]!) {
        const next = regexes.derivative(rest, trie.bytes[child]!);
        if (next === regexes.empty) continue;
        if (next === regexes.epsilon) {
          note(this.#closed, child, before);
          for (let at = trie.firstTokens[child + 1]!; at < trie.firstTokens[trie.ends[child]!]!; at++)
            this.#quoteEnd[trie.tokens[at]!] = depth + 1;
          collect(child, before);
        } else {
          const characters = rest === this.regex ? before + 1 : before;
          note(this.#open, child, characters);
          visit(child, next, characters, depth + 1);
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
    visit(0, this.regex, 0, 0);
    this.afterQuote = trieOf(beyond);
    this.inside = this.tokensWithin(0, Number.POSITIVE_INFINITY).inside;
    this.openTokens = new Uint32Array(this.inside.length);
    const quoted: { text: Uint8Array; token: number }[] = [];
    for (let token = 0; token < size; token++) {
      if (this.#open[token] !== NONE) this.openTokens[token >>> 5]! |= 1 << (token & 31);
      else if (this.#closed[token] !== NONE || this.#beyond[token] !== NONE)
        quoted.push({ text: tokenBytes(vocabulary, token), token });
    }
    this.#quoteTrie = trieOf(quoted);
    this.#parts = new FreeParts(regexes, this.regex, trie);
  }

  /** Of a string about which nothing is said but how many characters come; null for others. */
  limitsOf(rest: Regex): Limits | null {
    if (rest === this.regex) return { min: 0, max: Number.POSITIVE_INFINITY };
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
  tokensWithin(min: number, max: number): StringTokens {
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

  /** How the tokens are best found that go on with an expression. */
  kindOf(rest: Regex): StringKind {
    let kind = this.#kinds.get(rest);
    if (kind === undefined) {
      kind = this.limitsOf(rest) === null ? this.#compare(rest) : "free";
      this.#kinds.set(rest, kind);
    }
    return kind;
  }

  #compare(rest: Regex): StringKind {
    const { regexes } = this;
    const trie = this.#trie;
    let same = 0;
    let going = 0;
    let all = 0;
    for (let child = 1; child < trie.bytes.length; child = trie.ends[child]!) {
      const byte = trie.bytes[child]!;
      const free = regexes.derivative(this.regex, byte);
      if (free === regexes.empty) continue;
      const tokens = trie.firstTokens[trie.ends[child]!]! - trie.firstTokens[child]!;
      const next = regexes.derivative(rest, byte);
      all += tokens;
      if (next !== regexes.empty) going += tokens;
      const height = trie.heights[child]!;
      if (regexes.clamped(next, height) === regexes.clamped(free, height)) same += tokens;
    }
    if (BROAD * going > all && this.#endsWithQuote(rest)) return "broad";
    return 2 * same > all ? "free" : "other";
  }

  /** Whether what it matches is the rest of a string. */
  #endsWithQuote(rest: Regex): boolean {
    const shape = this.regexes.shapeOf(rest);
    if (shape.kind === "cat") return this.#endsWithQuote(shape.tail);
    if (shape.kind === "alt") return shape.parts.every((part) => this.#endsWithQuote(part));
    return rest === this.#quote;
  }

  /**
   * Whether a string of this expression is one that any characters may go on, as where one word has to be somewhere in it:
   * then only tokens with a quote need be looked at. All pairs of what is left of a free string and of this one are; false
   * also where there are many.
   */
  isAlwaysOpen(start: Regex, steps = OPEN_STEPS_MAX): boolean {
    const known = this.#alwaysOpen.get(start);
    if (known !== undefined) return known;
    const { regexes } = this;
    const seen = new Map<Regex, Set<Regex>>([[this.regex, new Set([start])]]);
    const open: [free: Regex, rest: Regex][] = [[this.regex, start]];
    const stepsMax = regexes.budget.spent + steps;
    let isOpen = true;
    for (let pair = open.pop(); pair !== undefined && isOpen; pair = open.pop()) {
      const [free, rest] = pair;
      const { representatives } = regexes.refine(regexes.partitionOf(free), regexes.partitionOf(rest));
      regexes.budget.spend(representatives.length);
      for (const byte of representatives) {
        const nextFree = regexes.derivative(free, byte);
        const next = regexes.derivative(rest, byte);
        const isAlive = regexes.isNullable(next) || !regexes.isEmpty(next);
        // Where one ends the other may, and goes on no further; where one is broken off the other is.
        if (nextFree === regexes.epsilon) isOpen &&= !isAlive || regexes.isNullable(next);
        else if (nextFree === regexes.empty) isOpen &&= !isAlive;
        else isOpen &&= isAlive && !regexes.isNullable(next);
        if (!isOpen || nextFree === regexes.epsilon || nextFree === regexes.empty) continue;
        let rests = seen.get(nextFree);
        if (rests === undefined) {
          rests = new Set();
          seen.set(nextFree, rests);
        }
        if (rests.has(next)) continue;
        rests.add(next);
        isOpen = regexes.budget.spent <= stepsMax;
        open.push([nextFree, next]);
      }
    }
    this.#alwaysOpen.set(start, isOpen);
    if (isOpen) for (const rest of seen.get(this.regex)!) this.#alwaysOpen.set(rest, true);
    return isOpen;
  }

  /** Of a broad expression, one that differs in limits of length alone, and is met more often. */
  baseOf(rest: Regex): Regex {
    const unlimited = this.regexes.unlimited(rest);
    // A walk counts up to a least length in any case; with a smaller one much would differ.
    if (unlimited !== null && unlimited.min > BASE_CHARACTERS) return unlimited.regex;
    return this.regexes.clamped(unlimited?.regex ?? rest, BASE_CHARACTERS);
  }

  /** Tokens that stay inside of a string of this expression, and those that may go beyond it. Null where a token has its
   *  closing quote elsewhere than in a free string, as after a backslash, or before the quote that opens the string. */
  *tokensOf(rest: Regex, budget: Budget): Pieces<StringTokens | null> {
    let found = this.#broad.get(rest);
    if (found === undefined) {
      if (this.isAlwaysOpen(rest)) {
        const quoted = yield* this.quotedOf(rest, budget);
        const inside = quoted?.inside.map((word, index) => word | this.openTokens[index]!);
        found = inside === undefined ? null : { ...quoted!, inside };
      } else found = yield* this.#walk(this.#trie, this.#parts, rest, budget);
    }
    remember(this.#broad, rest, found, BROAD_MAX);
    return found;
  }

  /** The same of the tokens that reach the quote of a free string, and of no others. */
  *quotedOf(rest: Regex, budget: Budget): Pieces<StringTokens | null> {
    let found = this.#quoted.get(rest);
    if (found === undefined) found = yield* this.#walk(this.#quoteTrie, null, rest, budget);
    remember(this.#quoted, rest, found, BROAD_MAX);
    return found;
  }

  *#walk(trie: Trie, parts: FreeParts | null, rest: Regex, budget: Budget): Pieces<StringTokens | null> {
    const walk = new StringWalk(this.regexes, trie, parts, this.#quoteEnd, rest, budget);
    while (!walk.run()) yield;
    const { inside, beyond } = walk;
    return walk.isAlike ? { inside, beyond } : null;
  }
}
