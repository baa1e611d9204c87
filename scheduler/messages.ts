import type { TokenId } from "../base/token.ts";
import type { KvEvents } from "./cache/kv-event-log.ts";
import type { Finish, PrefixHint, SequenceId, SequenceSpec, Service, TokenLogprobs } from "./core.ts";
import type { DeviceSpec } from "./device.ts";
import type { AccountState } from "./explain/time-account.ts";

/**
 * Messages between the fleet (main thread) and an engine. They are plain data in both directions, so that
 * both may live on one thread, on two, or in two processes. An engine's only inputs are these messages, its
 * device's results and its clock.
 */
export type EngineMessage =
  | { readonly kind: "submit"; readonly sequence: SequenceSpec }
  /** Aborts the sequence. It ends with `aborted`, unless it has ended already. */
  | { readonly kind: "abort"; readonly sequence: SequenceId }
  /** Pauses the sequence of a slow reader: it keeps its pages but does not run until `resume`. */
  | { readonly kind: "pause"; readonly sequence: SequenceId }
  | { readonly kind: "resume"; readonly sequence: SequenceId }
  /** Raises the service of the sequence from now on (`raised` in objective.ts). */
  | { readonly kind: "raise"; readonly sequence: SequenceId; readonly service: Service }
  /** Releases the held sequence: no other will continue it. Valid before and after its end. */
  | { readonly kind: "release"; readonly sequence: SequenceId }
  /**
   * Recalls the sequence for another engine: the engine returns it (`returned`) if it was never admitted,
   * else keeps it.
   */
  | { readonly kind: "recall"; readonly sequence: SequenceId }
  /** Announces a prompt prefix of a call. A second message for the same hint extends the prefix. */
  | { readonly kind: "expect"; readonly hint: PrefixHint }
  /**
   * Ends the prefix hint: its sequence was sent or never will be. `givesUp`: no other known sequence reads it
   * either.
   */
  | { readonly kind: "forget"; readonly hint: SequenceId; readonly givesUp: boolean }
  /**
   * Requests a full snapshot: the fleet missed a KV event, so the next report lists everything that is
   * cached.
   */
  | { readonly kind: "resync" };

/** Report of an engine after one step or one message. */
export interface EngineReport {
  /** Number of the report: 0, 1, 2 … per engine. */
  readonly number: number;
  /**
   * Sequences admitted for the first time; from now on they hold pages. A sequence preempted later is not
   * listed again.
   */
  readonly started: readonly StartedSequence[];
  /** Columns of drawn tokens: sequences[i] drew tokens[i]. A sequence that drew several has them in order. */
  readonly sequences: readonly SequenceId[];
  readonly tokens: readonly TokenId[];
  /** logprobs[i] belongs to tokens[i]; null when no row of this step asked for any. */
  readonly logprobs: readonly (TokenLogprobs | null)[] | null;
  /** Ended sequences; their last token, if any, is in `tokens` of this same report or an earlier one. */
  readonly finished: readonly { readonly sequence: SequenceId; readonly finish: Finish }[];
  /** Returned sequences; the engine has forgotten them. */
  readonly returned: readonly SequenceId[];
  /** Tokens of prefix hints that the engine computed ahead. */
  readonly warmed: readonly { readonly hint: SequenceId; readonly tokens: number }[];
  /** Prompt logprobs of sequences that requested them; the engine repeats those of recomputed tokens. */
  readonly prompts: readonly PromptLogprobs[];
  /** Computed prompt tokens of sequences with `tellsProgress`. */
  readonly progress: readonly { readonly sequence: SequenceId; readonly tokens: number }[];
  /** Drafts that steps have verified. */
  readonly checked: readonly CheckedDraft[];
  /** Accounts of sequences: at their first token, at their end, and of running ones now and then. */
  readonly accounts: readonly SequenceAccount[];
  readonly load: EngineLoad;
  /** Changes of the prefix cache since the last report; null: none. */
  readonly kvEvents: KvEvents | null;
}

/** Account of a sequence's time, as of now. */
export interface SequenceAccount {
  readonly sequence: SequenceId;
  /** `first`: with its first token; `ended`: with its end, or its return to the fleet. */
  readonly at: "first" | "ended" | "now";
  readonly account: AccountState;
}

/** A draft that a step has verified: its tokens, and how many of the first were accepted. */
export interface CheckedDraft {
  readonly sequence: SequenceId;
  readonly tokens: number;
  readonly accepted: number;
  /** True if its tokens come from the client's prediction. Absent: false. */
  readonly isPredicted?: boolean;
}

/** Admission of a sequence. */
export interface StartedSequence {
  readonly sequence: SequenceId;
  /** Tokens that need not be computed. */
  readonly cachedTokens: number;
  /**
   * Tokens with cached pages, where more than `cachedTokens`. Then the last page could not be copied, or the cache has
   * no checkpoint of the recurrent state at their end. Absent: as many as `cachedTokens`.
   */
  readonly matchedTokens?: number;
  /** Cached tokens that were loaded from the lower tier for it. Absent: none. */
  readonly tierTokens?: number;
  /** Tokens among them from the host's memory. Absent: none. */
  readonly hostTokens?: number;
}

/** Logprobs of the prompt tokens from `start` on. */
export interface PromptLogprobs {
  readonly sequence: SequenceId;
  readonly start: number;
  readonly logprobs: readonly TokenLogprobs[];
}

/** Load of an engine: a snapshot and running totals; totals only grow. */
export interface EngineLoad {
  readonly waiting: number;
  /** Waiting sequences parked until another one has computed or loaded their prefix. */
  readonly deferred: number;
  /** Sequences that hold pages, paused ones included. */
  readonly running: number;
  /** Paused sequences, whether they hold pages or not. */
  readonly paused: number;
  readonly pagesTotal: number;
  readonly pagesFree: number;
  /** Evictable pages: held by the prefix cache and by no running sequence. */
  readonly pagesCached: number;
  /** State slots, those of them that are free, and checkpoints; all 0 for a model without recurrent layers. */
  readonly statesTotal: number;
  readonly statesFree: number;
  readonly checkpoints: number;
  /** Prompt tokens still to compute, of waiting and running sequences. */
  readonly tokensPending: number;
  readonly stepsTotal: number;
  readonly promptTokensTotal: number;
  readonly generatedTokensTotal: number;
  /** Prompt tokens looked up in, and found in, the prefix cache. */
  readonly prefixQueriedTotal: number;
  readonly prefixHitTotal: number;
  readonly preemptionsTotal: number;
  /** Pages that the prefix cache evicted. */
  readonly evictedPagesTotal: number;
  /**
   * Lower tier: pages stored, pages that lookups found there beyond the prefix cache, pages loaded, and loads
   * that ended short.
   */
  readonly tierStoredPagesTotal: number;
  readonly tierFoundPagesTotal: number;
  readonly tierLoadedPagesTotal: number;
  readonly tierShortLoadsTotal: number;
  /** Pages loaded that came from the host's memory. */
  readonly tierHostPagesTotal: number;
  /** Steps after which a stream had waited longer than its TBT target. */
  readonly stepsOverTarget: number;
  /** Throughput decodes left out of a step, in total. */
  readonly skippedDecodesTotal: number;
  /** Verified drafts, their tokens, and the accepted ones; the latter also by position in the draft. */
  readonly draftsTotal: number;
  readonly draftTokensTotal: number;
  readonly acceptedTokensTotal: number;
  readonly acceptedByPlace: readonly number[];
  /** Last step: its tokens, milliseconds inside the device, and milliseconds from its start to its report. */
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
  "tierStoredPagesTotal",
  "tierFoundPagesTotal",
  "tierLoadedPagesTotal",
  "tierShortLoadsTotal",
  "tierHostPagesTotal",
  "stepsOverTarget",
  "skippedDecodesTotal",
  "draftsTotal",
  "draftTokensTotal",
  "acceptedTokensTotal",
] as const satisfies readonly (keyof EngineLoad)[];

/** Adds the totals of `before`, the lost engine that this one replaces, to a load; null: there was none. */
export function withTotalsOf(load: EngineLoad, before: EngineLoad | null): EngineLoad {
  if (before === null) return load;
  const places = Math.max(load.acceptedByPlace.length, before.acceptedByPlace.length);
  const acceptedByPlace = Array.from(
    { length: places },
    (_, place) => (load.acceptedByPlace[place] ?? 0) + (before.acceptedByPlace[place] ?? 0),
  );
  const totals = Object.fromEntries(TOTALS.map((name) => [name, before[name] + load[name]]));
  return { ...load, ...totals, acceptedByPlace };
}

/** Returns the load of an engine that has done nothing yet. */
export function idleLoad(spec: DeviceSpec): EngineLoad {
  return {
    waiting: 0,
    running: 0,
    paused: 0,
    pagesTotal: spec.pages,
    pagesFree: spec.pages,
    pagesCached: 0,
    deferred: 0,
    statesTotal: spec.states?.slots ?? 0,
    statesFree: spec.states?.slots ?? 0,
    checkpoints: 0,
    tokensPending: 0,
    stepsTotal: 0,
    promptTokensTotal: 0,
    generatedTokensTotal: 0,
    prefixQueriedTotal: 0,
    prefixHitTotal: 0,
    preemptionsTotal: 0,
    evictedPagesTotal: 0,
    tierStoredPagesTotal: 0,
    tierFoundPagesTotal: 0,
    tierLoadedPagesTotal: 0,
    tierShortLoadsTotal: 0,
    tierHostPagesTotal: 0,
    stepsOverTarget: 0,
    skippedDecodesTotal: 0,
    draftsTotal: 0,
    draftTokensTotal: 0,
    acceptedTokensTotal: 0,
    acceptedByPlace: [],
    stepTokens: 0,
    deviceMs: 0,
    stepMs: 0,
  };
}
