import type { TokenId } from "../base/token.ts";
import type { Service } from "../scheduler/core.ts";
import type { Expected } from "../scheduler/fleet/fleet.ts";

/** One call that a simulated client makes. */
export interface Arrival {
  readonly atMs: number;
  /** Made when it arrives, so that a long trace need not be in memory. */
  readonly promptTokens: () => Int32Array;
  /** Tokens that the answer will have, ≥ 1. */
  readonly outputTokens: number;
  /** What the client asks for at most, ≥ outputTokens: all that the scheduler may know beforehand. */
  readonly tokensMax: number;
  readonly cacheSalt: string;
  /** Arrivals of one task group are neighbours and have one time: they are placed together. */
  readonly service: Service;
  /** Which part of a mixed workload: reports tell them apart. */
  readonly kind: string;
}

/** What became of an arrival, as its client saw it. */
export interface Answer {
  readonly finishedMs: number;
  readonly tokens: readonly TokenId[];
}

/** What a fleet is told of calls that are still to come. */
export interface HintChange {
  readonly atMs: number;
  /** Which call. */
  readonly key: string;
  /** What it begins with, new or longer than before; null: it was sent at that time, or never will be. */
  readonly hint: Expected | null;
}

/** Which calls arrive when, and with what. Deterministic: made from a trace or a seed. Used once. */
export interface Workload {
  readonly name: string;
  /** Of the vocabulary of its tokens. */
  readonly vocabSize: number;
  /** The next arrival in order of time, of those that wait for no answer; null: no more. */
  next(): Arrival | null;
  /** The arrivals that an answer brings about, neighbours of one task group placed together, such as the next turn of a conversation; their `atMs` is not before
   *  `answer.finishedMs`. */
  after(arrival: Arrival, answer: Answer): readonly Arrival[];
  /** What has changed in prefix hints by the last `next` or `after`. */
  takeHintChanges?(): readonly HintChange[];
}
