import type { KvCacheManager } from "./cache/kv-cache-manager.ts";
import type { Objective } from "./core.ts";
import type { DeviceSpec } from "./device.ts";
import type { AdmissionRule } from "./engine/admission-rule.ts";
import type { QueueOrder } from "./engine/queue/queue-order.ts";
import type { Sequence } from "./engine/sequence.ts";
import type { StepRule } from "./engine/step/step-rule.ts";
import type { PlaceableEngine, PlacementRule } from "./fleet/placement-rule.ts";
import type { LaneRules } from "./objective.ts";

/** The choice of engines: by ours (fleet/e2.ts), or by the rule of a baseline. */
export type PlacementPolicy = { readonly kind: "e2" } | PlacementBaseline;

/** A rule of baselines/. */
export interface PlacementBaseline {
  readonly kind: "baseline";
  /** Whether engines send KV events. */
  readonly readsKvEvents: boolean;
  /** Opens a rule for at least two engines. */
  open(engines: readonly PlaceableEngine[]): PlacementRule;
}

/** The order of waiting sequences: by ours (engine/queue/lanes.ts), or by that of a baseline. */
export type QueuePolicy = LanesPolicy | QueueBaseline;

/** A lane for each objective, which share prompt tokens by credits; in a lane the tenant that has used least, and of its
 *  sequences the one with the highest response ratio. */
export interface LanesPolicy {
  readonly kind: "lanes";
  /** objective.ts has those that serve. */
  readonly lanes: Readonly<Record<Objective, LaneRules>>;
  /** Tokens that a tenant may have used less or more than others, when it begins to wait. */
  readonly tenantSlack: number;
  /** Tokens that a waiting tenant may have used more than another and still be even with it. */
  readonly tenantReach: number;
}

/** An order of baselines/. */
export interface QueueBaseline {
  readonly kind: "baseline";
  /** Opens an order. `lookUp` returns the number of a sequence's cached tokens. */
  open(lookUp: (sequence: Sequence) => number): QueueOrder;
}

/** The contents of steps: by ours (engine/step/time-budget.ts), or by the rule of a baseline. */
export type BatchPolicy = TimePolicy | StepBaseline;

/** As many prompt tokens as the device computes in time, and serve best: no number of tokens is chosen beforehand. */
export interface TimePolicy {
  readonly kind: "time";
  /** Default target of streams that ask for none; null: they have none, and steps have the least total delay. */
  readonly tbtMs: number | null;
  /** Limit of a step with prompts beside streams without a target, unless these alone take more than half of it. */
  readonly stepMs: number;
  /** Share of the time that is left free, besides the margin of the cost model's own error. */
  readonly margin: number;
  /** After this many milliseconds without tokens the oldest prompt gets one tile, whatever the slack. */
  readonly starvationMs: number;
  /** Most steps in a row for which an offline decode (objective.ts) may be left out. */
  readonly skipsMax: number;
}

/** A rule of baselines/. */
export interface StepBaseline {
  readonly kind: "baseline";
  /** Tokens of a step that a policy chooses beforehand; cut down to what the device can hold. */
  readonly stepTokens: number;
  /** Whether every decode is in every step, and prompts keep to what it leaves of `stepTokens`. */
  readonly isStallFree: boolean;
  open(stepTokens: number, spec: DeviceSpec): StepRule;
}

/** Limits of the running sequences (engine/admission.ts). */
export interface AdmissionPolicy {
  /** Most running sequences; null: as many as the device takes in a step. Memory and the time of steps limit them too. */
  readonly sequencesMax: number | null;
  /** Share of the pages that admission leaves available. */
  readonly watermark: number;
  /** The rule of a baseline; by default ours (engine/admission-rule.ts). */
  readonly rule?: AdmissionRule;
}

/** A cache of baselines/. */
export interface CacheBaseline {
  readonly kind: "baseline";
  /** Opens the memory of one engine. `epoch`: see `KvCacheManager`. */
  open(pagesTotal: number, pageTokens: number, epoch: number | null): KvCacheManager;
}

/** A whole scheduler as one value. Ours is in policies.ts. Those that it is compared with are in baselines/, hold functions, and can only be
 *  simulated. */
export interface Policy {
  readonly name: string;
  readonly placement: PlacementPolicy;
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: AdmissionPolicy;
  /** The cache of a baseline; by default ours (cache/kv-cache-manager.ts). */
  readonly cache?: CacheBaseline;
}

/** A policy that is data alone: it can cross threads and be recorded. */
export interface ServedPolicy extends Policy {
  readonly placement: Exclude<PlacementPolicy, PlacementBaseline>;
  readonly queue: LanesPolicy;
  readonly batch: TimePolicy;
  readonly admission: AdmissionPolicy & { readonly rule?: never };
  readonly cache?: never;
}

/** Whether a policy is data alone. */
export function isServed(policy: Policy): policy is ServedPolicy {
  const { placement, queue, batch, admission, cache } = policy;
  const isOurs = [placement, queue, batch].every(({ kind }) => kind !== "baseline");
  return isOurs && admission.rule === undefined && cache === undefined;
}
