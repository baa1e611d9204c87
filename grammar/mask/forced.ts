import { noPlace, type Parser, type ParseState } from "../parser/parser.ts";
import { childOf, type Trie, type Vocabulary } from "./vocabulary.ts";

/**
 * First jump-forward token: the token that must come next where the grammar allows only one text, as in the
 * keys of an object. Null where it allows several, or where the tokenization is not certain.
 *
 * Forced text can be tokenized in many ways; the model has learnt that of its tokenizer. So the text is cut
 * by byte-pair merges, the pair with the lowest token first. Token numbers follow the order in which merges
 * were learnt. See Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units",
 * ACL 2016, §3.2.
 *
 * A token counts only if no token that begins inside it, or with it, could extend past the end of the forced
 * text. The model chooses the text there, which may change the tokenization.
 *
 * The result follows from the state alone, so each sequence gets the same tokens however its steps were
 * batched.
 */
export function forcedToken(vocabulary: Vocabulary, parser: Parser, state: ParseState): number | null {
  const { trie } = vocabulary;
  const { text, end } = forcedText(parser, state, trie.height);
  if (text.length === 0) return null;
  const first = cut(vocabulary, text)?.[0];
  if (first === undefined) return null;
  for (let from = 0; from < first.length; from++) if (reachesOver(trie, parser, text, from, end)) return null;
  return first.token;
}

/** Forced bytes, at most `most`, and the state after them. */
function forcedText(parser: Parser, start: ParseState, most: number): { text: number[]; end: ParseState } {
  const text: number[] = [];
  let end: ParseState = start;
  let [after, spare] = [noPlace(), noPlace()];
  while (text.length < most) {
    const byte = parser.onlyByte(end);
    if (byte === null) break;
    text.push(byte);
    parser.follow(end, byte, after);
    end = after;
    [after, spare] = [spare, after];
  }
  return { text, end };
}

interface Piece {
  readonly node: number;
  readonly token: number;
  readonly length: number;
}

/** Tokenization of the text; null if a byte of it has no token of its own. */
function cut(vocabulary: Vocabulary, text: readonly number[]): Piece[] | null {
  const { trie, isAdded } = vocabulary;
  const pieceOf = (from: number, length: number): Piece | null => {
    let node = 0;
    for (let at = from; at < from + length; at++) {
      node = childOf(trie, node, text[at]!);
      if (node < 0) return null;
    }
    const [first, end] = [trie.firstTokens[node]!, trie.firstTokens[node + 1]!];
    // The last of several tokens with the same text is the usual one: byte fallback tokens come first.
    return first === end ? null : { node, token: trie.tokens[end - 1]!, length };
  };
  const pieces: Piece[] = [];
  /** Start offset of each piece. */
  const starts: number[] = [];
  for (let at = 0; at < text.length; ) {
    const piece = pieceOf(at, Math.max(1, addedLength(vocabulary, text, at)));
    if (piece === null) return null;
    pieces.push(piece);
    starts.push(at);
    at += piece.length;
  }
  /** Token that merges a piece with the next one, or null. */
  const pairOf = (index: number): Piece | null => {
    const [piece, next] = [pieces[index]!, pieces[index + 1]!];
    const isWhole = isAdded[piece.token] === 1 || isAdded[next.token] === 1;
    return isWhole ? null : pieceOf(starts[index]!, piece.length + next.length);
  };
  const pairs = pieces.slice(1).map((_, index) => pairOf(index));
  for (;;) {
    let best = -1;
    for (const [index, pair] of pairs.entries())
      if (pair !== null && (best < 0 || pair.token < pairs[best]!.token)) best = index;
    if (best < 0) return pieces;
    pieces.splice(best, 2, pairs[best]!);
    starts.splice(best + 1, 1);
    pairs.splice(best, 1);
    if (best < pairs.length) pairs[best] = pairOf(best);
    if (best > 0) pairs[best - 1] = pairOf(best - 1);
  }
}

/**
 * Length in bytes of the longest added token at an offset of the text; 0 if there is none. Added tokens are
 * never merged.
 */
function addedLength({ trie, isAdded }: Vocabulary, text: readonly number[], from: number): number {
  let length = 0;
  for (let node = 0, at = from; at < text.length; ) {
    node = childOf(trie, node, text[at++]!);
    if (node < 0) break;
    const [first, end] = [trie.firstTokens[node]!, trie.firstTokens[node + 1]!];
    if (first < end && isAdded[trie.tokens[end - 1]!] === 1) length = at - from;
  }
  return length;
}

/** True if a token could begin at an offset of the text and extend past its end. */
function reachesOver(
  trie: Trie,
  parser: Parser,
  text: readonly number[],
  from: number,
  end: ParseState,
): boolean {
  let node = 0;
  for (let at = from; at < text.length; at++) {
    node = childOf(trie, node, text[at]!);
    if (node < 0) return false;
  }
  for (let child = node + 1; child < trie.ends[node]!; child = trie.ends[child]!)
    if (parser.follow(end, trie.bytes[child]!, noPlace())) return true;
  return false;
}
