import type { TokenId } from "../base/token.ts";
import type { KvEvents } from "./cache/kv-event.ts";
import type { Finish, PrefixHint, SequenceId, SequenceSpec, Service, TokenLogprobs } from "./core.ts";
import type { DeviceSpec } from "./device.ts";

/**
 * The link between the fleet (main thread) and an engine: plain data in both directions, so that the two may
 * live on one thread, two threads or in two processes. An engine's only inputs are these messages, its
 * device's results and its clock.
 */
export type EngineMessage =
  | { readonly kind: "submit"; readonly sequence: SequenceSpec }
  /** Aborts a sequence, which ends with `aborted` unless it has ended already. */
  | { readonly kind: "abort"; readonly sequence: SequenceId }
  /** Pauses a sequence with a slow client: it keeps its pages but runs no further until `resume`. */
  | { readonly kind: "pause"; readonly sequence: SequenceId }
  | { readonly kind: "resume"; readonly sequence: SequenceId }
  /** Changes the service of a sequence to a better one (`raised` in objective.ts). */
  | { readonly kind: "raise"; readonly sequence: SequenceId; readonly service: Service }
  /** Releases a held sequence, whether it has ended or not: no other continues it. */
  | { readonly kind: "release"; readonly sequence: SequenceId }
  /** Recalls a sequence: it is `returned` if it was never admitted, and stays otherwise. */
  | { readonly kind: "recall"; readonly sequence: SequenceId }
  /** Adds a prefix hint. Sent again with the same id, the prefix is longer. */
  | { readonly kind: "expect"; readonly hint: PrefixHint }
  /** Removes a prefix hint, whose sequence has been sent or never will be. `givesUp`: nothing else is known to read the prefix either. */
  | { readonly kind: "forget"; readonly hint: SequenceId; readonly givesUp: boolean }
  /** Asks for the whole cache in the next KV events, after some were missed. */
  | { readonly kind: "resync" };

/** The output of an engine after one step or one message. */
export interface EngineReport {
  /** Number of the report: 0, 1, 2 … per engine. */
  readonly number: number;
  /** Sequences that were admitted, and hold pages. Each is named once, also if it is preempted later. */
  readonly started: readonly { readonly sequence: SequenceId; readonly cachedTokens: number }[];
  /** Tokens drawn, columnar: sequences[i] drew tokens[i]. A sequence that drew several has them in order. */
  readonly sequences: readonly SequenceId[];
  readonly tokens: readonly TokenId[];
  /** logprobs[i] belongs to tokens[i]; null when no row of this step asked for any. */
  readonly logprobs: readonly (TokenLogprobs | null)[] | null;
  /** Ended sequences; their last token, if any, is in `tokens` of this same report or an earlier one. */
  readonly finished: readonly { readonly sequence: SequenceId; readonly finish: Finish }[];
  /** Sequences that were returned, of which the engine keeps nothing. */
  readonly returned: readonly SequenceId[];
  /** Tokens of prefix hints that were computed ahead. */
  readonly warmed: readonly { readonly hint: SequenceId; readonly tokens: number }[];
  /** Log probabilities of prompts that ask for them; repeated for tokens that are computed again. */
  readonly prompts: readonly PromptLogprobs[];
  /** Number of computed prompt tokens, of sequences that ask for it. */
  readonly progress: readonly { readonly sequence: SequenceId; readonly tokens: number }[];
  readonly load: EngineLoad;
  /** Changes of the prefix cache since the previous report; null: none. */
  readonly kvEvents: KvEvents | null;
}

/** Log probabilities of the tokens of a prompt from `start` on. */
export interface PromptLogprobs {
  readonly sequence: SequenceId;
  readonly start: number;
  readonly logprobs: readonly TokenLogprobs[];
}

/** A snapshot and running totals; totals only grow. */
export interface EngineLoad {
  readonly waiting: number;
  /** Sequences that hold pages, paused ones included. */
  readonly running: number;
  /** Paused sequences, whether they hold pages or not. */
  readonly paused: number;
  readonly pagesTotal: number;
  readonly pagesFree: number;
  /** Evictable pages: held by the prefix cache and by no running sequence. */
  readonly pagesCached: number;
  /** Prompt tokens still to compute, waiting and running. */
  readonly tokensPending: number;
  readonly stepsTotal: number;
  readonly promptTokensTotal: number;
  readonly generatedTokensTotal: number;
  /** Prompt tokens looked up in, and found in, the prefix cache. */
  readonly prefixQueriedTotal: number;
  readonly prefixHitTotal: number;
  readonly preemptionsTotal: number;
  /** Evicted pages. */
  readonly evictedPagesTotal: number;
  /** Steps in which a stream missed its target. */
  readonly stepsOverTarget: number;
  /** Times that a throughput decode was left out of a step. */
  readonly skippedDecodesTotal: number;
  /** The last step: its tokens, its time in the device, and the time from its start to its report. */
  readonly stepTokens: number;
  readonly deviceMs: number;
  readonly stepMs: number;
}

const TOTALS = [
  "stepsTotal",
  "promptTokensTotal",
  "generatedTokensTotal",
  "prefixQueriedTotal",
  "prefixHitTotal",
  "preemptionsTotal",
  "evictedPagesTotal",
  "stepsOverTarget",
  "skippedDecodesTotal",
] as const satisfies readonly (keyof EngineLoad)[];

/** Adds the totals of `before`, the lost engine that this one replaces; null: there was none. */
export function goneOn(load: EngineLoad, before: EngineLoad | null): EngineLoad {
  if (before === null) return load;
  return { ...load, ...Object.fromEntries(TOTALS.map((name) => [name, before[name] + load[name]])) };
}

/** The load of a new engine. */
export function idleLoad(spec: DeviceSpec): EngineLoad {
  return {
    waiting: 0,
    running: 0,
    paused: 0,
    pagesTotal: spec.pages,
    pagesFree: spec.pages,
    pagesCached: 0,
    tokensPending: 0,
    stepsTotal: 0,
    promptTokensTotal: 0,
    generatedTokensTotal: 0,
    prefixQueriedTotal: 0,
    prefixHitTotal: 0,
    preemptionsTotal: 0,
    evictedPagesTotal: 0,
    stepsOverTarget: 0,
    skippedDecodesTotal: 0,
    stepTokens: 0,
    deviceMs: 0,
    stepMs: 0,
  };
}
