/** Unigram: splits a word into the pieces of the vocabulary whose scores have the largest sum. */
import type { TokenId } from "../../base/token.ts";
import { type JsonObject, TokenizerError } from "../tokenizer-file.ts";
import { SortedPieces } from "./sorted-pieces.ts";

/** Penalty of an unknown character, relative to the lowest score. */
const unknownPenalty = 10;
const knownMax = 1 << 16;
/** Maximum length, in UTF-16 units, of words in the cache. */
const knownLengthMax = 64;

/** `isControl`: true for spellings that are no pieces of a text. */
export function unigram(
  model: JsonObject,
  isControl: (spelling: string) => boolean,
): (word: string) => readonly TokenId[] {
  const pieces = model.vocab as [spelling: string, score: number][];
  const unknown = model.unk_id as TokenId | null | undefined;
  if (typeof unknown !== "number" || pieces[unknown] === undefined)
    throw new TokenizerError("tokenizer.json: a Unigram model without unk_id is not supported");
  const bytes = model.byte_fallback === true ? byteTokens(pieces) : null;
  const sorted = new SortedPieces(pieces.map(([spelling]) => (isControl(spelling) ? "" : spelling)));
  const scores = Float64Array.from(pieces, ([, score]) => score);
  const least = scores.reduce((low, score) => Math.min(low, score), Number.POSITIVE_INFINITY);
  const unknownScore = least - unknownPenalty;
  const known = new Map<string, readonly TokenId[]>();

  const best = (word: string): readonly TokenId[] => {
    const size = word.length;
    const sums = new Float64Array(size + 1);
    const starts = new Int32Array(size + 1).fill(-1);
    const ids = new Int32Array(size + 1);
    const offer = (start: number, end: number, token: TokenId, score: number): void => {
      const sum = sums[start]! + score;
      if (starts[end]! >= 0 && sum <= sums[end]!) return;
      sums[end] = sum;
      starts[end] = start;
      ids[end] = token;
    };
    for (let start = 0; start < size; ) {
      const width = word.codePointAt(start)! > 0xffff ? 2 : 1;
      let isKnown = false;
      sorted.eachAt(word, start, (end, token) => {
        offer(start, end, token, scores[token]!);
        if (end - start === width) isKnown = true;
      });
      if (!isKnown) offer(start, start + width, unknown, unknownScore);
      start += width;
    }
    const path: TokenId[] = [];
    for (let end = size; end > 0; end = starts[end]!) {
      const token = ids[end]!;
      if (token === unknown && bytes !== null) {
        const spelt = Buffer.from(word.slice(starts[end]!, end));
        for (let i = spelt.length; i > 0; i--) path.push(bytes[spelt[i - 1]!]!);
      } else if (token !== unknown || path.at(-1) !== unknown) path.push(token); // adjacent unknown characters are one token
    }
    return path.reverse();
  };

  return (word) => {
    const before = known.get(word);
    if (before !== undefined) return before;
    const found = best(word);
    if (known.size >= knownMax) known.clear();
    if (word.length <= knownLengthMax) known.set(word, found);
    return found;
  };
}

/** Tokens <0x00> … <0xFF>; null if one is missing. */
function byteTokens(pieces: readonly (readonly [string, number])[]): readonly TokenId[] | null {
  const places = new Map(pieces.map(([spelling], token) => [spelling, token]));
  const tokens = Array.from({ length: 256 }, (_, byte) =>
    places.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
  );
  return tokens.includes(undefined) ? null : (tokens as TokenId[]);
}
