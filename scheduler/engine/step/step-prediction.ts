import type { EngineCosts, PromptShape, StepShape } from "../../cost/cost-model.ts";

/** Smallest piece into which a prompt is cut, whatever the device's tiles. */
const CHUNK_MIN = 16;
/** Most times that a chunk is made smaller to fit. */
const TRIES_MAX = 16;

interface MutableShape extends StepShape {
  readonly prompts: PromptShape[];
  decodes: number;
  decodeContext: number;
  draftPairs: number;
}

/** A step while it is filled, and the cost model's predictions for it. */
export class StepPrediction {
  readonly #costs: EngineCosts;
  readonly #shape: MutableShape;
  #tokens: number;

  /** Begins with `decodes`, whose contexts have `decodeContext` tokens together. */
  constructor(costs: EngineCosts, decodes: number, decodeContext: number) {
    this.#costs = costs;
    this.#shape = { prompts: [], decodes, decodeContext, draftPairs: 0 };
    this.#tokens = decodes;
  }

  /** Number of tokens so far: decodes and added chunks. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Time of the step as it is. */
  get ms(): number {
    return this.#costs.stepMs(this.#shape);
  }

  /**
   * Time of the decodes' contexts in a step that takes `aloneMs`: the difference to as many tokens without
   * contexts.
   */
  contextMs(aloneMs: number): number {
    const { decodes } = this.#shape;
    return decodes === 0 ? 0 : Math.max(0, aloneMs - this.promptMs(decodes));
  }

  /** Time of the step with one more chunk; `others`: tokens of further, unknown prompts. */
  msWith(tokens: number, context: number, others = 0): number {
    const { prompts } = this.#shape;
    prompts.push({ tokens, context });
    if (others > 0) prompts.push({ tokens: others, context: 0 });
    const { ms } = this;
    prompts.length -= others > 0 ? 2 : 1;
    return ms;
  }

  /**
   * Milliseconds that draft rows add to the step; `context`: context lengths of the rows, summed. `rows` may be
   * an expected value, and so fractional.
   */
  addedMs(rows: number, context: number): number {
    const { decodes, draftPairs } = this.#shape;
    const before = this.ms;
    this.#shape.decodes = decodes + rows;
    this.#shape.draftPairs = draftPairs + context;
    const { ms } = this;
    this.#shape.decodes = decodes;
    this.#shape.draftPairs = draftPairs;
    return ms - before;
  }

  /** Time of the decodes without the other chunks. */
  get decodesMs(): number {
    const { decodes, decodeContext } = this.#shape;
    return this.#costs.stepMs({ prompts: [], decodes, decodeContext });
  }

  /** Time of a step with a prompt of `tokens` alone. */
  promptMs(tokens: number): number {
    return this.#costs.stepMs({ prompts: [{ tokens, context: 0 }], decodes: 0, decodeContext: 0 });
  }

  /** Time of a step of `tokens` without contexts; 0 for none. */
  bareMs(tokens: number): number {
    return tokens === 0 ? 0 : this.#costs.stepMs({ prompts: [], decodes: tokens, decodeContext: 0 });
  }

  /** Adds a chunk. */
  add(tokens: number, context: number): void {
    this.#shape.prompts.push({ tokens, context });
    this.#tokens += tokens;
  }

  /** Leaves a decode out, whose context has `length` tokens. */
  leaveOut(length: number): void {
    this.#shape.decodes -= 1;
    this.#shape.decodeContext -= length;
    this.#tokens -= 1;
  }

  /** Distance of sizes: half a tile, since the time jumps there too on some devices. */
  get quantum(): number {
    return Math.max(CHUNK_MIN, this.#costs.tileTokens / 2);
  }

  /** Distance of sizes in a finer comparison. */
  get fineQuantum(): number {
    return Math.max(CHUNK_MIN, this.quantum >> 1);
  }

  /** The size with one tile of prompt, or little less. */
  get smallestSize(): number {
    const { quantum } = this;
    const next = nextTile(this.#tokens, quantum);
    return (next - this.#tokens) * 2 < quantum ? next + quantum : next;
  }

  /** Tokens of a prompt with `left` that bring the step to `size`: whole tiles, or all that is left. */
  fill(left: number, size: number): number {
    if (left <= size - this.#tokens) return left;
    return Math.max(0, tileTrim(size, this.#costs.tileTokens) - this.#tokens);
  }

  /** Tokens of a chunk that fit `limitMs`: all, or fewer by whole half tiles. */
  fitting(tokens: number, context: number, limitMs: number): number {
    let fitting = tokens;
    for (let tries = 0; fitting > 0 && tries < TRIES_MAX; tries++) {
      if (this.msWith(fitting, context) <= limitMs) return fitting;
      const size = this.#tokens + fitting;
      fitting = size - (size % this.quantum || this.quantum) - this.#tokens;
    }
    return 0;
  }
}

/**
 * Returns `total` tokens, cut back to whole tiles if an eighth of the last tile or less would be used. Matrix
 * units work in tiles of tokens: a partly used tile takes as long as a full one. A chunk that ends its prompt
 * is better left whole: the tokens cut off would cost a step of their own.
 */
export function tileTrim(total: number, tileTokens: number): number {
  const over = total % tileTokens;
  const isSliver = over > 0 && over * 8 <= tileTokens && total > tileTokens;
  return isSliver ? total - over : total;
}

/** The smallest whole number of tiles above `total`. */
export function nextTile(total: number, tileTokens: number): number {
  return total - (total % tileTokens) + tileTokens;
}
