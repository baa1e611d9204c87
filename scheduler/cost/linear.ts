import type { CostModel } from "./cost-model.ts";

/** A step's fixed cost and a cost per token, in milliseconds: the shape of a small model on any device, as long as
 *  contexts are short. Plain data besides its one function. */
export interface LinearCost extends CostModel {
  readonly linear: { readonly stepMs: number; readonly tokenMs: number };
}

/** A linear cost model; `tileTokens` for a device that computes so many tokens at once. */
export function linearCost(stepMs: number, tokenMs: number, tileTokens = 1): LinearCost {
  return {
    name: `${stepMs} ms + ${tokenMs} ms per token`,
    tileTokens,
    linear: { stepMs, tokenMs },
    stepMs: ({ prompts, decodes }) => {
      let tokens = decodes;
      for (const prompt of prompts) tokens += prompt.tokens;
      return stepMs + tokenMs * tokens;
    },
  };
}
