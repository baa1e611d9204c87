import type { GenerationDefaults } from "../../model/config.ts";
import type { ServedModel } from "../../server/request/served-model.ts";

/** Defaults of a model that sets none. */
export const noDefaults: GenerationDefaults = {
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  repetitionPenalty: null,
};

/** Makes the facts of a model named demo, for parsers of requests. */
export function servedDemo(changes: Partial<ServedModel> = {}): ServedModel {
  const model = { names: ["demo"], contextMax: 100, vocabSize: 1000, tokensOf: () => [] };
  return { ...model, generationDefaults: noDefaults, ...changes };
}
