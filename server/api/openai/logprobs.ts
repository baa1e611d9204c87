import type { PromptEntry, TokenEntry, TokenText } from "../../answer/events.ts";
import { scalarCount } from "../../answer/token-text.ts";
import { LazyList } from "../../http/json/slices.ts";

/** Stand-in for -∞, which JSON lacks. OpenAI's API sends the same value. */
const logprobMin = -9999;

interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

/** A chat's token with the likeliest tokens at its position. */
export interface ChatEntry extends ChatLogprob {
  readonly top_logprobs: readonly ChatLogprob[];
}

/** `logprobs` of a chat choice. */
export function chatLogprobs(entries: readonly TokenEntry[], tokensAsIds: boolean): object {
  return { content: new LazyList(entries, (entry) => chatEntry(entry, tokensAsIds)), refusal: null };
}

export function chatEntry(entry: TokenEntry, tokensAsIds: boolean): ChatEntry {
  const one = (token: TokenText): ChatLogprob => ({
    token: nameOf(token, tokensAsIds),
    logprob: shown(token.logprob),
    bytes: [...token.bytes],
  });
  return { ...one(entry), top_logprobs: entry.top.map(one) };
}

export interface CompletionLogprobs {
  readonly tokens: LazyList<PromptEntry>;
  /** Null for a prompt's first token. */
  readonly token_logprobs: LazyList<PromptEntry>;
  readonly top_logprobs: LazyList<PromptEntry>;
  /** Unicode scalars before each token, in the text of its choice. */
  readonly text_offset: LazyList<PromptEntry>;
}

/**
 * `logprobs` of a text completion's choice. Alternatives are sorted by likelihood, except that JavaScript
 * puts keys that are whole numbers first. Of alternatives with equal text, only the likeliest appears.
 */
export function completionLogprobs(
  entries: readonly PromptEntry[],
  tokensAsIds: boolean,
): CompletionLogprobs {
  const listed = (make: (entry: PromptEntry) => unknown) => new LazyList(entries, make);
  return {
    tokens: listed((entry) => nameOf(entry, tokensAsIds)),
    token_logprobs: listed(({ logprob }) => (logprob === null ? null : shown(logprob))),
    top_logprobs: listed((entry) => {
      if (!hasLogprob(entry)) return null;
      const top = new Map<string, number>();
      for (const token of [entry, ...entry.top].sort((a, b) => b.logprob - a.logprob)) {
        const name = nameOf(token, tokensAsIds);
        if (!top.has(name)) top.set(name, shown(token.logprob));
      }
      return Object.fromEntries(top);
    }),
    text_offset: listed((entry) => entry.textOffset),
  };
}

/**
 * Joins a prompt, with `top` alternatives per token, and its answer. Text offsets leave out the tokens that
 * the tokenizer adds before the text.
 */
export function echoed(
  prompt: readonly PromptEntry[],
  text: string,
  answer: readonly TokenEntry[],
  top: number,
): readonly PromptEntry[] {
  const textLength = scalarCount(text);
  const written = new TextDecoder().decode(Buffer.concat(prompt.map(({ bytes }) => bytes)));
  const added = scalarCount(written) - textLength;
  const placed = prompt.map((entry) => {
    return { ...entry, top: entry.top.slice(0, top), textOffset: Math.max(0, entry.textOffset - added) };
  });
  return [...placed, ...answer.map((entry) => ({ ...entry, textOffset: entry.textOffset + textLength }))];
}

/** A token at its position, in vLLM's format. */
interface RankedToken {
  readonly logprob: number;
  /** 1 is the likeliest; null: not ranked. */
  readonly rank: number | null;
  readonly decoded_token: string;
}

/**
 * `prompt_logprobs`: by position the `top` likeliest tokens and the prompt's own, keyed by token id; null for
 * the first position.
 */
export function promptLogprobsJson(entries: readonly PromptEntry[], top: number): LazyList<PromptEntry> {
  return new LazyList(entries, (entry) => {
    if (!hasLogprob(entry)) return null;
    const ranked: Record<string, RankedToken> = {};
    const tell = ({ token, text, logprob }: TokenText, rank: number | null): void => {
      ranked[token] ??= { logprob: shown(logprob), rank, decoded_token: text };
    };
    for (const [index, token] of entry.top.slice(0, top).entries()) tell(token, index + 1);
    tell(entry, null);
    return ranked;
  });
}

function hasLogprob(entry: PromptEntry): entry is TokenEntry {
  return entry.logprob !== null;
}

function shown(logprob: number): number {
  return Math.max(logprob, logprobMin);
}

function nameOf(entry: Pick<TokenText, "token" | "text">, tokensAsIds: boolean): string {
  return tokensAsIds ? `token_id:${entry.token}` : entry.text;
}
