import { PARTS, type PartedCostModel, type StepShape, sumOf } from "./cost-model.ts";

/**
 * Costs of sequences in milliseconds, besides those of their tokens: per sequence, for which a token is drawn,
 * per query-key pair of a prompt, and per token of decode contexts.
 */
export interface SequenceCost {
  readonly sequenceMs: number;
  readonly pairMs: number;
  readonly contextMs: number;
}

/**
 * Price of the first tokens of a step: those up to `tokens`, beyond the entry before, take `tokenMs` each. The
 * device streams its weights meanwhile (memory-bound), so that further tokens do not change this price.
 */
export interface FirstTokens {
  readonly tokens: number;
  readonly tokenMs: number;
}

/** Parameters of a linear cost model, as plain data ≥ 0. */
export interface LinearState {
  readonly kind: "linear";
  readonly stepMs: number;
  readonly tokenMs: number;
  readonly tileTokens: number;
  readonly sequences: SequenceCost;
  /** Prices of first tokens, in ascending order. */
  readonly first: readonly FirstTokens[];
}

/**
 * Linear cost model: a fixed cost per step, a cost per token, and the cost of sequences, in milliseconds.
 * Fits a device without tiles.
 */
export class LinearCost implements PartedCostModel {
  readonly name: string;
  readonly tileTokens: number;
  readonly #stepMs: number;
  readonly #tokenMs: number;
  readonly #sequences: SequenceCost;
  readonly #first: readonly FirstTokens[];
  readonly #parts = new Float64Array(PARTS);

  constructor(
    stepMs: number,
    tokenMs: number,
    tileTokens: number,
    sequences: SequenceCost,
    first: readonly FirstTokens[],
  ) {
    this.name = `${stepMs} ms + ${tokenMs} ms per token`;
    this.tileTokens = tileTokens;
    this.#stepMs = stepMs;
    this.#tokenMs = tokenMs;
    this.#sequences = sequences;
    this.#first = first;
  }

  static from({ stepMs, tokenMs, tileTokens, sequences, first }: LinearState): LinearCost {
    return new LinearCost(stepMs, tokenMs, tileTokens, sequences, first);
  }

  /** Plain data that restores this model. */
  get state(): LinearState {
    const { tileTokens } = this;
    const [stepMs, tokenMs, sequences, first] = [this.#stepMs, this.#tokenMs, this.#sequences, this.#first];
    return { kind: "linear", stepMs, tokenMs, tileTokens, sequences, first };
  }

  /** Returns the model of a machine `slowdown` > 0 times as slow. */
  times(slowdown: number): LinearCost {
    return this.weighted(Array.from({ length: PARTS }, () => slowdown));
  }

  /** Returns the model in which each part, in the order of `partsMs`, takes `weights` times as long. */
  weighted(weights: readonly number[]): LinearCost {
    const [step, token, sequence, pair, context, early] = weights as [number, ...number[]];
    const { sequenceMs, pairMs, contextMs } = this.#sequences;
    return new LinearCost(
      step * this.#stepMs,
      token! * this.#tokenMs,
      this.tileTokens,
      { sequenceMs: sequence! * sequenceMs, pairMs: pair! * pairMs, contextMs: context! * contextMs },
      this.#first.map(({ tokens, tokenMs }) => ({ tokens, tokenMs: early! * tokenMs })),
    );
  }

  stepMs(shape: StepShape): number {
    this.partsMs(shape, this.#parts);
    return sumOf(this.#parts);
  }

  partsMs({ prompts, decodes, decodeContext, draftPairs = 0 }: StepShape, into: Float64Array): void {
    let tokens = decodes;
    let pairs = draftPairs;
    for (const prompt of prompts) {
      tokens += prompt.tokens;
      pairs += prompt.tokens * (prompt.context + prompt.tokens / 2);
    }
    const { sequenceMs, pairMs, contextMs } = this.#sequences;
    let counted = 0;
    let firstMs = 0;
    for (const first of this.#first) {
      const upTo = Math.min(tokens, first.tokens);
      firstMs += first.tokenMs * (upTo - counted);
      counted = upTo;
    }
    into[0] = this.#stepMs;
    into[1] = this.#tokenMs * (tokens - counted);
    into[2] = sequenceMs * (decodes + prompts.length);
    into[3] = pairMs * pairs;
    into[4] = contextMs * decodeContext;
    into[5] = firstMs;
  }
}

/**
 * Makes a linear cost model; `tileTokens` is for a device that computes that many tokens at once. Without
 * `sequences` they add nothing; without `first` all tokens cost the same.
 */
export function linearCost(
  stepMs: number,
  tokenMs: number,
  tileTokens = 1,
  sequences: SequenceCost = { sequenceMs: 0, pairMs: 0, contextMs: 0 },
  first: readonly FirstTokens[] = [],
): LinearCost {
  return new LinearCost(stepMs, tokenMs, tileTokens, sequences, first);
}

/**
 * Prior of an unknown device: a simulated one, or one whose engine has reported nothing yet. An engine on a
 * real device starts with its first measured steps.
 */
export const unknownCost = linearCost(5, 0.02);
