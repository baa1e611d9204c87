import type { TokenId } from "../../base/token.ts";
import type { TokenLogprobs } from "../../scheduler/core.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { TokenEntry, TokenText } from "./events.ts";

/** A token with the likeliest tokens at its position. `textOffset`: scalars before it. */
export function entryOf(
  tokenizer: Tokenizer,
  token: TokenId,
  logprobs: TokenLogprobs,
  textOffset: number,
): TokenEntry {
  return {
    ...tokenTextOf(tokenizer, token, logprobs.logprob),
    top: logprobs.top.map((other) => tokenTextOf(tokenizer, other.token, other.logprob)),
    textOffset,
  };
}

const aloneDecoder = new TextDecoder("utf-8", { ignoreBOM: true });

export function tokenTextOf<Logprob extends number | null>(
  tokenizer: Tokenizer,
  token: TokenId,
  logprob: Logprob,
): Omit<TokenText, "logprob"> & { readonly logprob: Logprob } {
  const bytes = tokenizer.bytesOf(token);
  return { token, text: tokenizer.textOf(token) ?? aloneDecoder.decode(bytes), bytes, logprob };
}

/** Number of Unicode scalars in a text. */
export function scalarCount(text: string): number {
  let count = 0;
  for (let i = 0; i < text.length; i++) if ((text.charCodeAt(i) & 0xfc00) !== 0xdc00) count++;
  return count;
}
