import type { PromptEntry, TokenEntry, TokenText } from "../../answer/events.ts";
import { scalarCount } from "../../answer/token-text.ts";
import { LazyList } from "../../http/json/slices.ts";

/** JSON has no -∞; this is what OpenAI's API says instead. */
const logprobMin = -9999;

interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
}

/** A token of a chat, with those in its place. */
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
  /** Of a prompt's first token null. */
  readonly token_logprobs: LazyList<PromptEntry>;
  readonly top_logprobs: LazyList<PromptEntry>;
  /** Unicode scalars before each token, in the text of its choice. */
  readonly text_offset: LazyList<PromptEntry>;
}

/** `logprobs` of a text completion's choice. Alternatives come likeliest first, but that JavaScript's objects begin with names
 *  that are whole numbers; of those that read the same, the likeliest is told. */
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

/** A prompt with so many alternatives and the answer that follows its text, as one. What a tokenizer adds before the text, or leaves out of it, has no
 *  place in it. */
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

/** A token in its place, as vLLM tells it. */
interface RankedToken {
  readonly logprob: number;
  /** 1 is the likeliest; null: it is none of those that are told. */
  readonly rank: number | null;
  readonly decoded_token: string;
}

/** `prompt_logprobs`: by place so many of the likeliest tokens and the one that is there, by their ids; null of the first place. */
export function promptLogprobsJson(entries: readonly PromptEntry[], top: number): LazyList<PromptEntry> {
  return new LazyList(entries, (entry) => {
    if (!hasLogprob(entry)) return null;
    const told: Record<string, RankedToken> = {};
    const tell = ({ token, text, logprob }: TokenText, rank: number | null): void => {
      told[token] ??= { logprob: shown(logprob), rank, decoded_token: text };
    };
    for (const [index, token] of entry.top.slice(0, top).entries()) tell(token, index + 1);
    tell(entry, null);
    return told;
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
