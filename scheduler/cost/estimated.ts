import type { EngineCosts, StepShape } from "./cost-model.ts";

/** What is believed of an engine's costs away from the engine: what the engine told last of what it has learnt. */
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

  /** Forgets what was believed before. */
  take(model: EngineCosts): void {
    this.#model = model;
  }

  stepMs(shape: StepShape): number {
    return this.#model.stepMs(shape);
  }
}
