/**
 * The data types of the scheduler. Read this file first: everything else moves these things around.
 *
 * Everything here is plain data (it crosses threads by structured clone) and nothing here knows of clocks,
 * I/O, promises or native code. Token positions are absolute in the sequence, ranges are half-open
 * [start, start + count), times are milliseconds of the injected clock.
 */

import type { Pooling, TokenId } from "../base/token.ts";
import type { Constraint } from "../grammar/constraint.ts";

declare const brand: unique symbol;
type Branded<Name extends string> = number & { readonly [brand]: Name };

/** One token stream on one device. Unique for the life of the process; given out by the fleet, never reused. */
export type SequenceId = Branded<"SequenceId">;
/** Index of a KV page on one device, 0 … pages-1. */
export type PageId = Branded<"PageId">;
/** Index of an engine in the fleet, 0 … engines-1. */
export type EngineId = Branded<"EngineId">;
/** A LoRA adapter, as devices number them. 0 is none, and the only one that devices take today. */
export type AdapterId = number;

/** Sampling parameters. Every field has a value: the API applies the defaults. */
export interface Sampling {
  /** 0 means greedy (arg-max, ties to the lowest id); else > 0. */
  readonly temperature: number;
  /** Keep the k most likely tokens; 0 keeps all. */
  readonly topK: number;
  /** Keep the smallest set whose probability reaches topP, in [0, 1]: 0 keeps the likeliest, 1 all. */
  readonly topP: number;
  /** Drop tokens less likely than minP × the likeliest, in [0, 1]; 0 keeps all. */
  readonly minP: number;
  /** > 0; 1 is off. Divides positive and multiplies negative logits of tokens in prompt or output. */
  readonly repetitionPenalty: number;
  /** Subtracted once from the logit of each token already in the output; [-2, 2]. */
  readonly presencePenalty: number;
  /** Subtracted once per occurrence in the output; [-2, 2]. */
  readonly frequencyPenalty: number;
  /** Added to logits before anything else is drawn; pairs (token, bias). */
  readonly logitBias: readonly (readonly [TokenId, number])[];
  /** The only tokens that may be drawn, one bit each as in `SampleRow.allowed`; null: any. */
  readonly allowedTokens: Uint32Array | null;
  /** Words as tokens, ≥ 1 each, that the output may not contain: the last token of a word is not drawn after all others. */
  readonly badWords: readonly (readonly TokenId[])[];
  /** 64 bits as two uint32 [low, high]. With the output position it decides every random draw. */
  readonly seed: readonly [number, number];
  /** null: no logprobs. n ≥ 0: the sampled token's logprob and the n likeliest (of the raw logits). */
  readonly topLogprobs: number | null;
}

/** Greedy sampling without any option. */
export const greedySampling: Sampling = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: [],
  allowedTokens: null,
  badWords: [],
  seed: [0, 0],
  topLogprobs: null,
};

/** Conditions that end a sequence, besides an abort. */
export interface StopRule {
  /** Tokens to generate at most, ≥ 1. */
  readonly tokensMax: number;
  /** Until this many tokens are out, no stop token can be drawn (their logits are -inf). */
  readonly tokensMin: number;
  /** Drawing one of these ends the sequence; the token is reported but is not text. */
  readonly stopTokens: readonly TokenId[];
}

/** The SLO class of a sequence (Parrot's performance objectives, arXiv:2405.19888 §5.2), which orders and paces it. `latency`: an online
 *  stream; `gang`: a member of a task group, of which the last to end counts; `throughput`: offline work. The rules of each are in
 *  objective.ts. */
export type Objective = "latency" | "gang" | "throughput";

/** The program (scheduler/program/) whose call a sequence is, as far as its order goes. */
export interface ProgramPlace {
  /** Unique for the life of the process. Programs that arrive later have higher numbers. */
  readonly id: number;
  /** Milliseconds from the program's arrival to the sequence's. */
  readonly ageMs: number;
  /** Expected milliseconds from the sequence's beginning to the end of the longest path of calls from it. */
  readonly remainingMs: number;
}

/** The service that a sequence gets. It does not affect the tokens. */
export interface Service {
  readonly objective: Objective;
  /** Shares of the machine are kept per tenant. "": the client has no name. */
  readonly tenant: string;
  /** Milliseconds wanted at most between two tokens; null: no target. */
  readonly tbtMs: number | null;
  /** Milliseconds wanted at most from arrival to the first token; null: no target. */
  readonly ttftMs: number | null;
  /** Priority among a tenant's waiting sequences: the lowest number goes first. An integer; 0 unless asked for. */
  readonly priority: number;
  /** Number of its task group; null: none. Unique for the life of the process. */
  readonly taskGroup: number | null;
  /** Its program; null: it is not the call of one. */
  readonly program: ProgramPlace | null;
}

/** The service of a chat without targets. */
export const chatService: Service = Object.freeze({
  objective: "latency",
  tenant: "",
  tbtMs: null,
  ttftMs: null,
  priority: 0,
  taskGroup: null,
  program: null,
});

/** A sequence as submitted to an engine. */
export interface SequenceSpec {
  readonly id: SequenceId;
  /** At least one token. An Int32Array crosses threads fastest. */
  readonly promptTokens: ArrayLike<TokenId>;
  /** Output tokens that a lost engine has drawn. They are known from the start, count towards `tokensMax` and penalties, and are not reported
   *  again; the next draw's position is their number. */
  readonly drawnTokens: ArrayLike<TokenId>;
  readonly sampling: Sampling;
  readonly stop: StopRule;
  /** Number of top log probabilities to return for each computed (uncached) prompt position, besides that of its token. Absent: none. */
  readonly promptLogprobs?: number;
  /** Whether to report the number of computed prompt tokens after each step that computes some; absent: no. */
  readonly tellsProgress?: boolean;
  /** Prefixes are shared only between sequences with the same salt ("" by default): isolation of tenants. */
  readonly cacheSalt: string;
  /** Length of the leading public prefix, which is shared across salts; absent: 0. */
  readonly publicTokens?: number;
  /** The constraint of its output; absent: any text. */
  readonly constraint?: Constraint;
  /** Its adapter; prefixes are shared only between sequences with the same one. */
  readonly adapter: AdapterId;
  readonly service: Service;
  /** Pooling of a sequence that draws nothing, and ends as `pooled` when its hidden states are computed. Absent: it draws. */
  readonly pooling?: Pooling;
  /** Whether another sequence will go on from it: its pages stay on its engine when it ends, until that one comes (`continues`), or never will
   *  (`release`). */
  readonly isHeld?: boolean;
  /** The held sequence with which its prompt begins. It goes to the same engine, and before all that wait there. */
  readonly continues?: SequenceId;
}

/**
 * The known beginning of a prompt to come, whose call waits for the rest. Its cached pages are evicted last, and missing ones may be
 * computed ahead.
 */
export interface PrefixHint extends Pick<SequenceSpec, "cacheSalt" | "publicTokens" | "adapter"> {
  /** Its id among those of sequences: steps that compute a part of it name it so. */
  readonly id: SequenceId;
  readonly tokens: ArrayLike<TokenId>;
  /** Number of the program whose call it is; null: of none. */
  readonly program: number | null;
  /** Whether it may be computed ahead. */
  readonly isWarmed: boolean;
}

/** Sequences with which one shares its prefixes. */
export interface Sharing {
  /** Sequences with the same key share all of it. There is one key for each pair of adapter and salt. */
  readonly key: string;
  /** Sequences with the same public key share its first `publicTokens`, whole pages. There is one such key for each adapter. */
  readonly publicKey: string;
  readonly publicTokens: number;
}

/** The sharing of a sequence or a prefix hint, on an engine with pages of `pageTokens`. */
export function sharingOf(
  { adapter, cacheSalt, publicTokens = 0 }: Pick<SequenceSpec, "adapter" | "cacheSalt" | "publicTokens">,
  pageTokens: number,
): Sharing {
  return {
    key: cacheKeyOf({ adapter, cacheSalt }),
    publicKey: `${adapter}`,
    publicTokens: publicTokens - (publicTokens % pageTokens),
  };
}

/** The cache key: sequences with equal keys share prefixes that are not public. */
export function cacheKeyOf({ adapter, cacheSalt }: Pick<SequenceSpec, "adapter" | "cacheSalt">): string {
  return `${adapter}:${cacheSalt}`;
}

/**
 * Tokens [start, start + tokens.length) of a sequence, computed in one step. Never empty.
 *
 * `tokens` and `pages` are views into the engine's own arrays, so that a step costs no copy of prompts and
 * page tables: a device may read them from `start` until it calls `done`, and writes neither.
 */
export interface Chunk {
  readonly sequence: SequenceId;
  readonly start: number;
  /** TokenIds. */
  readonly tokens: Int32Array;
  /** PageIds of positions [0, start + tokens.length), exactly as many as needed; the last page may be partial. */
  readonly pages: Int32Array;
  /** Output rows by rising `afterIndex`. A sequence that draws has none while known tokens are left to compute. A chunk may have several, as for
   *  speculation. */
  readonly samples: readonly ChunkRow[];
  readonly adapter: AdapterId;
}

/** An output of one token of a chunk. */
export type ChunkRow = SampleRow | HiddenRow;

/** A hidden state to return: the output of the final norm. */
export interface HiddenRow {
  readonly wants: "hidden";
  /** Index of the token within the chunk. */
  readonly afterIndex: number;
}

/** A row of logits to sample from. */
export interface SampleRow {
  /** Absent: the row is sampled. */
  readonly wants?: never;
  /** Index within the chunk of the token that the drawn one follows. */
  readonly afterIndex: number;
  readonly sampling: Sampling;
  /** Output position: 0 for the first generated token. Preemption does not change it. */
  readonly position: number;
  /** Tokens that must not be drawn now: stop tokens before tokensMin, and last tokens of bad words. */
  readonly banned: readonly TokenId[];
  /** Distinct tokens of prompt and output with their count in the output (0: in the prompt only).
   *  Present only when a penalty is on. */
  readonly seen: SeenTokens | null;
  /** One bit per vocabulary entry, 1 = allowed, ceil(vocabSize / 32) words; null allows all. */
  readonly allowed: Uint32Array | null;
  /** The constraint from which `allowed` is made (gpu/constrained-device.ts); absent: none. */
  readonly constraint?: RowConstraint;
}

/** A constraint, and the output so far on which its mask depends. */
export interface RowConstraint {
  readonly of: Constraint;
  /** The output so far. */
  readonly drawn: Int32Array;
  /** Stop tokens, which are not part of the text. */
  readonly endTokens: readonly TokenId[];
}

/** Columnar (token, output count) pairs; the first `length` entries are valid. Owned by the sequence's
 *  engine. */
export interface SeenTokens {
  readonly tokens: Int32Array;
  readonly counts: Int32Array;
  readonly length: number;
}

/** The memory in which a page lies: today only the device's own. */
export type PageTier = "device";

/** The first `count` tokens' keys and values of page `from` become those of the device's page `to`, before the step's
 *  chunks run. `from` keeps its own. */
export interface PageMove {
  readonly from: PageId;
  /** The memory of `from`. */
  readonly tier: PageTier;
  readonly to: PageId;
  readonly count: number;
}

/** One forward pass: a mix of decodes (chunks of one token) and prompt chunks. Data only. */
export interface Step {
  /** 1, 2, 3 … per engine. */
  readonly number: number;
  readonly moves: readonly PageMove[];
  readonly chunks: readonly Chunk[];
  /** Whether all of it is offline work, which the device may abort when online work comes. */
  readonly isAbortable?: boolean;
}

/** Logprobs of one drawn token (natural logarithm, of the raw logits). `top` is sorted, likeliest first. */
export interface TokenLogprobs {
  readonly logprob: number;
  readonly top: readonly { readonly token: TokenId; readonly logprob: number }[];
}

/** The result of one row of a chunk. */
export type Sampled =
  | {
      readonly kind: "token";
      readonly sequence: SequenceId;
      readonly token: TokenId;
      readonly logprobs: TokenLogprobs | null;
      /** Tokens that must follow it: each the only one that its mask would have allowed, so none is drawn. Absent: none. */
      readonly forced?: readonly TokenId[];
    }
  /** [hidden size] */
  | { readonly kind: "hidden"; readonly sequence: SequenceId; readonly hidden: Float32Array }
  /** Nothing was drawn yet, since the row's mask is not ready: the engine asks again in the next step. */
  | { readonly kind: "deferred"; readonly sequence: SequenceId }
  /** This row alone failed (for example its logits were not finite); the others are good. */
  | { readonly kind: "failed"; readonly sequence: SequenceId; readonly reason: string };

/** A step's outcome. `sampled` follows the order of the step's chunks, and of the rows of each. */
export type StepResult =
  | { readonly kind: "done"; readonly sampled: readonly Sampled[]; readonly deviceMs: number }
  /** Nothing was computed; the same step may be started again. */
  | { readonly kind: "retry"; readonly reason: string }
  /** The device aborted the step for online work. Its moves are made; nothing else of it counts. */
  | { readonly kind: "aborted"; readonly reason: string }
  /** The device is lost, with its pages and everything on them. */
  | { readonly kind: "lost"; readonly reason: string };

/** The reason for which a sequence ended. Exactly one per sequence. */
export type Finish =
  | { readonly kind: "stop"; readonly token: TokenId }
  | { readonly kind: "length" }
  /** Its hidden states, pooled: [hidden size], as long as they come. */
  | { readonly kind: "pooled"; readonly hidden: Float32Array }
  | { readonly kind: "aborted" }
  /** Refused before it held anything. neverFits: `needed` and `limit` are tokens (the prompt and one more;
   *  the longest sequence possible here). queueFull: they are waiting sequences. */
  | {
      readonly kind: "rejected";
      readonly reason: "neverFits" | "queueFull";
      readonly needed: number;
      readonly limit: number;
    }
  | { readonly kind: "failed"; readonly reason: string };
