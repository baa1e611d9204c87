import type { Step } from "../core.ts";

/** A prompt chunk as far as its cost goes. */
export interface PromptShape {
  /** Tokens computed in the step, ≥ 1. */
  readonly tokens: number;
  /** Tokens of the same sequence that are computed already. */
  readonly context: number;
}

/** A step as far as its cost goes. */
export interface StepShape {
  readonly prompts: readonly PromptShape[];
  readonly decodes: number;
  /** Context tokens of all decodes together. */
  readonly decodeContext: number;
}

/**
 * Port: how long a step takes. One model serves five: the step budget, the dispatcher's costs, admission, the
 * planner and the timed device. Every implementation is a pure function of the shape (until it is corrected by
 * what was measured, see online.ts), greater than zero, and grows with every number in the shape.
 */
export interface CostModel {
  /** For people: "A100, Mistral-7B shape". */
  readonly name: string;
  /** Tokens in a step beyond a multiple of which the time jumps; 1 where there are no such steps. */
  readonly tileTokens: number;
  /** Milliseconds from a step's start to its result. Costs O(prompts). */
  stepMs(shape: StepShape): number;
}

/** Parts of a step's time: what each step has, its tokens, its sequences, what prompts look at, the contexts of decodes, and its first tokens
 *  where these take another time than all others. */
export const PARTS = 6;

/** A cost model that tells where a step's time goes. */
export interface PartedCostModel extends CostModel {
  /** Puts the milliseconds of each part into `into`: they are ≥ 0, add up to `stepMs`, and each grows with every number in
   *  the shape. */
  partsMs(shape: StepShape, into: Float64Array): void;
}

/** A step's time from its parts. */
export function sumOf(parts: Float64Array): number {
  let sum = 0;
  for (let part = 0; part < PARTS; part++) sum += parts[part]!;
  return sum;
}

/** A cost model as an engine uses it: told what its steps took, and aware of its own error. */
export interface EngineCosts extends CostModel {
  /** Takes note of a step that took `ms` from its start to its result. */
  observe?(shape: StepShape, ms: number): void;
  /** Most steps take at most 1 + margin times what is predicted; ≥ 0, 0 if not given. */
  readonly margin?: number;
}

/** Milliseconds to compute `tokens` of a prompt after `context` cached ones, alone, in one step. 0 for none. */
export function promptMs(model: CostModel, tokens: number, context: number): number {
  if (tokens === 0) return 0;
  return model.stepMs({ prompts: [{ tokens, context }], decodes: 0, decodeContext: 0 });
}

/** Milliseconds of a step of `decodes` ≥ 1 decodes whose contexts are `context` tokens each. */
export function decodeStepMs(model: CostModel, decodes: number, context: number): number {
  return model.stepMs({ prompts: [], decodes, decodeContext: decodes * context });
}

/** A step's shape. A chunk of one token after others is a decode; of those one token of a prompt may be the last, which
 *  costs the same. */
export function shapeOf({ chunks }: Step): StepShape {
  const prompts: PromptShape[] = [];
  let decodes = 0;
  let decodeContext = 0;
  for (const { start, tokens } of chunks) {
    if (tokens.length === 1 && start > 0) {
      decodes += 1;
      decodeContext += start;
    } else prompts.push({ tokens: tokens.length, context: start });
  }
  return { prompts, decodes, decodeContext };
}
