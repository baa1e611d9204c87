/**
 * Llama 2 and 3.x, and the many models of the same architecture: DeepSeek-R1's distils, Yi, SmolLM 2, Falcon
 * 3.
 */
import { plainLayer } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf } from "./family.ts";
import { patternNames } from "./windows.ts";

export const llama: Family = {
  name: "llama",
  models: "Llama 2 and 3.x, DeepSeek-R1-Distill-Llama, Yi 1.5, SmolLM 2, Falcon 3, Tülu 3",
  classes: ["LlamaForCausalLM"],
  metadata: ["llama"],
  kvHeadsOptional: true,
  pairedRows: { gguf: true },
  describe(source) {
    if (source.slidingLayers(() => false).includes(true)) {
      source.refuse(patternNames, "a llama model has the same attention in all layers");
    }
    const biases = biasesOf(source);
    return { ropes: [source.rope()], layers: layersOf(source.layers, () => ({ ...plainLayer, biases })) };
  },
};
