import type { GenerationDefaults } from "../../gpu/model/config.ts";

/** What parsing needs to know of the served model. */
export interface ServedModel {
  /** Names it answers to; the first is its id. */
  readonly names: readonly string[];
  readonly contextMax: number;
  readonly vocabSize: number;
  readonly generationDefaults: GenerationDefaults;
}
