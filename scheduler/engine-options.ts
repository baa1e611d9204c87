import { assert } from "./core.ts";
import type { DeviceSpec } from "./device.ts";
import type { StepTrace } from "./trace.ts";

/** Everything about an engine that can be chosen. */
export interface EngineOptions {
  /** Token budget of a step: bounds the time between two tokens of a running sequence (Sarathi-Serve §4.3).
   *  On a CPU a step of 512 tokens of a model of 0.5B parameters takes about 0.7 s, a gap in every stream;
   *  256 halves it for 2–3 % of throughput, and is twice `sequencesMax`, so that decodes leave prompts at
   *  least half of every step. */
  readonly stepTokens: number;
  /** Most sequences that hold pages at once. At most `stepTokens`, so that every decode fits every step. */
  readonly sequencesMax: number;
  /** Most sequences that wait; one more is rejected with `queueFull`. */
  readonly queueMax: number;
  /** Share of the pages, 0 … 1, that admission leaves available for decodes to grow into. */
  readonly watermark: number;
  /** P of Preble's priority groups; 1 is first come, first served. */
  readonly priorityGroups: number;
  /** Milliseconds after which a waiting sequence belongs to the top group. */
  readonly ageingMs: number;
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
  /** Told every step that is done, for traces (trace.ts). */
  readonly trace: ((step: StepTrace) => void) | null;
}

export const engineDefaults: EngineOptions = {
  stepTokens: 256,
  sequencesMax: 128,
  queueMax: 4096,
  watermark: 0.01,
  priorityGroups: 10,
  ageingMs: 10_000,
  sharedTokensMin: 64,
  retriesMax: 3,
  integrity: "idle",
  epoch: 0,
  trace: null,
};

/** The defaults, overridden, and cut down to what the device can do. */
export function resolveOptions(overrides: Partial<EngineOptions>, spec: DeviceSpec): EngineOptions {
  const wanted = { ...engineDefaults, ...overrides };
  const stepTokens = Math.min(wanted.stepTokens, spec.stepTokensMax);
  const sequencesMax = Math.min(wanted.sequencesMax, spec.stepChunksMax, stepTokens);
  assert(sequencesMax >= 1 && wanted.queueMax >= 1, "an engine has room for a sequence");
  assert(wanted.watermark >= 0 && wanted.watermark < 1, "the watermark is a share of the pages");
  return { ...wanted, stepTokens, sequencesMax };
}
