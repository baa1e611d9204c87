import type { EngineCosts, StepShape } from "./cost-model.ts";

/** Costs of an engine as known outside of it: the last model that the engine reported. */
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
