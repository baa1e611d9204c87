import { noPlace, type Parser, type ParseState } from "../parser/parser.ts";
import { childOf, type Trie, type Vocabulary } from "./vocabulary.ts";

/**
 * The token that must come next where a grammar leaves the text no choice, as inside of the keys of an object: null where it
 * leaves one, or where the tokens are not certain.
 *
 * Forced text can be cut into tokens in many ways, and each way is the same text. One of them is what the model has learnt to
 * write: that of its tokenizer. So the text is cut by merging pairs, the pair with the lowest token first (Sennrich, Haddow and
 * Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016, §3.2; tokens are numbered in the order in
 * which their merges were learnt). A token counts only if none could reach from inside of it, or from its beginning, over the
 * end of the forced text: what comes there is for the model to say, and may change the cut.
 *
 * It follows from the state alone, so that each sequence goes the same way however its steps were made up.
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

/** The bytes that must follow, `most` of them at most, and what the text may be after them. */
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

/** The text as tokens; null: it has a byte that no token stands for. */
function cut(vocabulary: Vocabulary, text: readonly number[]): Piece[] | null {
  const { trie, isAdded } = vocabulary;
  const pieceOf = (from: number, length: number): Piece | null => {
    let node = 0;
    for (let at = from; at < from + length; at++) {
      node = childOf(trie, node, text[at]!);
      if (node < 0) return null;
    }
    const [first, end] = [trie.firstTokens[node]!, trie.firstTokens[node + 1]!];
    // Of tokens with one text the last is the usual one: bytes that stand in for missing characters come first.
    return first === end ? null : { node, token: trie.tokens[end - 1]!, length };
  };
  const pieces: Piece[] = [];
  /** By piece, where it begins. */
  const starts: number[] = [];
  for (let at = 0; at < text.length; ) {
    const piece = pieceOf(at, Math.max(1, addedLength(vocabulary, text, at)));
    if (piece === null) return null;
    pieces.push(piece);
    starts.push(at);
    at += piece.length;
  }
  /** By place, the piece with the next one. */
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

/** Bytes of the longest added token at a place of the text, which is one piece from the beginning; 0: there is none. */
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

/** Whether a token could begin at a place of the text and go on after its end. */
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
