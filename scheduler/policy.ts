import type { KvCacheManager } from "./cache/kv-cache-manager.ts";
import type { Objective } from "./core.ts";
import type { CostModel, EngineCosts } from "./cost/cost-model.ts";
import type { DeviceSpec } from "./device.ts";
import type { DraftSource } from "./draft/drafter.ts";
import type { AdmissionRule } from "./engine/admission-rule.ts";
import type { QueueOrder } from "./engine/queue/queue-order.ts";
import type { Sequence } from "./engine/sequence.ts";
import type { StepRule } from "./engine/step/step-rule.ts";
import type { PlaceableEngine, PlacementRule } from "./fleet/placement-rule.ts";
import type { LaneRules } from "./objective.ts";

/** Policy that places a sequence on an engine: ours (fleet/e2.ts), or a baseline. */
export type PlacementPolicy = { readonly kind: "e2" } | PlacementBaseline;

/** Placement rule of simulation/baselines/. */
export interface PlacementBaseline {
  readonly kind: "baseline";
  /** True if engines must report KV events. */
  readonly readsKvEvents: boolean;
  /** Opens the rule for at least two engines. */
  open(engines: readonly PlaceableEngine[]): PlacementRule;
}

/** Policy that picks the next waiting sequence: ours (engine/queue/lanes.ts), or the order of a baseline. */
export type QueuePolicy = LanesPolicy | QueueBaseline;

/**
 * Lanes, one per SLO class; they share prompt tokens by credits. Within a lane the tenant with the least
 * usage is next, and of its sequences the one with the highest response ratio.
 */
export interface LanesPolicy {
  readonly kind: "lanes";
  /** Rules per lane; objective.ts has the ones in use. */
  readonly lanes: Readonly<Record<Objective, LaneRules>>;
  /** Tokens that a tenant's counter may differ from the others' when the tenant begins to wait. */
  readonly tenantSlack: number;
  /** Tokens that a waiting tenant may have used more than another and still count as equal. */
  readonly tenantReach: number;
}

/** Queue order of simulation/baselines/. */
export interface QueueBaseline {
  readonly kind: "baseline";
  /** Opens the order. `lookUp` returns how many of a sequence's known tokens are cached now. */
  open(lookUp: (sequence: Sequence) => number): QueueOrder;
}

/** Policy that fills a step: ours (engine/step/time-budget.ts), or the rule of a baseline. */
export type BatchPolicy = TimePolicy | StepBaseline;

/**
 * Time budget: a step has as many prompt tokens as the device computes in time and as serve best. No token
 * count is fixed in advance.
 */
export interface TimePolicy {
  readonly kind: "time";
  /** TBT target of streams without one of their own. Null: they have none, and steps minimize total delay. */
  readonly tbtMs: number | null;
  /**
   * Longest step with prompts beside streams without a target, in milliseconds, where those alone take a small
   * part of it.
   */
  readonly stepMs: number;
  /**
   * Longest step in which prompts may take three quarters of the time, in milliseconds: about the time in which a
   * person reads a token.
   */
  readonly readingMs: number;
  /** Share of the time kept in reserve, on top of the cost model's own error margin. */
  readonly margin: number;
  /** Milliseconds without tokens after which the oldest prompt gets one tile, whatever the slack. */
  readonly starvationMs: number;
  /** Consecutive steps that may skip an offline decode (objective.ts). */
  readonly skipsMax: number;
}

/** Step rule of simulation/baselines/. */
export interface StepBaseline {
  readonly kind: "baseline";
  /** Fixed token budget of a step; the device's limit caps it. */
  readonly stepTokens: number;
  /** True if every decode is in every step and prompts fill the rest of `stepTokens`. */
  readonly isStallFree: boolean;
  open(stepTokens: number, spec: DeviceSpec, costs: EngineCosts): StepRule;
}

/**
 * Source of drafts: the sequences' own texts (draft/suffix.ts), the device where it drafts, by the model's own head or a
 * draft model (draft/head.ts), both, none, or that of a baseline.
 */
export type DraftPolicy = { readonly kind: "suffix" | "head" | "both" | "off" } | DraftBaseline;

/** Source of drafts of simulation/baselines/. */
export interface DraftBaseline {
  readonly kind: "baseline";
  /** Opens the source of one engine. */
  open(): DraftSource;
}

/** Limits on running sequences (engine/admission.ts). */
export interface AdmissionPolicy {
  /**
   * Running sequences at most; null: as many as the device accepts in a step. Memory and step times limit
   * them as well.
   */
  readonly sequencesMax: number | null;
  /** Share of the pages that admission keeps free. */
  readonly watermark: number;
  /** Admission rule of a baseline; absent: ours (engine/admission-rule.ts). */
  readonly rule?: AdmissionRule;
}

/**
 * Policy that keeps the pages of sessions between their turns: ours, by what it saves (session/session-keeper.ts),
 * or a baseline's times.
 */
export type SessionPolicy = { readonly kind: "priced" } | SessionBaseline;

/** Keeping times of simulation/baselines/. */
export interface SessionBaseline {
  readonly kind: "baseline";
  /** Milliseconds for which a session is kept after an answer. */
  keepMs(awaitsTool: boolean): number;
}

/** KV cache of simulation/baselines/. */
export interface CacheBaseline {
  readonly kind: "baseline";
  /** Opens the KV cache of one engine. `epoch`: see `KvCacheManager`. */
  open(spec: DeviceSpec, epoch: number | null, costs: CostModel): KvCacheManager;
}

/**
 * Whole scheduler as one value. Ours is in policies.ts. Baselines are in simulation/baselines/; they hold
 * functions and can only be simulated.
 */
export interface Policy {
  readonly name: string;
  readonly placement: PlacementPolicy;
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: AdmissionPolicy;
  /** Absent: no drafts. */
  readonly drafts?: DraftPolicy;
  /** Absent: the scheduler neither recognizes sessions nor keeps their pages. */
  readonly sessions?: SessionPolicy;
  /** KV cache of a baseline; absent: ours (cache/kv-cache-manager.ts). */
  readonly cache?: CacheBaseline;
}

/** Policy of plain data: it can cross threads and be recorded. */
export interface ServedPolicy extends Policy {
  readonly placement: Exclude<PlacementPolicy, PlacementBaseline>;
  readonly queue: LanesPolicy;
  readonly batch: TimePolicy;
  readonly admission: AdmissionPolicy & { readonly rule?: never };
  readonly drafts: Exclude<DraftPolicy, DraftBaseline>;
  readonly sessions?: Exclude<SessionPolicy, SessionBaseline>;
  readonly cache?: never;
}

/** True if the policy is plain data. */
export function isServed(policy: Policy): policy is ServedPolicy {
  const { placement, queue, batch, admission, drafts, sessions, cache } = policy;
  const isOurs = [placement, queue, batch, drafts, sessions].every((part) => part?.kind !== "baseline");
  return isOurs && drafts !== undefined && admission.rule === undefined && cache === undefined;
}
