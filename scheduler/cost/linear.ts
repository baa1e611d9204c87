import { PARTS, type PartedCostModel, type StepShape, sumOf } from "./cost-model.ts";

/** Milliseconds that sequences add to those of their tokens: each of them, as one token is drawn for it; each pair of a
 *  prompt's token and one that it looks at; and each token of decodes' contexts. */
export interface SequenceCost {
  readonly sequenceMs: number;
  readonly pairMs: number;
  readonly contextMs: number;
}

/** Tokens of a step up to so many, those of the entry before not counted, take `tokenMs` each, however many more there are: the device reads
 *  its weights meanwhile. */
export interface FirstTokens {
  readonly tokens: number;
  readonly tokenMs: number;
}

/** What makes a linear cost model, as plain data. Numbers are ≥ 0. */
export interface LinearState {
  readonly kind: "linear";
  readonly stepMs: number;
  readonly tokenMs: number;
  readonly tileTokens: number;
  readonly sequences: SequenceCost;
  /** In ascending order. */
  readonly first: readonly FirstTokens[];
}

/** A step's fixed cost, a cost per token, and what sequences add, in milliseconds: the shape of a model on a device without
 *  tiles. */
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

  /** What makes another of the same. */
  get state(): LinearState {
    const { tileTokens } = this;
    const [stepMs, tokenMs, sequences, first] = [this.#stepMs, this.#tokenMs, this.#sequences, this.#first];
    return { kind: "linear", stepMs, tokenMs, tileTokens, sequences, first };
  }

  /** Of a machine that is `slowdown` > 0 times as slow. */
  times(slowdown: number): LinearCost {
    const { sequenceMs, pairMs, contextMs } = this.#sequences;
    return new LinearCost(
      slowdown * this.#stepMs,
      slowdown * this.#tokenMs,
      this.tileTokens,
      { sequenceMs: slowdown * sequenceMs, pairMs: slowdown * pairMs, contextMs: slowdown * contextMs },
      this.#first.map(({ tokens, tokenMs }) => ({ tokens, tokenMs: slowdown * tokenMs })),
    );
  }

  stepMs(shape: StepShape): number {
    this.partsMs(shape, this.#parts);
    return sumOf(this.#parts);
  }

  partsMs({ prompts, decodes, decodeContext }: StepShape, into: Float64Array): void {
    let tokens = decodes;
    let pairs = 0;
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

/** A linear cost model; `tileTokens` for a device that computes so many tokens at once. Without `sequences` they add nothing, and
 *  without `first` all tokens cost the same. */
export function linearCost(
  stepMs: number,
  tokenMs: number,
  tileTokens = 1,
  sequences: SequenceCost = { sequenceMs: 0, pairMs: 0, contextMs: 0 },
  first: readonly FirstTokens[] = [],
): LinearCost {
  return new LinearCost(stepMs, tokenMs, tileTokens, sequences, first);
}

/** Of a device that nothing is known of: a simulated one, or one whose engine has told nothing yet. An engine on a real
 *  device begins with what its first steps took. */
export const unknownCost = linearCost(5, 0.02);
