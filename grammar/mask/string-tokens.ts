import { AlikeBytes } from "../parser/alike-bytes.ts";
import { type Regex, Regexes } from "../regex/regexes.ts";
import { freeStrings } from "../regex/text.ts";
import { FreeParts } from "./free-parts.ts";
import { type Mask, type TokenText, type Trie, tokenBytes, trieOf, type Vocabulary } from "./vocabulary.ts";

/**
 * Tokens that stay inside a string, up to its closing quote at most, and tokens with more text after a quote
 * that may end it.
 */
export interface StringMasks {
  readonly inside: Mask;
  readonly beyond: Mask;
}

/** Some tokens of a vocabulary, as a trie. */
export interface TokenSet {
  /** Trie of the tokens, written in byte classes, and the bytes that each trie byte stands for. */
  readonly trie: Trie;
  readonly meanings: readonly Uint8Array[];
  /** Original bytes of the trie's tokens, concatenated, and their offsets; one offset more than tokens. */
  readonly bytes: Uint8Array;
  readonly offsets: Int32Array;
  /** Masks with all tokens of the set inside and none beyond. */
  readonly all: StringMasks;
  /** Subtrees of free-string text; null if tokens of the set may reach the quote of a free string. */
  readonly parts: FreeParts | null;
}

/**
 * Largest token length in bytes of each set, walked separately. A length limit that may run out within the
 * few long tokens often cannot within the others.
 */
const BYTES_MAX = [16, 32, Number.POSITIVE_INFINITY];
/** Pairs of limits whose tokens are remembered. */
const WITHIN_MAX = 256;
/** Largest number of characters that is counted in a token. */
export const CHARACTERS_MAX = 254;
/** The token does not belong to the group. */
const NONE = 255;
const ownMeanings = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));

/**
 * Tokens of a vocabulary as read inside a free string: a JSON string without any restriction. Records which
 * tokens stay inside, which reach the quote, and how many characters each has. A small trie holds all text
 * after the quote. Computed once per vocabulary.
 */
export class StringTokens {
  /** Tokens that do not reach the quote, grouped by length. */
  readonly open: readonly TokenSet[];
  /** Tokens that reach the quote or are in no free string, grouped by length. */
  readonly others: readonly TokenSet[];
  /** Trie of the text after the quote, of tokens that go beyond it. */
  readonly afterQuote: Trie;
  /** Bytes of each token up to and including the quote, if it goes beyond the quote; else 0. */
  readonly quoteEnd: Uint16Array;
  /** Largest number of characters of a token, as far as they are counted. */
  longest = 0;
  /**
   * Tokens with fewer than n characters, by n; an unfinished character counts. The three lists hold tokens
   * without the quote, those that end with it, and those beyond it.
   */
  readonly #open: readonly Mask[];
  readonly #closed: readonly Mask[];
  readonly #beyond: readonly Mask[];
  readonly #within = new Map<number, StringMasks>();

  constructor(vocabulary: Vocabulary) {
    const regexes = new Regexes();
    const { free } = freeStrings(regexes);
    const { size, trie } = vocabulary;
    const [openCounts, closedCounts, beyondCounts] = [0, 1, 2].map(() => new Uint8Array(size).fill(NONE)) as [
      Uint8Array,
      Uint8Array,
      Uint8Array,
    ];
    this.quoteEnd = new Uint16Array(size);
    const beyond: TokenText[] = [];
    const path: number[] = [];
    const note = (counts: Uint8Array, node: number, characters: number): void => {
      for (let at = trie.firstTokens[node]!; at < trie.firstTokens[node + 1]!; at++)
        counts[trie.tokens[at]!] = Math.min(characters, CHARACTERS_MAX);
      this.longest = Math.max(this.longest, Math.min(characters, CHARACTERS_MAX));
    };
    const visit = (node: number, rest: Regex, before: number, depth: number): void => {
      const end = trie.ends[node]!;
      for (let child = node + 1; child < end; child = trie.ends[child]!) {
        const next = regexes.derivative(rest, trie.bytes[child]!);
        if (next === regexes.empty) continue;
        if (next === regexes.epsilon) {
          note(closedCounts, child, before);
          for (let at = trie.firstTokens[child + 1]!; at < trie.firstTokens[trie.ends[child]!]!; at++)
            this.quoteEnd[trie.tokens[at]!] = depth + 1;
          collect(child, before);
        } else {
          const characters = rest === free ? before + 1 : before;
          note(openCounts, child, characters);
          visit(child, next, characters, depth + 1);
        }
      }
    };
    const collect = (node: number, characters: number): void => {
      const end = trie.ends[node]!;
      for (let child = node + 1; child < end; child = trie.ends[child]!) {
        path.push(trie.bytes[child]!);
        const bytes = Uint8Array.from(path);
        note(beyondCounts, child, characters);
        for (let at = trie.firstTokens[child]!; at < trie.firstTokens[child + 1]!; at++)
          beyond.push({ text: bytes, token: trie.tokens[at]! });
        collect(child, characters);
        path.pop();
      }
    };
    visit(0, free, 0, 0);
    this.#open = masksBelow(openCounts, this.longest);
    this.#closed = masksBelow(closedCounts, this.longest);
    this.#beyond = masksBelow(beyondCounts, this.longest);
    this.afterQuote = trieOf(beyond);
    const [open, others] = [BYTES_MAX.map((): TokenText[] => []), BYTES_MAX.map((): TokenText[] => [])];
    // Trie order, so the entries are sorted by their bytes already.
    for (const token of trie.tokens) {
      const text = tokenBytes(vocabulary, token);
      const index = BYTES_MAX.findIndex((most) => text.length <= most);
      (openCounts[token] === NONE ? others : open)[index]!.push({ text, token });
    }
    const alike = new AlikeBytes();
    const setsOf = (groups: readonly (readonly TokenText[])[], isOpen: boolean): TokenSet[] =>
      groups
        .filter((entries) => entries.length > 0)
        .map((entries) => {
          const words = Math.ceil(size / 32);
          const all = { inside: new Uint32Array(words), beyond: new Uint32Array(words) };
          for (const { token } of entries) all.inside[token >>> 5]! |= 1 << (token & 31);
          const meanings = isOpen ? alike.meanings : ownMeanings;
          const own = trieOf(
            isOpen ? entries.map(({ text, token }) => ({ text: alike.write(text), token })) : entries,
          );
          const offsets = new Int32Array(entries.length + 1);
          own.tokens.forEach((token, at) => {
            offsets[at + 1] = offsets[at]! + tokenBytes(vocabulary, token).length;
          });
          const bytes = new Uint8Array(offsets.at(-1)!);
          own.tokens.forEach((token, at) => {
            bytes.set(tokenBytes(vocabulary, token), offsets[at]);
          });
          const parts = isOpen ? new FreeParts(regexes, free, own, meanings) : null;
          return { trie: own, meanings, bytes, offsets, all, parts };
        });
    this.open = setsOf(open, true);
    this.others = setsOf(others, false);
  }

  /**
   * Tokens that stay inside a string with `min` to `max` characters left, and those that may go beyond it.
   */
  within(min: number, max: number): StringMasks {
    const end = Math.min(max, this.longest) + 1;
    const key = min * (CHARACTERS_MAX + 2) + end;
    let within = this.#within.get(key);
    if (within === undefined) {
      const [closed, beyond] = [this.#closed, this.#beyond];
      within = { inside: this.#open[end]!.slice(), beyond: beyond[end]!.slice() };
      for (let word = 0; word < within.inside.length; word++) {
        within.inside[word]! |= closed[end]![word]! & ~closed[min]![word]!;
        within.beyond[word]! &= ~beyond[min]![word]!;
      }
      if (this.#within.size >= WITHIN_MAX) this.#within.clear();
      this.#within.set(key, within);
    }
    return within;
  }
}

/** Masks of tokens that count less than n, by n. Neighbours share one mask where no token differs. */
function masksBelow(counts: Uint8Array, longest: number): Mask[] {
  const words = Math.ceil(counts.length / 32);
  const own: (Mask | undefined)[] = [];
  counts.forEach((count, token) => {
    if (count === NONE) return;
    own[count] ??= new Uint32Array(words);
    own[count][token >>> 5]! |= 1 << (token & 31);
  });
  const masks: Mask[] = [new Uint32Array(words)];
  for (let count = 0; count <= longest; count++) {
    const before = masks[count]!;
    masks.push(own[count]?.map((word, index) => word | before[index]!) ?? before);
  }
  return masks;
}
