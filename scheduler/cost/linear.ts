import type { CostModel, StepShape } from "./cost-model.ts";

/** A step's fixed cost and a cost per token, in milliseconds: the shape of a small model on any device, as long as
 *  contexts are short. */
export class LinearCost implements CostModel {
  readonly name: string;
  readonly tileTokens: number;
  readonly #stepMs: number;
  readonly #tokenMs: number;

  constructor(stepMs: number, tokenMs: number, tileTokens: number) {
    this.name = `${stepMs} ms + ${tokenMs} ms per token`;
    this.tileTokens = tileTokens;
    this.#stepMs = stepMs;
    this.#tokenMs = tokenMs;
  }

  /** What makes another of the same. */
  get state() {
    const { tileTokens } = this;
    return { kind: "linear", stepMs: this.#stepMs, tokenMs: this.#tokenMs, tileTokens } as const;
  }

  stepMs({ prompts, decodes }: StepShape): number {
    let tokens = decodes;
    for (const prompt of prompts) tokens += prompt.tokens;
    return this.#stepMs + this.#tokenMs * tokens;
  }
}

/** A linear cost model; `tileTokens` for a device that computes so many tokens at once. */
export function linearCost(stepMs: number, tokenMs: number, tileTokens = 1): LinearCost {
  return new LinearCost(stepMs, tokenMs, tileTokens);
}
