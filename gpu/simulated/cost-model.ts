import type { Step } from "../../scheduler/core.ts";

/** Predicts how many milliseconds a step takes; ≥ 0. */
export type CostModel = (step: Step) => number;

/** A step's fixed cost plus a cost per token, in milliseconds: the shape of a small model on any device. */
export function linearCost(stepMs: number, tokenMs: number): CostModel {
  return (step) => stepMs + tokenMs * step.chunks.reduce((sum, chunk) => sum + chunk.tokens.length, 0);
}
