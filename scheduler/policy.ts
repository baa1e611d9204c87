/** Which engine a sequence goes to (dispatch/). */
export type PlacementPolicy =
  | { readonly kind: "turn" }
  /** Fewest sequences that have not ended; ties to the lowest engine. */
  | { readonly kind: "shortestQueue" }
  | E2Policy;

/** Preble's E2 (arXiv:2407.00023 §3.2), and what may be changed about it. */
export interface E2Policy {
  readonly kind: "e2";
  /** L: predicted work of what is there now, or of all that was placed in the last `windowMs`. */
  readonly load: "outstanding" | "window";
  /** H: how long a placement counts as a hit of its prefix, and in the window's load. */
  readonly windowMs: number;
  /** M: what is evicted, weighed by its share of hits in the window; 0 for "none". */
  readonly eviction: "rate" | "none";
  /** Whether the engines' evict notices are heeded; else a prefix counts as cached until its hits are out of
   *  the window. */
  readonly notices: boolean;
  /** Leave a holder that would cost more than computing the prefix on the cheapest engine. */
  readonly spill: boolean;
  /** Count what a first stream with a target costs an engine full of throughput work. */
  readonly harm: boolean;
  /** Take sequences back from an engine where they wait longer than elsewhere, and place them again. */
  readonly moves: boolean;
  /** Redirect prefixes from an engine whose load is `ratio` times the lightest's, and `marginMs` above it. */
  readonly rebalance: { readonly ratio: number; readonly marginMs: number } | null;
  /** Give a prefix a second engine when its sequences wait `ratio` times as long as before. */
  readonly replicate: { readonly ratio: number } | null;
  /** ImbalR: explore on the engine whose share of decode time is highest, if above this; null: off. */
  readonly imbalance: number | null;
  /** Sequences that belong together: by list scheduling, all on one engine, or each by itself. */
  readonly gang: "list" | "together" | "alone";
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

/** A whole scheduler as one value. The rows of docs/papers are such values: see policies.ts. */
export interface Policy {
  readonly name: string;
  readonly placement: PlacementPolicy;
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: AdmissionPolicy;
}
