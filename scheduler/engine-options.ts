import { assert } from "./core.ts";
import type { DeviceSpec } from "./device.ts";
import type { AdmissionPolicy, BatchPolicy, PlacementPolicy, Policy, QueuePolicy } from "./policy.ts";
import type { StepTrace } from "./trace.ts";

/** Everything about an engine that can be chosen. */
export interface EngineOptions {
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: AdmissionPolicy;
  /** Most sequences that wait; one more is rejected with `queueFull`. */
  readonly queueMax: number;
  /** Milliseconds after which a waiting sequence of the latency, gang and throughput lane goes first, where the
   *  queue has lanes. */
  readonly ageingMs: readonly [number, number, number];
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
  readonly notices: boolean;
  /** Told every step that is done, for traces (trace.ts). */
  readonly trace: ((step: StepTrace) => void) | null;
}

/** What of an engine is chosen otherwise than by default. */
export interface EngineSettings extends Partial<Omit<EngineOptions, "admission">> {
  readonly admission?: Partial<AdmissionPolicy>;
}

/** Prompts get what decodes leave of `stepTokens` (Sarathi-Serve, arXiv:2403.02310 §4.3). */
export function staticBudget(stepTokens: number): BatchPolicy {
  return { kind: "fixed", stepTokens, bypass: 1 };
}

export const engineDefaults: EngineOptions = {
  queue: { kind: "groups", groups: 10 },
  // On a CPU a step of 512 tokens of a model of 0.5B parameters takes about 0.7 s, a gap in every stream; 256 halves
  // it for 2–3 % of throughput, and is twice `sequencesMax`, so that decodes leave prompts at least half of every step.
  batch: staticBudget(256),
  admission: {
    sequencesMax: 128,
    watermark: 0.01,
    headroom: true,
    cache: true,
    prefixPending: true,
    overtakes: true,
    backOff: true,
  },
  queueMax: 4096,
  ageingMs: [10_000, 60_000, 600_000],
  sharedTokensMin: 64,
  retriesMax: 3,
  integrity: "idle",
  epoch: 0,
  notices: true,
  trace: null,
};

/** The options of one of `engines` engines under a policy. */
export function optionsOf(policy: Policy, spec: DeviceSpec, engines: number): EngineOptions {
  const { queue, batch, admission, placement } = policy;
  return resolveOptions({ queue, batch, admission, notices: readsNotices(placement, engines) }, spec);
}

/** Whether whoever places sequences on so many engines wants to know what each has cached. */
export function readsNotices(placement: PlacementPolicy, engines: number): boolean {
  return engines > 1 && placement.kind === "e2" && placement.notices;
}

/** The defaults, overridden, and cut down to what the device can do. */
export function resolveOptions(settings: EngineSettings, spec: DeviceSpec): EngineOptions {
  const wanted = { ...engineDefaults, ...settings };
  const admission = { ...engineDefaults.admission, ...settings.admission };
  const sequencesMax = Math.min(admission.sequencesMax, spec.stepChunksMax, spec.stepTokensMax);
  const stepTokens = Math.min(wanted.batch.stepTokens, spec.stepTokensMax);
  assert(sequencesMax >= 1 && stepTokens >= 1, "a step has room for a sequence");
  assert(wanted.queueMax >= 1, "the queue has room for a sequence");
  assert(admission.watermark >= 0 && admission.watermark < 1, "the watermark is a share of the pages");
  return {
    ...wanted,
    batch: { ...wanted.batch, stepTokens },
    admission: { ...admission, sequencesMax },
  };
}
