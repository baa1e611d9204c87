import { assert } from "../../base/assert.ts";
import type { TokenId } from "../../base/token.ts";
import type { TokenLogprobs } from "../../scheduler/core.ts";
import { StreamDetokenizer } from "../../text/detokenizer.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { PromptEntry, TokenEntry, TokenText } from "./events.ts";

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

/** Gathers the log probabilities of one prompt's tokens, which arrive in pieces. */
export class PromptTokens {
  readonly #tokens: readonly TokenId[];
  readonly #logprobs = new Map<number, TokenLogprobs>();

  constructor(tokens: readonly TokenId[]) {
    this.#tokens = tokens;
  }

  /** Stores log probabilities of the tokens from `start` on; repeated ones are the same. */
  take(start: number, logprobs: readonly TokenLogprobs[]): void {
    for (const [i, one] of logprobs.entries()) this.#logprobs.set(start + i, one);
  }

  /** The prompt's entries. All log probabilities must have arrived. */
  entries(tokenizer: Tokenizer): PromptEntry[] {
    const detokenizer = new StreamDetokenizer();
    let textOffset = 0;
    return this.#tokens.map((token, index): PromptEntry => {
      const logprobs = this.#logprobs.get(index);
      assert(
        index === 0 || logprobs !== undefined,
        "every token of a prompt but the first has log probabilities",
      );
      const entry =
        logprobs === undefined
          ? { ...tokenTextOf(tokenizer, token, null), top: [], textOffset }
          : entryOf(tokenizer, token, logprobs, textOffset);
      textOffset += scalarCount(detokenizer.push(tokenizer.bytesOf(token)));
      return entry;
    });
  }
}
