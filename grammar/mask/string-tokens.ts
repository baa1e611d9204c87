import { AlikeBytes } from "../parser/alike-bytes.ts";
import { type Regex, Regexes } from "../regex/regexes.ts";
import { freeStrings } from "../regex/text.ts";
import { FreeParts } from "./free-parts.ts";
import type { Pieces } from "./job.ts";
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
/** Byte classes, which are the same for every vocabulary; null until one is read. */
let alikeBytes: AlikeBytes | null = null;
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
  readonly longest: number;
  /**
   * Tokens with fewer than n characters, by n; an unfinished character counts. The three lists hold tokens
   * without the quote, those that end with it, and those beyond it.
   */
  readonly #open: readonly Mask[];
  readonly #closed: readonly Mask[];
  readonly #beyond: readonly Mask[];
  readonly #within = new Map<number, StringMasks>();

  private constructor(
    read: StringReading,
    afterQuote: Trie,
    open: readonly TokenSet[],
    others: readonly TokenSet[],
  ) {
    this.open = open;
    this.others = others;
    this.afterQuote = afterQuote;
    this.quoteEnd = read.quoteEnd;
    this.longest = read.longest;
    this.#open = masksBelow(read.openCounts, read.longest);
    this.#closed = masksBelow(read.closedCounts, read.longest);
    this.#beyond = masksBelow(read.beyondCounts, read.longest);
  }

  /** Reads all tokens, in pieces of up to a tenth of a second. */
  static *of(vocabulary: Vocabulary): Pieces<StringTokens> {
    const regexes = new Regexes();
    const { free } = freeStrings(regexes);
    const read = readStrings(vocabulary, regexes, free);
    yield;
    const afterQuote = trieOf(read.beyond);
    yield;
    const [open, others] = [BYTES_MAX.map((): TokenText[] => []), BYTES_MAX.map((): TokenText[] => [])];
    // Trie order, so the entries are sorted by their bytes already.
    for (const token of vocabulary.trie.tokens) {
      const text = tokenBytes(vocabulary, token);
      const index = BYTES_MAX.findIndex((most) => text.length <= most);
      (read.openCounts[token] === NONE ? others : open)[index]!.push({ text, token });
    }
    yield;
    alikeBytes ??= new AlikeBytes();
    const alike = alikeBytes;
    const sets: TokenSet[][] = [[], []];
    for (const [kind, groups] of [open, others].entries()) {
      const isOpen = kind === 0;
      for (const entries of groups.filter(({ length }) => length > 0)) {
        const meanings = isOpen ? alike.meanings : ownMeanings;
        const written = isOpen
          ? entries.map(({ text, token }) => ({ text: alike.write(text), token }))
          : entries;
        yield;
        const own = trieOf(written);
        yield;
        const parts = isOpen ? new FreeParts(regexes, free, own, meanings) : null;
        sets[kind]!.push({
          trie: own,
          meanings,
          ...bytesIn(vocabulary, own),
          all: allOf(vocabulary, entries),
          parts,
        });
        yield;
      }
    }
    return new StringTokens(read, afterQuote, sets[0]!, sets[1]!);
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

/** Characters of each token inside a free string, and texts after the quote. */
interface StringReading {
  /** Characters of tokens without the quote, of those that end with it, and of those beyond it; else NONE. */
  readonly openCounts: Uint8Array;
  readonly closedCounts: Uint8Array;
  readonly beyondCounts: Uint8Array;
  readonly quoteEnd: Uint16Array;
  readonly longest: number;
  readonly beyond: readonly TokenText[];
}

function readStrings({ size, trie }: Vocabulary, regexes: Regexes, free: Regex): StringReading {
  const [openCounts, closedCounts, beyondCounts] = [0, 1, 2].map(() => new Uint8Array(size).fill(NONE)) as [
    Uint8Array,
    Uint8Array,
    Uint8Array,
  ];
  const quoteEnd = new Uint16Array(size);
  let longest = 0;
  const beyond: TokenText[] = [];
  const path: number[] = [];
  const note = (counts: Uint8Array, node: number, characters: number): void => {
    for (let at = trie.firstTokens[node]!; at < trie.firstTokens[node + 1]!; at++)
      counts[trie.tokens[at]!] = Math.min(characters, CHARACTERS_MAX);
    longest = Math.max(longest, Math.min(characters, CHARACTERS_MAX));
  };
  const visit = (node: number, rest: Regex, before: number, depth: number): void => {
    const end = trie.ends[node]!;
    for (let child = node + 1; child < end; child = trie.ends[child]!) {
      const next = regexes.derivative(rest, trie.bytes[child]!);
      if (next === regexes.empty) continue;
      if (next === regexes.epsilon) {
        note(closedCounts, child, before);
        for (let at = trie.firstTokens[child + 1]!; at < trie.firstTokens[trie.ends[child]!]!; at++)
          quoteEnd[trie.tokens[at]!] = depth + 1;
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
  return { openCounts, closedCounts, beyondCounts, quoteEnd, longest, beyond };
}

/** Masks with all these tokens inside. */
function allOf({ size }: Vocabulary, entries: readonly TokenText[]): StringMasks {
  const words = Math.ceil(size / 32);
  const all = { inside: new Uint32Array(words), beyond: new Uint32Array(words) };
  for (const { token } of entries) all.inside[token >>> 5]! |= 1 << (token & 31);
  return all;
}

/** Bytes of the trie's tokens, one after the other. */
function bytesIn(vocabulary: Vocabulary, { tokens }: Trie): Pick<TokenSet, "bytes" | "offsets"> {
  const offsets = new Int32Array(tokens.length + 1);
  tokens.forEach((token, at) => {
    offsets[at + 1] = offsets[at]! + tokenBytes(vocabulary, token).length;
  });
  const bytes = new Uint8Array(offsets.at(-1)!);
  tokens.forEach((token, at) => {
    bytes.set(tokenBytes(vocabulary, token), offsets[at]);
  });
  return { bytes, offsets };
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
