import { AlikeBytes } from "../parser/alike-bytes.ts";
import { type Regex, Regexes } from "../regex/regexes.ts";
import { freeStrings } from "../regex/text.ts";
import { FreeParts } from "./free-parts.ts";
import { type Mask, type TokenText, type Trie, tokenBytes, trieOf, type Vocabulary } from "./vocabulary.ts";

/** Tokens that stay inside of a string, up to its quote at most; and those with a quote that may end it and more after it. */
export interface StringMasks {
  readonly inside: Mask;
  readonly beyond: Mask;
}

/** Some tokens of a vocabulary. */
export interface TokenSet {
  /** Of their bytes as `meanings` says: what each byte of the trie stands for. */
  readonly trie: Trie;
  readonly meanings: readonly Uint8Array[];
  /** The own bytes of the trie's tokens, one after the other; and where they begin, with one entry more than tokens. */
  readonly bytes: Uint8Array;
  readonly offsets: Int32Array;
  /** All of them inside, and none beyond. */
  readonly all: StringMasks;
  /** Not null: none of them reaches the quote of a free string; where they are text inside of one whatever they begin with. */
  readonly parts: FreeParts | null;
}

/** Tokens are walked apart by their bytes, so many at most: a limit that may run out within the few long ones cannot within
 *  most. */
const BYTES_MAX = [16, 32, Number.POSITIVE_INFINITY];
/** Pairs of limits whose tokens are remembered. */
const WITHIN_MAX = 256;
/** Characters of a token are counted up to here. */
export const CHARACTERS_MAX = 254;
/** The token is not of the kind. */
const NONE = 255;
const ownMeanings = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));

/**
 * A vocabulary's tokens as they are read inside of a JSON string of which nothing is demanded, a free string: which stay
 * inside, which reach its quote, how many characters each has, and a small trie of what follows the quote. Worked out once.
 */
export class StringTokens {
  /** Those that do not reach the quote, by their length. */
  readonly open: readonly TokenSet[];
  /** Those that do, and those that no free string has, by their length. */
  readonly others: readonly TokenSet[];
  /** Of tokens that go beyond the quote, what comes after it. */
  readonly afterQuote: Trie;
  /** By token that goes beyond the quote: its bytes up to the quote and with it; 0 for others. */
  readonly quoteEnd: Uint16Array;
  /** Most characters of a token, as far as they are counted. */
  longest = 0;
  /** By number of characters, one that is begun among them, the tokens that have fewer: of those that do not reach the quote, that
   *  end with it, and that go beyond it. */
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
    // In the order of their bytes already.
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

  /** Tokens that stay inside of a string that may have so many characters more, and those that may go beyond it. */
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

/** By number, the tokens that count less; one mask where no token makes a difference. */
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
