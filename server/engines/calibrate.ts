import type { NativeModel } from "../../gpu/native/open.ts";
import { type LinearCost, linearCost } from "../../scheduler/cost/linear.ts";
import { type Bench, growing, LEAST_MS, oneToken, roomOf, shapeOfTrial, timeStep } from "./trial.ts";

/** Rows that the kernels compute together, and tokens of the shortest prompt to time. */
const TILE_TOKENS = 16;
/** Calibration stops at the first prompt that takes this many times as long as one token. */
const PROMPT_TIMES = 4;
/** Time to sample a sequence's token, as a multiple of a prompt token's time. */
const SEQUENCE_TOKENS = 0.5;
/** Time of an attention operation, as a multiple of that of an operation with quantized weights. */
const ATTENTION_TIMES = 8;

/** Sizes of a model, from which the costs of contexts follow. */
export type ModelSizes = Pick<NativeModel, "weightBytes" | "pageBytes" | "hiddenSize" | "layers">;

/**
 * Estimates step costs of an idle device in a few steps: one token, and prompts that double until they take
 * four times as long. The costs of contexts are typical proportions of those two. Steps that serve correct all
 * of them (scheduler/cost/online.ts). Throws if the device cannot compute.
 */
export function calibrate(bench: Bench, model: ModelSizes): LinearCost {
  const { spec } = bench.device;
  const oneMs = Math.min(timeStep(bench, oneToken), timeStep(bench, oneToken));
  let [promptTokens, promptMs] = [1, oneMs];
  for (const tokens of growing(TILE_TOKENS, 2, Math.min(spec.stepTokensMax, roomOf(bench.device)))) {
    if (promptMs >= PROMPT_TIMES * oneMs) break;
    [promptTokens, promptMs] = [tokens, timeStep(bench, { ...oneToken, tokens })];
  }
  const tokenMs = Math.max(LEAST_MS, (promptMs - oneMs) / Math.max(1, promptTokens - 1));
  const sequenceMs = SEQUENCE_TOKENS * tokenMs;
  // A token multiplies every weight once; a (query, key) pair multiplies hidden × layers numbers twice.
  const pairMs = (ATTENTION_TIMES * tokenMs * model.hiddenSize * model.layers) / model.weightBytes;
  // A decode reads all weights, and a few more bytes for each token of its context.
  const contextMs = (oneMs * model.pageBytes) / spec.pageTokens / model.weightBytes;
  const stepMs = Math.max(LEAST_MS, oneMs - tokenMs - sequenceMs);
  return linearCost(stepMs, tokenMs, TILE_TOKENS, { sequenceMs, pairMs, contextMs });
}

/** Scales costs from an earlier start to the device's present speed, by the time of one token. */
export function atSpeedOf(bench: Bench, kept: LinearCost): LinearCost {
  const oneMs = Math.min(timeStep(bench, oneToken), timeStep(bench, oneToken));
  return kept.times(oneMs / kept.stepMs(shapeOfTrial(oneToken)));
}
