/**
 * The data types of Bunting; read this file first.
 *
 * Everything here is plain data: it crosses threads by structured clone. Nothing here depends on clocks, I/O,
 * promises or native code. Token positions are absolute in the sequence, ranges are half-open [start, start +
 * count), times are milliseconds of the injected clock.
 */

import type { Pooling, TokenId } from "../base/token.ts";
import type { Constraint } from "../grammar/constraint.ts";

declare const brand: unique symbol;
type Branded<Name extends string> = number & { readonly [brand]: Name };

/**
 * ID of a token stream on one device. The fleet assigns it; it is unique for the life of the process and
 * never reused.
 */
export type SequenceId = Branded<"SequenceId">;
/** Index of a KV page on one device, 0 … pages-1. */
export type PageId = Branded<"PageId">;
/** Index of a slot for recurrent states on one device, 0 … slots-1. */
export type StateSlot = Branded<"StateSlot">;
/** Index of an engine in the fleet, 0 … engines-1. */
export type EngineId = Branded<"EngineId">;
/** LoRA adapter: a number of up to 48 bits made of its contents, equal in every process. 0 means no adapter. */
export type AdapterId = number;

/** Sampling parameters of a sequence. Every field has a value: the API layer applies the defaults. */
export interface Sampling {
  /** Softmax temperature; 0 means greedy (arg-max, ties to the lowest id), else > 0. */
  readonly temperature: number;
  /** Keeps the k most likely tokens; 0 keeps all. */
  readonly topK: number;
  /** Keeps the smallest set whose probability reaches topP, in [0, 1]: 0 keeps the likeliest, 1 all. */
  readonly topP: number;
  /** Drops tokens less likely than minP × the likeliest, in [0, 1]; 0 keeps all. */
  readonly minP: number;
  /** Factor > 0; 1 is off. Divides positive and multiplies negative logits of tokens in prompt or output. */
  readonly repetitionPenalty: number;
  /** Subtracted once from the logit of each token already in the output; [-2, 2]. */
  readonly presencePenalty: number;
  /** Subtracted once per occurrence in the output; [-2, 2]. */
  readonly frequencyPenalty: number;
  /** (token, bias) pairs, added to the logits before all other sampling steps. */
  readonly logitBias: readonly (readonly [TokenId, number])[];
  /** Bitmask of the tokens that may be drawn, as in `SampleRow.allowed`; null: any. */
  readonly allowedTokens: Uint32Array | null;
  /**
   * Token sequences (≥ 1 token each) that the output must not contain: the last token is banned once the
   * others are out.
   */
  readonly badWords: readonly (readonly TokenId[])[];
  /** 64-bit seed as two uint32 [low, high]. Seed and output position decide every random draw. */
  readonly seed: readonly [number, number];
  /**
   * Top-k logprobs to return per drawn token (of the raw logits); n ≥ 0 adds the drawn token's own; null:
   * none.
   */
  readonly topLogprobs: number | null;
}

/** Greedy sampling without any other option. */
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

/** Stop conditions of a sequence, besides an abort by the client. */
export interface StopRule {
  /** Tokens to generate at most, ≥ 1. */
  readonly tokensMax: number;
  /** Minimum output length: before it no stop token can be drawn (their logits are -inf). */
  readonly tokensMin: number;
  /** Stop tokens: drawing one ends the sequence. The engine reports the token, but it is not text. */
  readonly stopTokens: readonly TokenId[];
}

/**
 * SLO class of a sequence, which decides its order and pacing (performance objectives of Parrot,
 * arXiv:2405.19888 §5.2). `latency`: a client reads the tokens as they come. `gang`: one of a task group, of
 * which only the last to end counts. `throughput`: only tokens per second count. The rules of each are in
 * objective.ts.
 */
export type Objective = "latency" | "gang" | "throughput";

/** Position of a call in its program (scheduler/program/), as used for scheduling. */
export interface ProgramPlace {
  /** Number of the program, unique for the life of the process. Later programs have higher numbers. */
  readonly id: number;
  /** Milliseconds from the program's arrival to the arrival of this sequence. */
  readonly ageMs: number;
  /**
   * Expected milliseconds from the start of this sequence to the end of the longest path of calls that starts
   * with it.
   */
  readonly remainingMs: number;
}

/** Session of a sequence: the turns of one agent or chat (scheduler/session/). */
export interface SessionPlace {
  /** Number of the session, unique for the life of the process. Later sessions have higher numbers. */
  readonly id: number;
  /** Session that waits for the outcome of this one, as an agent does for its subagent; null: none. */
  readonly parent: number | null;
}

/** Scheduling parameters of a sequence; independent of its content. */
export interface Service {
  readonly objective: Objective;
  /** Tenant for fair sharing; "" if the client has no name. */
  readonly tenant: string;
  /** Target of the time between two tokens (TBT) in milliseconds; null: no target. */
  readonly tbtMs: number | null;
  /** Target of the time to the first token (TTFT) in milliseconds; null: no target. */
  readonly ttftMs: number | null;
  /** Priority among the waiting sequences of a tenant: lower goes first. An integer; 0 by default. */
  readonly priority: number;
  /** Task group of the sequence; null: none. Unique for the life of the process. */
  readonly taskGroup: number | null;
  /** Program that the sequence is a call of; null: none. */
  readonly program: ProgramPlace | null;
  /** Session that the sequence is a turn of; null: none. */
  readonly session: SessionPlace | null;
}

/** Service of a chat: latency objective, no targets. */
export const chatService: Service = Object.freeze({
  objective: "latency",
  tenant: "",
  tbtMs: null,
  ttftMs: null,
  priority: 0,
  taskGroup: null,
  program: null,
  session: null,
});

/** Sequence to run on an engine: one token stream of one model. */
export interface SequenceSpec {
  readonly id: SequenceId;
  /** Prompt of at least one token. An Int32Array crosses threads fastest. */
  readonly promptTokens: ArrayLike<TokenId>;
  /**
   * Output tokens that a lost engine drew already. They are known from the start and count towards
   * `tokensMax` and penalties; the engine does not report them again. The next draw's position is their
   * number.
   */
  readonly drawnTokens: ArrayLike<TokenId>;
  readonly sampling: Sampling;
  readonly stop: StopRule;
  /**
   * Top-k logprobs to return per computed (uncached) prompt position, with that of the prompt's own token.
   * Absent: none.
   */
  readonly promptLogprobs?: number;
  /** Reports prompt progress after each step that computes a part of the prompt. Absent: no reports. */
  readonly tellsProgress?: boolean;
  /**
   * Salt of the prefix cache ("" by default): only sequences with the same salt share prefixes, to isolate
   * tenants.
   */
  readonly cacheSalt: string;
  /** Leading prompt tokens that all salts share (public text). Absent: none. */
  readonly publicTokens?: number;
  /** Constraint on the output; absent: any text. */
  readonly constraint?: Constraint;
  /** LoRA adapter. Only sequences with the same adapter share prefixes. */
  readonly adapter: AdapterId;
  /**
   * Most draft tokens that one step verifies; 0: no speculative decoding. Absent: as many as pay
   * (engine/step/draft-rule.ts). The output does not depend on it.
   */
  readonly draftTokensMax?: number;
  /** Predicted output (OpenAI's `prediction`), a source of drafts. Absent: none. */
  readonly prediction?: ArrayLike<TokenId>;
  readonly service: Service;
  /**
   * Pooling of hidden states: the sequence draws no token and ends as `pooled` once its prompt is computed.
   * Absent: it draws.
   */
  readonly pooling?: Pooling;
  /**
   * True for an encoder's text, whose attention is bidirectional: one chunk computes it, and its pages are free
   * afterwards. Absent: the prompt may be chunked, and shares prefixes.
   */
  readonly isWhole?: boolean;
  /** Index of the first token of type 1, the second text of a pair, for models with token types. Absent: none. */
  readonly secondAt?: number;
  /** Keeps the pages after the end until a sequence `continues` this one, or a `release` message arrives. */
  readonly isHeld?: boolean;
  /**
   * Held sequence whose tokens this prompt begins with. This one goes to the same engine, ahead of all that
   * wait there.
   */
  readonly continues?: SequenceId;
}

/**
 * Known beginning of the prompt of a sequence to come; its call waits for the rest. The cache evicts its
 * pages last, and the engine may compute uncached tokens of it ahead.
 */
export interface PrefixHint extends Pick<SequenceSpec, "cacheSalt" | "publicTokens" | "adapter"> {
  /** ID from the range of sequence IDs; steps that warm the prefix name it as their sequence. */
  readonly id: SequenceId;
  readonly tokens: ArrayLike<TokenId>;
  /** Program of the call; null: none. */
  readonly program: number | null;
  /** True if the engine may compute it ahead. */
  readonly isWarmed: boolean;
  /** Engine that has its pages; absent, or gone: the fleet chooses. */
  readonly engine?: EngineId;
}

/** Sequence that computes the given beginning of a hint, as a call that generates one token. */
export function sequenceOfHint(hint: PrefixHint, promptTokens: ArrayLike<TokenId>): SequenceSpec {
  const { id, cacheSalt, publicTokens = 0, adapter } = hint;
  return {
    id,
    promptTokens,
    drawnTokens: [],
    sampling: greedySampling,
    stop: { tokensMax: 1, tokensMin: 0, stopTokens: [] },
    cacheSalt,
    publicTokens,
    adapter,
    service: chatService,
  };
}

/** Cache keys that decide which sequences share a prefix. */
export interface Sharing {
  /** Key for whole prompts, one per pair of adapter and salt. */
  readonly key: string;
  /** Key for the first `publicTokens` tokens, one per adapter. The count is a multiple of the page size. */
  readonly publicKey: string;
  readonly publicTokens: number;
}

/** Returns the cache keys of a sequence or prefix hint, for an engine with pages of `pageTokens` tokens. */
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

/** Returns the key by which sequences share prefixes that are not public. */
export function cacheKeyOf({ adapter, cacheSalt }: Pick<SequenceSpec, "adapter" | "cacheSalt">): string {
  return `${adapter}:${cacheSalt}`;
}

/**
 * Tokens [start, start + tokens.length) of a sequence, computed in one step. Never empty.
 *
 * `tokens` and `pages` are views into the engine's own arrays, so that a step costs no copy of prompts and
 * page tables. A device may read them from `start` until it calls `done`, and never writes them.
 */
export interface Chunk {
  readonly sequence: SequenceId;
  readonly start: number;
  /** TokenIds. */
  readonly tokens: Int32Array;
  /**
   * PageIds of positions [0, start + tokens.length): exactly as many as needed, in order; the last page may
   * be partial.
   */
  readonly pages: Int32Array;
  /**
   * Rows to sample or return, by ascending `afterIndex`. A generating sequence has none before its last known
   * token. Checking a draft samples after each of its tokens too.
   */
  readonly samples: readonly ChunkRow[];
  readonly adapter: AdapterId;
  /**
   * Number of draft tokens at the chunk's end. A row follows each, and counts only if all drafts before it are
   * accepted: each equals the token drawn at its position. Absent: none.
   */
  readonly drafted?: number;
  /** Known token after the chunk, for devices with a draft head. Absent: the last row draws it, or it is unknown. */
  readonly next?: TokenId;
  /** Number of tokens that the device shall draft behind the chunk's last valid draw. Absent: none. */
  readonly drafts?: number;
  /**
   * Tokens of the page in which the chunk begins that the device's draft model has not computed yet; it computes
   * them before the chunk. Null: the draft model skips the chunk, and drafts nothing. Absent: there are none.
   */
  readonly unread?: Int32Array | null;
  /** Recurrent state that the chunk reads and writes. Absent: the device has none. */
  readonly state?: ChunkState;
  /** Index in the chunk of the first token of a pair's second text. Absent: there is none. */
  readonly secondAt?: number;
}

/**
 * Slots of a chunk's recurrent state. In one step a slot has at most one writer, and no other chunk reads a
 * slot that is written.
 */
export interface ChunkState {
  /** Slot that holds the state after the chunk. */
  readonly slot: StateSlot;
  /**
   * Slot with the state before the chunk: `slot`, or a checkpoint, which the chunk does not change. Null: the
   * chunk starts at position 0.
   */
  readonly from: StateSlot | null;
  /** Checkpoints by rising `count`: `slot` receives the state after the chunk's first `count` tokens, ≥ 1. */
  readonly saves: readonly { readonly count: number; readonly slot: StateSlot }[];
}

/** Output requested for one token of a chunk: a sampled token or a hidden state. */
export type ChunkRow = SampleRow | HiddenRow;

/** Request for a token's hidden state: after the final norm, as the vocabulary projection reads it. */
export interface HiddenRow {
  readonly wants: "hidden";
  /** Index of the token within the chunk. */
  readonly afterIndex: number;
}

/** Row of logits to sample. */
export interface SampleRow {
  /** Discriminant: absent in rows that are sampled. */
  readonly wants?: never;
  /** Index within the chunk of the token before the drawn one. */
  readonly afterIndex: number;
  readonly sampling: Sampling;
  /** Output position: 0 for the first generated token. Preemption does not change it. */
  readonly position: number;
  /** Tokens banned in this row: stop tokens before tokensMin, and last tokens of bad words. */
  readonly banned: readonly TokenId[];
  /**
   * Distinct tokens of prompt and output with their count in the output (0: in the prompt only). Null unless
   * a penalty is on.
   */
  readonly seen: SeenTokens | null;
  /** Bitmask of allowed tokens, bit 1 = allowed, ceil(vocabSize / 32) words; null allows all. */
  readonly allowed: Uint32Array | null;
  /**
   * Constraint from which the device computes `allowed` (gpu/constrained-device.ts). Absent: no constraint.
   */
  readonly constraint?: RowConstraint;
}

/** Constraint of a row, with the output so far. */
export interface RowConstraint {
  readonly of: Constraint;
  /** The output so far. */
  readonly drawn: Int32Array;
  /** End tokens, which are not part of the text. */
  readonly endTokens: readonly TokenId[];
}

/** Columnar (token, output count) pairs; the first `length` entries are valid. Owned by the sequence's engine. */
export interface SeenTokens {
  readonly tokens: Int32Array;
  readonly counts: Int32Array;
  readonly length: number;
}

/** Memory tier of a page. Today there is only the device's own memory. */
export type PageTier = "device";

/**
 * Copy of the keys and values of the first `count` tokens of page `from` into page `to`, before the step's
 * chunks run. Page `from` is unchanged.
 */
export interface PageMove {
  readonly from: PageId;
  /** Tier of page `from`. */
  readonly tier: PageTier;
  readonly to: PageId;
  readonly count: number;
}

/** Forward pass: a mix of decodes (chunks of one token) and prompt chunks. Data only. */
export interface Step {
  /** 1, 2, 3 … per engine. */
  readonly number: number;
  readonly moves: readonly PageMove[];
  readonly chunks: readonly Chunk[];
  /**
   * True if the step holds offline work only: a device with abort points may abort it when online work
   * arrives.
   */
  readonly isAbortable?: boolean;
}

/** Logprobs of one drawn token (natural logarithm, raw logits). `top` is sorted, likeliest first. */
export interface TokenLogprobs {
  readonly logprob: number;
  readonly top: readonly { readonly token: TokenId; readonly logprob: number }[];
}

/** Tokens that a device drafted after a draw, with the draft model's probability of each. */
export interface DeviceDraft {
  readonly tokens: readonly TokenId[];
  readonly probabilities: readonly number[];
}

/** Result of one row of a chunk. */
export type Sampled =
  | {
      readonly kind: "token";
      readonly sequence: SequenceId;
      readonly token: TokenId;
      readonly logprobs: TokenLogprobs | null;
      /**
       * Jump-forward tokens: each was the only one its mask allowed, so the device draws none of them.
       * Absent: none.
       */
      readonly forced?: readonly TokenId[];
      /** The device's draft of the tokens that follow, at the chunk's last valid draw. Absent: none. */
      readonly drafts?: DeviceDraft;
    }
  /** [hidden size] */
  | { readonly kind: "hidden"; readonly sequence: SequenceId; readonly hidden: Float32Array }
  /**
   * The row's token mask is not ready yet, so the device did not compute the row and the token before it. The
   * engine plans both again in the next step.
   */
  | { readonly kind: "deferred"; readonly sequence: SequenceId }
  /** This row alone failed (for example its logits were not finite); the others are good. */
  | { readonly kind: "failed"; readonly sequence: SequenceId; readonly reason: string };

/** Outcome of a step. `sampled` follows the order of the step's chunks and of the rows in each. */
export type StepResult =
  | {
      readonly kind: "done";
      readonly sampled: readonly Sampled[];
      readonly deviceMs: number;
      /** Part of `deviceMs` in which the device drafted. Absent: 0. */
      readonly draftsMs?: number;
    }
  /** The device computed nothing; the engine may start the same step again. */
  | { readonly kind: "retry"; readonly reason: string }
  /** The device aborted the step for online work. The page moves are done; no other result counts. */
  | { readonly kind: "aborted"; readonly reason: string }
  /** The device is lost, with all its pages. */
  | { readonly kind: "lost"; readonly reason: string };

/** Reason for the end of a sequence; exactly one per sequence. */
export type Finish =
  | { readonly kind: "stop"; readonly token: TokenId }
  | { readonly kind: "length" }
  /** Pooled hidden state: [hidden size], not normalized. */
  | { readonly kind: "pooled"; readonly hidden: Float32Array }
  | { readonly kind: "aborted" }
  /**
   * Refusal before the sequence held any page. neverFits: `needed` and `limit` are tokens (prompt + 1; the
   * longest sequence possible here). queueFull: both count waiting sequences.
   */
  | {
      readonly kind: "rejected";
      readonly reason: "neverFits" | "queueFull";
      readonly needed: number;
      readonly limit: number;
    }
  | { readonly kind: "failed"; readonly reason: string };
