/** Finds added tokens that are ordinary text in a text, with the rules of the package `tokenizers`. */
import type { TokenId } from "../../base/token.ts";
import { wordCharacters } from "./characters.ts";

/** Added token of a tokenizer.json. */
export interface AddedToken {
  readonly id: TokenId;
  readonly content: string;
  /** True for a special token, which no plain text may become. */
  readonly special: boolean;
  /** True if it absorbs the white space before it, or after it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** True if it is normalized, and searched for in the normalized text. */
  readonly normalized: boolean;
  /** True if it matches only where no word character precedes or follows. */
  readonly singleWord: boolean;
}

/** Parts of a text: tokens, and the texts between them. */
export type AddedSplit = (text: string) => readonly (string | TokenId)[];

const space = /\p{White_Space}/u;
const endsInWord = new RegExp(`[${wordCharacters}]$`, "u");
const beginsInWord = new RegExp(`^[${wordCharacters}]`, "u");

/** Splits a text at the leftmost, longest matches of the tokens. */
export function addedSplit(tokens: readonly AddedToken[]): AddedSplit {
  const byContent = new Map(tokens.map((token) => [token.content, token]));
  byContent.delete("");
  if (byContent.size === 0) return (text) => [text];
  const contents = [...byContent.keys()].sort((a, b) => b.length - a.length);
  const expression = new RegExp(contents.map(literal).join("|"), "g");
  return (text) => {
    const parts: (string | TokenId)[] = [];
    let done = 0;
    for (const match of text.matchAll(expression)) {
      const token = byContent.get(match[0])!;
      let [start, end] = [match.index, match.index + match[0].length];
      if (token.singleWord && isInWord(text, start, end)) continue;
      while (token.lstrip && start > done && space.test(text[start - 1]!)) start -= 1;
      while (token.rstrip && end < text.length && space.test(text[end]!)) end += 1;
      if (done < start) parts.push(text.slice(done, start));
      parts.push(token.id);
      done = end;
    }
    if (done < text.length) parts.push(text.slice(done));
    return parts;
  };
}

function isInWord(text: string, start: number, end: number): boolean {
  // Characters have two units at most.
  const [before, behind] = [text.slice(Math.max(0, start - 2), start), text.slice(end, end + 2)];
  return endsInWord.test(before) || beginsInWord.test(behind);
}

/** Source of a regular expression that matches exactly this text. */
export function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
}
