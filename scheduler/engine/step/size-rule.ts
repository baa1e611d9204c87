import { nextTile, type StepPrediction } from "./step-prediction.ts";
import type { Backlog } from "./step-rule.ts";
import type { SizeOption } from "./step-size.ts";

/** Number of sizes at the distance of half a tile; after each further half as many the distance doubles. */
const SIZES_FINE = 8;

/** The prompts that a step might have. */
export interface PromptDemand {
  /** Tokens of the first prompt to compute, after `context` that are computed. */
  readonly left: number;
  readonly context: number;
  /** Most tokens of all prompts that are unfinished or wait. */
  readonly promptTokens: number;
  /** Most tokens of the step, decodes included. */
  readonly sizeMax: number;
}

/** The choice of a size rule. */
export interface SizeChoice {
  /** Tokens, decodes included. */
  readonly size: number;
  /** Limit of the step, with all chunks that fill it up. */
  readonly limitMs: number;
}

/** Limits of a step. */
export interface StepLimits {
  /** No size that takes longer is an option. */
  readonly targetMs: number;
  /** No size that takes longer is an option, but for the smallest. */
  readonly untargetedMs: number;
}

/** State of the engine on which the size of a step depends. */
export interface StepWork {
  readonly backlog: Backlog;
  readonly history: StepHistory;
  /** The policy's, see `TimePolicy`. */
  readonly stepMs: number;
}

/** State carried across steps. */
export interface StepHistory {
  /** Time since a stream ran; Infinity: none ever has. */
  readonly quietMs: number;
  /** Places in which an offline step can be aborted (`DeviceSpec.abortPoints`). */
  readonly abortPoints: number;
  /** Time at which an offline prompt last lengthened a step of others. */
  offlineTileMs: number;
}

/** Port: how large a step is that might have prompts. There is one rule for each kind of work. */
export interface SizeRule {
  choose(demand: PromptDemand, limits: StepLimits): SizeChoice;
}

/**
 * Factor on `stepMs` up to which a step may grow while no stream runs, before a nearly as good smaller one is
 * preferred. Steps of a task group may be longer if no stream has run for long.
 */
export const QUIET = 4;
/**
 * Time after which no stream is expected any more. Before that the next one is expected after as long again.
 */
export const QUIET_AFTER_MS = 60_000;

/**
 * The sizes that a step may have, the smallest first: a grid of half tiles, coarser further up. Empty: none
 * fits.
 */
export function sizesWithin(
  step: StepPrediction,
  { left, context, sizeMax }: PromptDemand,
  { targetMs, untargetedMs }: StepLimits,
): SizeOption[] {
  const { tokens: before, quantum } = step;
  const options: SizeOption[] = [];
  let stride = quantum;
  for (let size = Math.min(nextTile(before, quantum), sizeMax); ; size = Math.min(size + stride, sizeMax)) {
    const tokens = Math.min(left, size - before);
    const tookMs = step.msWith(tokens, context, size - before - tokens);
    if (tookMs > targetMs || (tookMs > untargetedMs && options.length > 0)) return options;
    options.push({ size, tookMs });
    if (size === sizeMax) return options;
    if (options.length >= SIZES_FINE && options.length % (SIZES_FINE / 2) === 0) stride *= 2;
  }
}
