import type { EngineCosts, PromptShape, StepShape } from "../../cost/cost-model.ts";
import { nextTile, tileTrim } from "./tile.ts";

/** Prompts are not cut into smaller pieces than this, whatever the device's tiles. */
const CHUNK_MIN = 16;
/** How often a chunk is made smaller at most, to fit. */
const TRIES_MAX = 16;

interface MutableShape extends StepShape {
  readonly prompts: PromptShape[];
  decodes: number;
  decodeContext: number;
}

/** A step while it is filled, and how long the cost model says that it takes with this or that chunk more. */
export class StepPrediction {
  readonly #costs: EngineCosts;
  readonly #shape: MutableShape;
  #tokens: number;

  /** A step of so many decodes, whose contexts have `decodeContext` tokens together. */
  constructor(costs: EngineCosts, decodes: number, decodeContext: number) {
    this.#costs = costs;
    this.#shape = { prompts: [], decodes, decodeContext };
    this.#tokens = decodes;
  }

  /** Tokens of the step so far: decodes, and all that was added. */
  get tokens(): number {
    return this.#tokens;
  }

  /** How long the step takes as it is. */
  get ms(): number {
    return this.#costs.stepMs(this.#shape);
  }

  /** How long the contexts of decodes take in a step that takes `aloneMs`: it is what as many tokens without contexts take less. */
  contextMs(aloneMs: number): number {
    const { decodes } = this.#shape;
    return decodes === 0 ? 0 : Math.max(0, aloneMs - this.promptMs(decodes));
  }

  /** How long the step takes with a chunk more; `others`: tokens of further prompts of which nothing is known. */
  msWith(tokens: number, context: number, others = 0): number {
    const { prompts } = this.#shape;
    prompts.push({ tokens, context });
    if (others > 0) prompts.push({ tokens: others, context: 0 });
    const { ms } = this;
    prompts.length -= others > 0 ? 2 : 1;
    return ms;
  }

  /** How long a step of this prompt alone takes. */
  promptMs(tokens: number): number {
    return this.#costs.stepMs({ prompts: [{ tokens, context: 0 }], decodes: 0, decodeContext: 0 });
  }

  /** How long a step of so many tokens takes, if none of them looks at others; 0 for none. */
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

  /** Sizes of steps are multiples of this: half a tile, as some devices have a smaller step there. */
  get quantum(): number {
    return Math.max(CHUNK_MIN, this.#costs.tileTokens / 2);
  }

  /** The distance of sizes where they are compared more closely. */
  get fineQuantum(): number {
    return Math.max(CHUNK_MIN, this.quantum >> 1);
  }

  /** The size with one tile of prompt, or little less. */
  get smallestSize(): number {
    const { quantum } = this;
    const next = nextTile(this.#tokens, quantum);
    return (next - this.#tokens) * 2 < quantum ? next + quantum : next;
  }

  /** As much of a prompt with `left` tokens as brings the step to `size`, in whole tiles unless it is all. */
  fill(left: number, size: number): number {
    if (left <= size - this.#tokens) return left;
    return Math.max(0, tileTrim(size, this.#costs.tileTokens) - this.#tokens);
  }

  /** As much of a chunk as fits `limitMs`: `tokens`, or as many whole tiles less as it takes. */
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
