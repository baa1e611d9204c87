import type { LinearCost } from "../../scheduler/cost/linear.ts";
import {
  type Bench,
  CONTEXT_TOKENS,
  growing,
  median,
  oneToken,
  PROMPT_TIMES,
  PROMPT_TOKENS,
  roomOf,
  shapeOfTrial,
  type Trial,
  timeStep,
} from "./trial.ts";

/**
 * Largest ratio between the deviations of two trials (measured / predicted time) at which kept costs still
 * hold.
 */
export const APART_MAX = 1.5;
/** Maximum rounds, since one step may wait for a busy core. */
const ROUNDS_MAX = 3;

/**
 * Checks kept costs against the device: token and prompt, both alone and after a context, must have the same
 * relative costs. Returns them scaled to the machine's current speed, or null if they no longer hold. Takes a
 * few steps per round.
 */
export function rechecked(bench: Bench, kept: LinearCost): LinearCost | null {
  const trials = trialsOf(bench, kept);
  const leastMs = trials.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < ROUNDS_MAX; round++) {
    for (const [index, trial] of trials.entries())
      leastMs[index] = Math.min(leastMs[index]!, timeStep(bench, trial));
    const ratios = trials.map((trial, index) => leastMs[index]! / kept.stepMs(shapeOfTrial(trial)));
    if (Math.max(...ratios) <= APART_MAX * Math.min(...ratios)) return kept.times(median(ratios));
  }
  return null;
}

function trialsOf({ device }: Bench, kept: LinearCost): readonly Trial[] {
  const room = roomOf(device);
  const predicted = (trial: Trial): number => kept.stepMs(shapeOfTrial(trial));
  const prompts = growing(PROMPT_TOKENS, 2, Math.min(device.spec.stepTokensMax, room)).map((tokens) => ({
    ...oneToken,
    tokens,
  }));
  const isLong = (prompt: Trial): boolean => predicted(prompt) >= PROMPT_TIMES * predicted(oneToken);
  const prompt = prompts.find(isLong) ?? prompts.at(-1) ?? oneToken;
  const later = [oneToken, prompt].flatMap((alone) => {
    const context = Math.min(CONTEXT_TOKENS, room - alone.tokens);
    return context < 1 ? [] : [{ ...alone, context }];
  });
  return [oneToken, prompt, ...later];
}
