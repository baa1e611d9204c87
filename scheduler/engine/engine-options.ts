import { assert } from "../../base/assert.ts";
import type { DeviceSpec } from "../device.ts";
import { ours } from "../policies.ts";
import type {
  AdmissionPolicy,
  BatchPolicy,
  CacheBaseline,
  DraftPolicy,
  Policy,
  QueuePolicy,
} from "../policy.ts";
import { type AdmissionRule, servedAdmission } from "./admission-rule.ts";
import type { StepTrace } from "./trace.ts";

/** Everything about an engine that can be chosen. */
export interface EngineOptions {
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: AdmissionPolicy & { readonly sequencesMax: number; readonly rule: AdmissionRule };
  readonly drafts: DraftPolicy;
  /** A baseline's cache; null: ours. */
  readonly cache: CacheBaseline | null;
  /** Most sequences that may wait; one more is rejected with `queueFull`. */
  readonly queueMax: number;
  /**
   * Fewest tokens that waiting for an in-flight prefix must save. Waiting costs about a step, and a step
   * computes this many tokens at little extra cost.
   */
  readonly sharedTokensMin: number;
  /**
   * Number of times that a step is started again that the device could not compute, before its sequences
   * fail.
   */
  readonly retriesMax: number;
  /**
   * Times at which `checkIntegrity` runs by itself: after every step and message, or when the engine falls
   * idle, every ten seconds at most. Page counts are checked whenever it falls idle.
   */
  readonly integrity: "always" | "idle";
  /** The engine's incarnation: 0, and one more each time it is replaced. */
  readonly epoch: number;
  /** True if reports include the KV events of the prefix cache. */
  readonly kvEvents: boolean;
  /** Called with every step that is done, for traces (trace.ts). */
  readonly trace: ((step: StepTrace) => void) | null;
}

type Defaults = Omit<EngineOptions, "admission"> & { readonly admission: AdmissionPolicy };

/** Options that differ from the defaults. */
export interface EngineSettings extends Partial<Omit<EngineOptions, "admission">> {
  readonly admission?: Partial<AdmissionPolicy>;
}

/** The defaults: the policy that serves (policies.ts). */
export const engineDefaults: Defaults = {
  ...settingsOf(ours(), 1),
  queueMax: 4096,
  sharedTokensMin: 64,
  retriesMax: 3,
  integrity: "idle",
  epoch: 0,
  trace: null,
};

/** The settings of one of `engines` engines under a policy. */
export function settingsOf(
  { queue, batch, admission, placement, cache, drafts }: Policy,
  engines: number,
): Pick<EngineOptions, "queue" | "batch" | "cache" | "drafts" | "kvEvents"> & Pick<Policy, "admission"> {
  const kvEvents = engines > 1 && (placement.kind === "e2" || placement.readsKvEvents);
  return { queue, batch, admission, cache: cache ?? null, drafts: drafts ?? { kind: "off" }, kvEvents };
}

/** The options of one of `engines` engines under a policy. */
export function optionsOf(policy: Policy, spec: DeviceSpec, engines: number): EngineOptions {
  return resolveOptions(settingsOf(policy, engines), spec);
}

/** Overrides the defaults, and limits them to the device's sizes. */
export function resolveOptions(settings: EngineSettings, spec: DeviceSpec): EngineOptions {
  const wanted = { ...engineDefaults, ...settings };
  const admission = { rule: servedAdmission, ...engineDefaults.admission, ...settings.admission };
  const most = Math.min(spec.stepChunksMax, spec.stepTokensMax, spec.states?.slots ?? spec.stepChunksMax);
  const sequencesMax = Math.min(admission.sequencesMax ?? most, most);
  assert(sequencesMax >= 1, "a step has room for a sequence");
  assert(wanted.queueMax >= 1, "the queue has room for a sequence");
  assert(admission.watermark >= 0 && admission.watermark < 1, "the watermark is a share of the pages");
  return {
    ...wanted,
    batch: withinDevice(wanted.batch, spec.stepTokensMax),
    admission: { ...admission, sequencesMax },
  };
}

function withinDevice(batch: BatchPolicy, stepTokensMax: number): BatchPolicy {
  if (batch.kind === "time") return batch;
  const stepTokens = Math.min(batch.stepTokens, stepTokensMax);
  assert(stepTokens >= 1, "a step has room for a token");
  return { ...batch, stepTokens };
}
