import type { Chunk } from "../core.ts";

/** Shape of a prompt chunk, as far as it determines the cost. */
export interface PromptShape {
  /** Tokens computed in the step, ≥ 1. */
  readonly tokens: number;
  /** Tokens of the same sequence that are already computed. */
  readonly context: number;
}

/** Shape of a step, as far as it determines the cost. */
export interface StepShape {
  readonly prompts: readonly PromptShape[];
  readonly decodes: number;
  /** Context tokens of all decodes, summed; draft tokens read their chunk's context and add none. */
  readonly decodeContext: number;
  /** Query-key pairs of draft tokens, each of which `decodes` counts too. Absent: 0. */
  readonly draftPairs?: number;
}

/**
 * Port of a cost model: predicts how long a step takes. The step budget, the dispatcher, admission, the
 * planner and the timed device use the same model. Every implementation is a pure function of the shape,
 * until measurements correct it (online.ts). Predictions are > 0 and grow with every number in the shape.
 */
export interface CostModel {
  /** Name for people: "A100, Mistral-7B shape". */
  readonly name: string;
  /** Tile size in tokens: the time jumps beyond each multiple of it. 1 without tiles. */
  readonly tileTokens: number;
  /** Milliseconds from the start of a step to its result. O(prompts). */
  stepMs(shape: StepShape): number;
}

/**
 * Number of parts of a step's time: fixed cost, tokens, sequences, prompt attention, decode contexts, and
 * first tokens. The last part is for devices on which a step's first tokens have a price of their own (linear.ts).
 */
export const PARTS = 6;

/** Cost model that splits a step's time into parts. */
export interface PartedCostModel extends CostModel {
  /**
   * Writes the milliseconds of each part to `into`. Parts are ≥ 0, sum to `stepMs`, and grow with every
   * number in the shape.
   */
  partsMs(shape: StepShape, into: Float64Array): void;
}

/** Sums the parts to the time of a step. */
export function sumOf(parts: Float64Array): number {
  let sum = 0;
  for (let part = 0; part < PARTS; part++) sum += parts[part]!;
  return sum;
}

/** Cost model that learns from measured steps and knows its own error. */
export interface EngineCosts extends CostModel {
  /** Learns from a step that took `ms` from its start to its result. */
  observe?(shape: StepShape, ms: number): void;
  /** Error margin ≥ 0: most steps take at most 1 + margin times the prediction. 0 if absent. */
  readonly margin?: number;
}

/**
 * Milliseconds to compute `tokens` prompt tokens after `context` cached ones, alone in one step. 0 for no
 * tokens.
 */
export function promptMs(model: CostModel, tokens: number, context: number): number {
  if (tokens === 0) return 0;
  return model.stepMs({ prompts: [{ tokens, context }], decodes: 0, decodeContext: 0 });
}

/** Milliseconds of a step of `decodes` ≥ 1 decodes whose contexts are `context` tokens each. */
export function decodeStepMs(model: CostModel, decodes: number, context: number): number {
  return model.stepMs({ prompts: [], decodes, decodeContext: decodes * context });
}

/** Chunk of a step, as far as it determines the cost. */
type SizedChunk = Pick<Chunk, "start" | "drafted"> & { readonly tokens: Pick<Chunk["tokens"], "length"> };

/**
 * Returns the shape of a step. A chunk of one token after others counts as a decode. The last single token of
 * a prompt may be one, at the same cost. Each draft token counts as a decode too, since a row follows it, but adds
 * no context: its chunk reads those keys anyway.
 */
export function shapeOf({ chunks }: { readonly chunks: readonly SizedChunk[] }): StepShape {
  const prompts: PromptShape[] = [];
  let decodes = 0;
  let decodeContext = 0;
  let draftPairs = 0;
  for (const { start, tokens, drafted = 0 } of chunks) {
    const known = tokens.length - drafted;
    decodes += drafted;
    draftPairs += drafted * (start + known);
    if (known === 1 && start > 0) {
      decodes += 1;
      decodeContext += start;
    } else prompts.push({ tokens: known, context: start });
  }
  return draftPairs === 0
    ? { prompts, decodes, decodeContext }
    : { prompts, decodes, decodeContext, draftPairs };
}

/** Cost model of an engine as the fleet sees it: the last one that the engine reported. */
export class EstimatedCosts implements EngineCosts {
  #model: EngineCosts;

  constructor(model: EngineCosts) {
    this.#model = model;
  }

  get name(): string {
    return this.#model.name;
  }

  get tileTokens(): number {
    return this.#model.tileTokens;
  }

  get margin(): number {
    return this.#model.margin ?? 0;
  }

  /** Replaces the model with the engine's latest. */
  take(model: EngineCosts): void {
    this.#model = model;
  }

  stepMs(shape: StepShape): number {
    return this.#model.stepMs(shape);
  }
}
