import type { TokenId } from "../base/token.ts";
import type { AdapterId, Service } from "../scheduler/core.ts";
import type { Expected } from "../scheduler/fleet/fleet.ts";

/** Call of a simulated client. */
export interface Arrival {
  readonly atMs: number;
  /** Returns the prompt; made at arrival, so that a long trace need not be in memory. */
  readonly promptTokens: () => Int32Array;
  /** Tokens of the completion, ≥ 1. */
  readonly outputTokens: number;
  /** Token limit that the client sends, ≥ outputTokens: all that the scheduler may know in advance. */
  readonly tokensMax: number;
  readonly cacheSalt: string;
  /** Absent: 0, no adapter. */
  readonly adapter?: AdapterId;
  /**
   * Service of the call. Arrivals of one task group are neighbours with the same time, and are placed
   * together.
   */
  readonly service: Service;
  /**
   * Kind of the completion's end: tool calls, whose results come with the next prompt, or a final answer.
   * Absent: not known.
   */
  readonly ending?: "calls" | "answer";
  /** Part of a mixed workload that the call belongs to; reports are per kind. */
  readonly kind: string;
}

/** Answer to an arrival, as its client saw it. */
export interface Answer {
  readonly finishedMs: number;
  readonly tokens: readonly TokenId[];
}

/** Change of a prefix hint. */
export interface HintChange {
  readonly atMs: number;
  /** Key of the call. */
  readonly key: string;
  /** New or extended hint; null: the call was sent at that time, or never will be. */
  readonly hint: Expected | null;
}

/** Workload: which calls arrive when. Deterministic, from a trace or a seed. Used once. */
export interface Workload {
  readonly name: string;
  /** Vocabulary size of its tokens. */
  readonly vocabSize: number;
  /** Returns the next arrival, by time, that depends on no answer; null: no more. */
  next(): Arrival | null;
  /**
   * Returns the arrivals that an answer causes, such as the next turn of a conversation. Neighbours of one
   * task group are placed together; no `atMs` is before `answer.finishedMs`.
   */
  after(arrival: Arrival, answer: Answer): readonly Arrival[];
  /** Returns the changes of prefix hints by the last `next` or `after`. */
  takeHintChanges?(): readonly HintChange[];
}
