/** Youtu-LLM: DeepSeek's latent attention in a dense model. */
import { type Family, layersOf } from "./family.ts";
import { latentAttention, latentNames } from "./latent.ts";

export const youtu: Family = {
  ...latentNames,
  name: "youtu",
  models: "Youtu-LLM 2B",
  classes: ["YoutuForCausalLM"],
  modelTypes: ["youtu", "youtu_llm"],
  metadata: [],
  ggufAs: "deepseek2",
  isLatent: true,
  ignoresAutoMap: true,
  kvHeadsOptional: true,
  pairedRows: { folder: true, gguf: true },
  defaults: { tie_word_embeddings: true },
  describe(source) {
    const { layer, ...attention } = latentAttention(source);
    return { ...attention, layers: layersOf(source.layers, () => layer) };
  },
};
