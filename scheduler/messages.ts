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
  /** The sequence is no longer wanted. It ends with `aborted`, unless it has ended already. */
  | { readonly kind: "abort"; readonly sequence: SequenceId }
  /** A slow reader: keep the sequence's pages but run it no further until `resume`. */
  | { readonly kind: "pause"; readonly sequence: SequenceId }
  | { readonly kind: "resume"; readonly sequence: SequenceId }
  /** The sequence is wanted more than it was: it is served like this from now on (`raised` in objective.ts). */
  | { readonly kind: "raise"; readonly sequence: SequenceId; readonly service: Service }
  /** No other goes on from the held sequence, whether it has ended or not. */
  | { readonly kind: "release"; readonly sequence: SequenceId }
  /** Wanted elsewhere: it is given back (`returned`) if it was never admitted, and stays otherwise. */
  | { readonly kind: "recall"; readonly sequence: SequenceId }
  /** A call is going to read this prefix. Told again of the same prefix hint, it has become longer. */
  | { readonly kind: "expect"; readonly hint: PrefixHint }
  /** The prefix hint's sequence has been sent, or never will be. `givesUp`: nothing else is known to read it either. */
  | { readonly kind: "forget"; readonly hint: SequenceId; readonly givesUp: boolean }
  /** A notice was missed: the next report's notices tell everything that is cached. */
  | { readonly kind: "resync" };

/** Everything an engine has to tell after one step or one message, in one delivery. */
export interface EngineReport {
  /** 0, 1, 2 … of the engine. */
  readonly number: number;
  /** Sequences that were admitted: from now on they hold pages. Told once per sequence, also when preempted
   *  later. */
  readonly started: readonly { readonly sequence: SequenceId; readonly cachedTokens: number }[];
  /** Tokens drawn, columnar: sequences[i] drew tokens[i]. A sequence that drew several has them in order. */
  readonly sequences: readonly SequenceId[];
  readonly tokens: readonly TokenId[];
  /** logprobs[i] belongs to tokens[i]; null when no row of this step asked for any. */
  readonly logprobs: readonly (TokenLogprobs | null)[] | null;
  /** Ended sequences; their last token, if any, is in `tokens` of this same report or an earlier one. */
  readonly finished: readonly { readonly sequence: SequenceId; readonly finish: Finish }[];
  /** Sequences given back: the engine knows nothing of them any more. */
  readonly returned: readonly SequenceId[];
  /** Tokens of prefix hints that were computed ahead. */
  readonly warmed: readonly { readonly hint: SequenceId; readonly tokens: number }[];
  /** What sequences asked for of their prompts; told again of what is computed again. */
  readonly prompts: readonly PromptLogprobs[];
  /** How many tokens of their prompts are computed, of sequences that asked. */
  readonly progress: readonly { readonly sequence: SequenceId; readonly tokens: number }[];
  readonly load: EngineLoad;
  /** Changes of the prefix cache since the report before; null: none. */
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
  /** Paused ones, whether they hold pages or not. */
  readonly paused: number;
  readonly pagesTotal: number;
  readonly pagesFree: number;
  /** Held by the prefix cache and by no running sequence: can be evicted. */
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
  /** Pages that the prefix cache gave up for others. */
  readonly evictedPagesTotal: number;
  /** Steps after which a stream had waited longer than its target. */
  readonly stepsOverTarget: number;
  /** Times that a throughput decode was left out of a step. */
  readonly skippedDecodesTotal: number;
  /** Of the last step: tokens in it, milliseconds inside the device, and from its start to its report. */
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

/** A load whose totals go on from those of `before`, an engine that was lost in the same place; null: there was none. */
export function goneOn(load: EngineLoad, before: EngineLoad | null): EngineLoad {
  if (before === null) return load;
  return { ...load, ...Object.fromEntries(TOTALS.map((name) => [name, before[name] + load[name]])) };
}

/** Of an engine that has done nothing yet. */
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
