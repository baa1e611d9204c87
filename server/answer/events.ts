import type { TokenId } from "../../base/token.ts";

/**
 * What happens to an answer, in the order in which it happens: the one language between what generates and what writes
 * to a client. Choices are numbered through, prompt by prompt. Nothing here belongs to a wire format; a codec in api/
 * turns events into a body or a stream.
 *
 * `started` comes once, if at all; each choice has its deltas and then one `finish`; the last event is `done` or
 * `failed`, exactly one of them.
 */
export type AnswerEvent =
  /** The first of its sequences was admitted: computing has begun. */
  | { readonly kind: "started" }
  /** Between the start and the first delta, of a request that asked: so many tokens of the first prompt are computed or cached. */
  | { readonly kind: "progress"; readonly tokens: number }
  | Delta
  | ({ readonly kind: "finish"; readonly choice: number } & ChoiceFinish)
  | {
      readonly kind: "done";
      readonly usage: Usage;
      /** By prompt; absent: the request asked for none. */
      readonly promptLogprobs?: readonly (readonly PromptEntry[])[];
    }
  | { readonly kind: "failed"; readonly failure: AnswerFailure };

/** What became certain of one choice: parts, in order, and the tokens they came from. */
export interface Delta {
  readonly kind: "delta";
  readonly choice: number;
  /** Empty when tokens gave nothing to show. */
  readonly parts: readonly Part[];
  readonly tokens: readonly TokenId[];
  /** One entry per token; null when the request asked for none. */
  readonly logprobs: readonly TokenEntry[] | null;
}

/** One token as the API shows it. `text` is its bytes decoded alone (U+FFFD for part of a scalar). */
export interface TokenText {
  readonly token: TokenId;
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly logprob: number;
}

/** A token of an answer, with the likeliest in its place. */
export interface TokenEntry extends TokenText {
  readonly top: readonly TokenText[];
  /** Unicode scalars of this choice's text before the token. */
  readonly textOffset: number;
}

/** A token of a prompt. The first has no log probability, as nothing goes before it. */
export interface PromptEntry extends Omit<TokenEntry, "logprob"> {
  readonly logprob: number | null;
}

/**
 * A piece of an answer. Text, thoughts and arguments may go on in the next part; whatever ends one of them begins another or
 * is the choice's finish. Thoughts come before everything else.
 */
export type Part =
  | { readonly kind: "text"; readonly text: string }
  /** What the model thinks before it answers. */
  | { readonly kind: "reasoning"; readonly text: string }
  /** A call begins. `index` counts the calls of the choice: 0, 1, 2 … */
  | { readonly kind: "call"; readonly index: number; readonly name: string }
  /** More of the arguments of the call before: the JSON of an object, of which nothing may have come when the answer is cut
   *  off at its length. */
  | { readonly kind: "arguments"; readonly index: number; readonly text: string };

export interface ChoiceFinish {
  /** `calls`: the model ended its answer, which holds calls. What was cut off at its length is `length`. */
  readonly reason: "stop" | "length" | "calls";
  /** The stop string or the stop token that ended the choice; null for the model's own end or the length. */
  readonly stopReason: string | TokenId | null;
}

export interface Usage {
  readonly promptTokens: number;
  /** Over all choices, end tokens included. */
  readonly completionTokens: number;
  /** Of those, thoughts and their marks. */
  readonly reasoningTokens: number;
  /** Prompt tokens whose keys and values were there already, of the first choice of each prompt. */
  readonly cachedTokens: number;
}

/** Why an answer came to nothing (more). Messages are fit for the client. */
export type AnswerFailure =
  | { readonly kind: "neverFits"; readonly needed: number; readonly limit: number }
  | { readonly kind: "queueFull"; readonly needed: number; readonly limit: number }
  | { readonly kind: "engineFailed"; readonly message: string }
  /** The model has no vocabulary projection. */
  | { readonly kind: "writesNoText" }
  /** The constraint is refused; `param` is the place in the request that is at fault. */
  | { readonly kind: "badConstraint"; readonly message: string; readonly param: string }
  /** No token goes on with a text that keeps to its constraint. */
  | { readonly kind: "unsatisfiable"; readonly message: string }
  /** Ended by `Generation.abort`. */
  | { readonly kind: "aborted"; readonly by: AbortedBy };

/** Why an answer ended early: its reader went away, or did not read as fast as it must, or the server stops. */
export type AbortedBy = "reader" | "slowReader" | "server";
