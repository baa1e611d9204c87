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

/** Steps compare as they did as long as none takes more than so many times as long beside another as kept costs say. */
export const APART_MAX = 1.5;
/** One step may wait for a core that others use. */
const ROUNDS_MAX = 3;

/**
 * What was once measured of a device, if it is still true: that token and prompt, both alone and after others, compare as they did. How fast
 * the machine is at the moment is measured with it. Null if they do not. Takes a third of a second for a model of which one token takes 20 ms.
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
