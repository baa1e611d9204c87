import { assert } from "../../base/assert.ts";
import type { TokenId } from "../../base/token.ts";
import type { TokenLogprobs } from "../../scheduler/core.ts";
import { StreamDetokenizer } from "../../text/detokenizer.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { PromptEntry } from "./events.ts";
import { entryOf, scalarCount, tokenTextOf } from "./token-text.ts";

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
      assert(index === 0 || logprobs !== undefined, "every token of a prompt is told but the first");
      const entry =
        logprobs === undefined
          ? { ...tokenTextOf(tokenizer, token, null), top: [], textOffset }
          : entryOf(tokenizer, token, logprobs, textOffset);
      textOffset += scalarCount(detokenizer.push(tokenizer.bytesOf(token)));
      return entry;
    });
  }
}
