import type { CostModel, StepShape } from "../../cost/cost-model.ts";

/** What a step has, and a piece of a prospect that it might have as well. */
export interface SpareStep {
  /** Decodes, and no prompts: where these are, nothing is spare. */
  readonly shape: StepShape;
  /** Whether every decode is of the program that waits for the piece. */
  readonly isOwn: boolean;
  /** Tokens that the step may have more. */
  readonly tokensMax: number;
  /** Of the piece: tokens that are missing, after so many that are there. */
  readonly left: number;
  readonly context: number;
}

/** A step with nothing else in it takes so long at most: whatever comes meanwhile waits for its end. */
const IDLE_MS = 25;
/** Beside decodes of its own program alone a piece makes a step so many times as long at most: it then costs less than in a
 *  step of its own, and the program gains what the decodes lose, and more. */
const OWN_TIMES = 2;
/** Predictions that differ by no larger share are equal. */
const EQUAL = 1e-9;

/**
 * Tokens of a prospect that a step can have without a loss for others, by prediction: as many as fit `IDLE_MS` where nothing else
 * runs, else as many as make the step no longer at all. 0 if there are none. About 16 predictions.
 */
export function spareTokens(costs: CostModel, { shape, isOwn, tokensMax, left, context }: SpareStep): number {
  if (shape.prompts.length > 0) return 0;
  const aloneMs = shape.decodes === 0 ? 0 : costs.stepMs(shape);
  const tile = Math.max(1, costs.tileTokens);
  const limitMs = aloneMs === 0 ? IDLE_MS : isOwn ? OWN_TIMES * aloneMs : aloneMs * (1 + EQUAL);
  const fits = (tokens: number): boolean =>
    costs.stepMs({ ...shape, prompts: [{ tokens, context }] }) <= limitMs;
  const most = Math.min(left, tokensMax);
  if (most <= 0) return 0;
  if (fits(most)) return most;
  let [good, bad] = [0, most];
  while (bad - good > 1) {
    const middle = (good + bad) >>> 1;
    if (fits(middle)) good = middle;
    else bad = middle;
  }
  // An idle device computes one tile at a time at least, however slow it is.
  return good === 0 && aloneMs === 0 ? Math.min(most, tile) : good;
}
