/** Random answers that a constraint allows. */
import type { Grammar } from "../../grammar/grammar.ts";
import { Masks } from "../../grammar/mask/masks.ts";
import { Matcher, parserOf } from "../../grammar/mask/matcher.ts";
import { tokenBytes, vocabularyOf } from "../../grammar/mask/vocabulary.ts";

/** Vocabulary: every byte, and pieces of JSON. */
const tokens = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...['{"', '":', '","', '"}', "},", "[]", '"a":', "true", "null", "ab", "12", ".5", "é", '"]', "],["].map(
    (one) => new TextEncoder().encode(one),
  ),
];
const vocabulary = vocabularyOf(tokens.length, (token) => tokens[token]!);
const masks = new Masks(vocabulary);
/** Tokens of an answer at most; longer ones are cut off. */
const ANSWER_TOKENS_MAX = 300;

/**
 * Draws an answer uniformly from the allowed tokens; it ends at every second place where it may. Null: cut
 * off. `next` yields integers from 0 on.
 */
export function drawnAnswer(grammar: Grammar, next: () => number): string | null {
  const matcher = new Matcher(parserOf(grammar, masks), masks);
  const bytes: number[] = [];
  while (matcher.length < ANSWER_TOKENS_MAX) {
    if (matcher.mustEnd || (matcher.mayEnd && next() % 2 === 0)) {
      return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes));
    }
    const mask = matcher.mask();
    const allowed = tokens.flatMap((_, token) => ((mask[token >>> 5]! >>> (token & 31)) & 1 ? [token] : []));
    const token = matcher.forcedTokens(1)[0] ?? allowed[next() % allowed.length]!;
    if (!matcher.accept(token)) throw new Error(`token ${token} is in the mask and is not accepted`);
    bytes.push(...tokenBytes(vocabulary, token));
  }
  return null;
}
