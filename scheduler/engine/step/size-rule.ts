import type { Backlog } from "./step-budget.ts";
import type { StepPrediction } from "./step-prediction.ts";
import type { SizeOption } from "./step-size.ts";
import { nextTile } from "./tile.ts";

/** Sizes of a step that are compared: so many half tiles, then at distances that double each time there are half as many
 *  again. */
const SIZES_FINE = 8;

/** The prompts that a step might have. */
export interface PromptDemand {
  /** Of the first prompt: tokens to compute, after `context` that are computed. */
  readonly left: number;
  readonly context: number;
  /** Of all prompts that are unfinished or wait, at most. */
  readonly promptTokens: number;
  /** Tokens that the step may have at most, decodes included. */
  readonly sizeMax: number;
}

/** A size that was chosen. */
export interface SizeChoice {
  /** Tokens, decodes included. */
  readonly size: number;
  /** How long the step may take, with whatever chunks fill it up. */
  readonly limitMs: number;
}

/** How long a step may take. */
export interface StepLimits {
  /** No size that takes longer is an option. */
  readonly targetMs: number;
  /** No size that takes longer is an option, but for the smallest. */
  readonly untargetedMs: number;
}

/** What an engine does and did, as far as the size of a step depends on it. */
export interface StepWork {
  readonly backlog: Backlog;
  readonly history: StepHistory;
  /** The policy's, see `TimePolicy`. */
  readonly stepMs: number;
}

/** State carried across steps. */
export interface StepHistory {
  /** For so long no stream has run; Infinity: none ever has. */
  readonly quietMs: number;
  /** Places in which an offline step can be aborted (`DeviceSpec.abortPoints`). */
  readonly abortPoints: number;
  /** When an offline prompt last lengthened a step that others were in. */
  offlineTileMs: number;
}

/** Port: how large a step is that might have prompts. There is one rule for each kind of work. */
export interface SizeRule {
  choose(demand: PromptDemand, limits: StepLimits): SizeChoice;
}

/** Where no stream runs, a step may take so many times `stepMs` before smaller ones are looked for that are nearly as good, and one of a task
 *  group longer than that where none has run for long: a request that arrives meanwhile waits for its end. */
export const QUIET = 4;
/** Where no stream has run for so long, none is expected; where one has, the next one is expected after as long again. */
export const QUIET_AFTER_MS = 60_000;

/** The sizes that a step may have, the smallest first: a grid of half tiles, coarser further up. Empty: none fits. */
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
