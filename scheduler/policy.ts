import type { PlaceableEngine, PlacementRule } from "./dispatch/placement-rule.ts";

/** Which engine a sequence goes to: by ours (dispatch/e2.ts), or by a rule that ours is compared with. */
export type PlacementPolicy = { readonly kind: "e2" } | PlacementBaseline;

/** A rule of baselines/. It holds a function, so a policy with it can be simulated, but neither served nor recorded. */
export interface PlacementBaseline {
  readonly kind: "baseline";
  /** Whether engines are to tell what they cache. */
  readonly readsNotices: boolean;
  /** A rule for at least two engines. */
  open(engines: readonly PlaceableEngine[]): PlacementRule;
}

/** Which waiting sequence is next (local/wait-queue.ts). */
export type QueuePolicy =
  | { readonly kind: "fcfs" }
  /** Longest cached prefix first; ties by arrival. */
  | { readonly kind: "longestPrefix" }
  /** Preble's priority groups. */
  | { readonly kind: "groups"; readonly groups: number }
  /** One lane per objective, by credits of tokens; in a lane the tenant that has used least, and then groups. */
  | {
      readonly kind: "lanes";
      readonly groups: number;
      /** Credits of latency, gang and throughput. */
      readonly credits: readonly [number, number, number];
      /** Tokens that a tenant may have used less or more than others, when it begins to wait. */
      readonly tenantSlack: number;
    };

/** What a step is filled with (local/step-planner.ts, local/step-budget.ts). */
export type BatchPolicy =
  /** Whole prompts in steps of their own, which decodes wait for (vLLM before chunked prefill); at most
   *  `stepTokens` in a step, but one prompt always. */
  | { readonly kind: "promptsFirst"; readonly stepTokens: number }
  /** Every decode and, within `stepTokens`, chunks of prompts (Sarathi-Serve). While more than `bypass` of the
   *  pages is available, whole prompts first instead (Preble's code: 0.5); 1 is never. */
  | { readonly kind: "fixed"; readonly stepTokens: number; readonly bypass: number }
  /** As many prompt tokens as the device computes in time, and serve best (local/target-budget.ts): no number of tokens
   *  is chosen beforehand. `tbtMs`: the target of streams that ask for none themselves; null: those have none, and want
   *  their answers soon. */
  | {
      readonly kind: "target";
      readonly tbtMs: number | null;
      /** How long a step with prompts takes at most beside streams without a target, unless they alone take more than
       *  half of it. */
      readonly stepMs: number;
      /** Share of the time that is left alone, besides what the cost model's own error asks for. */
      readonly margin: number;
      /** After this many milliseconds without tokens the oldest prompt gets one tile, whatever the slack. */
      readonly starvationMs: number;
      /** Steps in a row for which a throughput decode may be left out. */
      readonly skipsMax: number;
    };

/** Prompts get what decodes leave of `stepTokens` (Sarathi-Serve, arXiv:2403.02310 §4.3). */
export function staticBudget(stepTokens: number): BatchPolicy {
  return { kind: "fixed", stepTokens, bypass: 1 };
}

/** What may run at once (local/admission.ts). */
export interface AdmissionPolicy {
  /** Null: as many as the device takes in a step. Memory and the time of their steps limit them as well. */
  readonly sequencesMax: number | null;
  /** Share of the pages that admission leaves available. */
  readonly watermark: number;
  /** A page for every running sequence stays available as well. */
  readonly headroom: boolean;
  /** Whether prefixes are cached at all. */
  readonly cache: boolean;
  /** Whether a sequence waits for another that computes the same prefix now. */
  readonly prefixPending: boolean;
  /** Whether a new prompt goes before an unfinished one that has at least twice as much left, or is of a later lane. */
  readonly overtakes: boolean;
  /** Whether who was preempted again and again stays out for some steps. */
  readonly backOff: boolean;
}

/** A whole scheduler as one value. Ours is in policies.ts, those that it is compared with in
 *  baselines/. */
export interface Policy {
  readonly name: string;
  readonly placement: PlacementPolicy;
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: AdmissionPolicy;
}
