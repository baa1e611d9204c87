import type { TokenId } from "../../base/token.ts";

/**
 * Events of an answer in order: the interface between generation and the codecs that write to clients.
 * Choices are numbered through, prompt by prompt. No event belongs to a wire format; a codec in api/ turns
 * events into a body or a stream.
 *
 * `started` comes once, if at all. Each choice has its deltas and then one `finish`. The last event is `done`
 * or `failed`, exactly one of them.
 */
export type AnswerEvent =
  /** The engine admitted the first sequence: computing has begun. */
  | { readonly kind: "started" }
  /**
   * Computed or cached tokens of the first prompt. Sent between the start and the first delta if the request
   * asks for it.
   */
  | { readonly kind: "progress"; readonly tokens: number }
  | Delta
  | ({ readonly kind: "finish"; readonly choice: number } & ChoiceFinish)
  | {
      readonly kind: "done";
      readonly usage: Usage;
      /** Log probabilities by prompt; absent: the request asks for none. */
      readonly promptLogprobs?: readonly (readonly PromptEntry[])[];
    }
  | { readonly kind: "failed"; readonly failure: AnswerFailure };

/** New content of one choice: parts in order, and the tokens they came from. */
export interface Delta {
  readonly kind: "delta";
  readonly choice: number;
  /** Empty for tokens without visible text. */
  readonly parts: readonly Part[];
  readonly tokens: readonly TokenId[];
  /** Log probabilities, one entry per token; null if the request asks for none. */
  readonly logprobs: readonly TokenEntry[] | null;
}

/** A token as the API shows it. `text` is its bytes decoded alone (U+FFFD for part of a scalar). */
export interface TokenText {
  readonly token: TokenId;
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly logprob: number;
}

/** A token of an answer, with the likeliest tokens at its position. */
export interface TokenEntry extends TokenText {
  readonly top: readonly TokenText[];
  /** Unicode scalars of this choice's text before the token. */
  readonly textOffset: number;
}

/** A token of a prompt. The first one has no log probability, because no token precedes it. */
export interface PromptEntry extends Omit<TokenEntry, "logprob"> {
  readonly logprob: number | null;
}

/**
 * A piece of an answer. Text, reasoning and arguments may continue in the next part. A part of another kind,
 * or the choice's finish, ends them. Reasoning precedes everything else.
 */
export type Part =
  | { readonly kind: "text"; readonly text: string }
  /** Text that the model reasons before it answers. */
  | { readonly kind: "reasoning"; readonly text: string }
  /**
   * Beginning of a call. `index` counts the calls of the choice: 0, 1, 2 … `id`: made up by the model; absent for
   * most models.
   */
  | { readonly kind: "call"; readonly index: number; readonly name: string; readonly id?: string }
  /**
   * More arguments of the preceding call, as JSON of an object; possibly none at all if the answer reaches
   * its length limit.
   */
  | { readonly kind: "arguments"; readonly index: number; readonly text: string };

export interface ChoiceFinish {
  /**
   * `calls`: the model ended its answer, which holds calls. An answer that reaches its length limit has
   * `length`.
   */
  readonly reason: "stop" | "length" | "calls";
  /** Stop string or stop token that ended the choice; null for the model's own end or the length limit. */
  readonly stopReason: string | TokenId | null;
}

export interface Usage {
  readonly promptTokens: number;
  /** Output tokens of all choices, end tokens included. */
  readonly completionTokens: number;
  /** Reasoning tokens among them, with their delimiters. */
  readonly reasoningTokens: number;
  /** Prompt tokens with cached keys and values, of the first choice of each prompt. */
  readonly cachedTokens: number;
  /** Draft tokens that were verified, and those that were accepted; absent: none were verified. */
  readonly drafts?: DraftUsage;
  /** Verified and accepted tokens of the client's `prediction`; absent: it gave none. */
  readonly predicted?: DraftUsage;
}

export interface DraftUsage {
  readonly tokens: number;
  readonly accepted: number;
}

/** Reason why an answer failed. Messages are fit for the client. */
export type AnswerFailure =
  | { readonly kind: "neverFits"; readonly needed: number; readonly limit: number }
  | { readonly kind: "queueFull"; readonly needed: number; readonly limit: number }
  | { readonly kind: "engineFailed"; readonly message: string }
  /** The model has no vocabulary projection. */
  | { readonly kind: "writesNoText" }
  /** The constraint is refused; `param` is the path of the fault in the request. */
  | { readonly kind: "badConstraint"; readonly message: string; readonly param: string }
  /** No token can continue the text under its constraint. */
  | { readonly kind: "unsatisfiable"; readonly message: string }
  /** Ended by `Generation.abort`. */
  | { readonly kind: "aborted"; readonly by: AbortedBy };

/** Cause of an early end: the client disconnected, the client read too slowly, or the server stops. */
export type AbortedBy = "reader" | "slowReader" | "server";
