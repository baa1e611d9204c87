/** WordPiece: splits a word into the longest pieces of the vocabulary, from its beginning on. */
import type { TokenId } from "../../base/token.ts";
import { type JsonObject, TokenizerError } from "../tokenizer-file.ts";

/** Maximum words in the cache of words and their tokens, which is emptied when it is full. */
const knownMax = 1 << 16;

/** `isControl`: true for spellings that are no pieces of a text. */
export function wordPiece(
  model: JsonObject,
  isControl: (spelling: string) => boolean,
): (word: string) => readonly TokenId[] {
  const ids = model.vocab as Record<string, TokenId>;
  const vocab = new Map(Object.entries(ids).filter(([spelling]) => !isControl(spelling)));
  const unknown = ids[String(model.unk_token)];
  if (unknown === undefined)
    throw new TokenizerError(`tokenizer.json: the vocabulary has no ${JSON.stringify(model.unk_token)}`);
  const prefix = String(model.continuing_subword_prefix ?? "##");
  const charactersMax = Number(model.max_input_chars_per_word ?? 100);
  const longest = vocab.keys().reduce((most, { length }) => Math.max(most, length), 0);
  const known = new Map<string, readonly TokenId[]>();

  const split = (word: string): readonly TokenId[] => {
    // A word has at least as many code units as characters.
    if (word.length > charactersMax && [...word].length > charactersMax) return [unknown];
    const tokens: TokenId[] = [];
    for (let start = 0; start < word.length; ) {
      const before = start === 0 ? "" : prefix;
      let end = Math.min(word.length, start + longest);
      let token: TokenId | undefined;
      for (; end > start; end--) {
        token = vocab.get(before + word.slice(start, end));
        if (token !== undefined) break;
      }
      if (token === undefined) return [unknown];
      tokens.push(token);
      start = end;
    }
    return tokens;
  };

  return (word) => {
    const before = known.get(word);
    if (before !== undefined) return before;
    const tokens = split(word);
    if (known.size >= knownMax) known.clear();
    if (word.length <= charactersMax) known.set(word, tokens);
    return tokens;
  };
}
