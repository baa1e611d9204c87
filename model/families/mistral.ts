/**
 * Mistral 7B, Nemo and Small, Ministral 8B: Llama with a sliding window in all layers or in the listed ones.
 */
import { plainLayer } from "../shape.ts";
import type { Family } from "./family.ts";
import { toldWindows } from "./windows.ts";

export const mistral: Family = {
  name: "mistral",
  models: "Mistral 7B, Nemo, Small 2 to 3.2 (text), Ministral 8B",
  classes: ["MistralForCausalLM", "MinistralForCausalLM"],
  modelTypes: ["mistral", "ministral"],
  wrappers: ["Mistral3ForConditionalGeneration"],
  metadata: [],
  ggufAs: "llama",
  defaults: { sliding_window: 4096 },
  pairedRows: { gguf: true },
  describe(source) {
    const windows = toldWindows(source, () => true);
    return {
      ropes: [source.rope()],
      layers: windows.map((slidingWindow) => ({ ...plainLayer, slidingWindow })),
    };
  },
};
