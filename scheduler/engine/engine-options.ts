import { assert } from "../../base/assert.ts";
import type { DeviceSpec } from "../device.ts";
import { ours } from "../policies.ts";
import type { AdmissionPolicy, BatchPolicy, CacheBaseline, Policy, QueuePolicy } from "../policy.ts";
import { type AdmissionRule, servedAdmission } from "./admission-rule.ts";
import type { StepTrace } from "./trace.ts";

/** Everything about an engine that can be chosen. */
export interface EngineOptions {
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: AdmissionPolicy & { readonly sequencesMax: number; readonly rule: AdmissionRule };
  /** A baseline's cache; null: ours. */
  readonly cache: CacheBaseline | null;
  /** Most sequences that wait; one more is rejected with `queueFull`. */
  readonly queueMax: number;
  /** Tokens that waiting for another sequence's prefix must save at least. Waiting costs about a step, and a
   *  step computes this many tokens at little extra cost. */
  readonly sharedTokensMin: number;
  /** How often a step that the device could not compute is started again before its sequences fail. */
  readonly retriesMax: number;
  /** When `checkIntegrity` runs by itself: after every step and message, or when the engine falls idle, every
   *  ten seconds at most. Page counts are checked whenever it falls idle. */
  readonly integrity: "always" | "idle";
  /** Which life of the engine this is: 0, and one more each time it is replaced. */
  readonly epoch: number;
  /** Whether reports tell what the prefix cache takes in and lets go. */
  readonly kvEvents: boolean;
  /** Told every step that is done, for traces (trace.ts). */
  readonly trace: ((step: StepTrace) => void) | null;
}

type Defaults = Omit<EngineOptions, "admission"> & { readonly admission: AdmissionPolicy };

/** What of an engine is chosen otherwise than by default. */
export interface EngineSettings extends Partial<Omit<EngineOptions, "admission">> {
  readonly admission?: Partial<AdmissionPolicy>;
}

/** What an engine does that is told nothing else: what serves (policies.ts). */
export const engineDefaults: Defaults = {
  ...settingsOf(ours(), 1),
  queueMax: 4096,
  sharedTokensMin: 64,
  retriesMax: 3,
  integrity: "idle",
  epoch: 0,
  trace: null,
};

/** What a policy says of one of `engines` engines. */
export function settingsOf(
  { queue, batch, admission, placement, cache }: Policy,
  engines: number,
): Pick<EngineOptions, "queue" | "batch" | "cache" | "kvEvents"> & Pick<Policy, "admission"> {
  const kvEvents = engines > 1 && (placement.kind === "e2" || placement.readsKvEvents);
  return { queue, batch, admission, cache: cache ?? null, kvEvents };
}

/** The options of one of `engines` engines under a policy. */
export function optionsOf(policy: Policy, spec: DeviceSpec, engines: number): EngineOptions {
  return resolveOptions(settingsOf(policy, engines), spec);
}

/** The defaults, overridden, and cut down to what the device can do. */
export function resolveOptions(settings: EngineSettings, spec: DeviceSpec): EngineOptions {
  const wanted = { ...engineDefaults, ...settings };
  const admission = { rule: servedAdmission, ...engineDefaults.admission, ...settings.admission };
  const most = Math.min(spec.stepChunksMax, spec.stepTokensMax);
  const sequencesMax = Math.min(admission.sequencesMax ?? most, most);
  assert(sequencesMax >= 1, "a step has room for a sequence");
  assert(wanted.queueMax >= 1, "the queue has room for a sequence");
  assert(admission.watermark >= 0 && admission.watermark < 1, "the watermark is a share of the pages");
  return {
    ...wanted,
    batch: cutDown(wanted.batch, spec.stepTokensMax),
    admission: { ...admission, sequencesMax },
  };
}

function cutDown(batch: BatchPolicy, stepTokensMax: number): BatchPolicy {
  if (batch.kind === "time") return batch;
  const stepTokens = Math.min(batch.stepTokens, stepTokensMax);
  assert(stepTokens >= 1, "a step has room for a token");
  return { ...batch, stepTokens };
}
