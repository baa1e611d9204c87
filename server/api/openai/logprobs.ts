import type { TokenEntry, TokenText } from "../../answer/events.ts";

/** JSON has no -∞; this is what OpenAI's API says instead. */
const logprobMin = -9999;

interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

export interface ChatLogprobs {
  readonly content: readonly (ChatLogprob & { readonly top_logprobs: readonly ChatLogprob[] })[];
  readonly refusal: null;
}

/** `logprobs` of a chat choice. */
export function chatLogprobs(entries: readonly TokenEntry[], tokensAsIds: boolean): ChatLogprobs {
  const one = (entry: TokenText): ChatLogprob => ({
    token: nameOf(entry, tokensAsIds),
    logprob: Math.max(entry.logprob, logprobMin),
    bytes: [...entry.bytes],
  });
  return {
    content: entries.map((entry) => ({ ...one(entry), top_logprobs: entry.top.map(one) })),
    refusal: null,
  };
}

export interface CompletionLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly number[];
  readonly top_logprobs: readonly Readonly<Record<string, number>>[];
  /** Unicode scalars before each token, in the text of its choice. */
  readonly text_offset: readonly number[];
}

/** `logprobs` of a text completion's choice. Alternatives come likeliest first, but that JavaScript's objects begin with names
 *  that are whole numbers; of those that read the same, the likeliest is told. */
export function completionLogprobs(entries: readonly TokenEntry[], tokensAsIds: boolean): CompletionLogprobs {
  const logprobOf = (entry: TokenText) => Math.max(entry.logprob, logprobMin);
  return {
    tokens: entries.map((entry) => nameOf(entry, tokensAsIds)),
    token_logprobs: entries.map(logprobOf),
    top_logprobs: entries.map((entry) => {
      const top = new Map<string, number>();
      for (const token of [entry, ...entry.top].sort((a, b) => b.logprob - a.logprob)) {
        const name = nameOf(token, tokensAsIds);
        if (!top.has(name)) top.set(name, logprobOf(token));
      }
      return Object.fromEntries(top);
    }),
    text_offset: entries.map((entry) => entry.textOffset),
  };
}

function nameOf(entry: TokenText, tokensAsIds: boolean): string {
  return tokensAsIds ? `token_id:${entry.token}` : entry.text;
}
