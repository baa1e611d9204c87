import type { CostModel } from "./cost-model.ts";

/** A step's fixed cost and a cost per token, in milliseconds: the shape of a small model on any device, as long as
 *  contexts are short. */
export function linearCost(stepMs: number, tokenMs: number): CostModel {
  return {
    name: `${stepMs} ms + ${tokenMs} ms per token`,
    tileTokens: 1,
    stepMs: ({ prompts, decodes }) => {
      let tokens = decodes;
      for (const prompt of prompts) tokens += prompt.tokens;
      return stepMs + tokenMs * tokens;
    },
  };
}
