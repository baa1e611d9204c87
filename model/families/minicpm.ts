/** MiniCPM 1, 2 and 4: Llama with scales for embedding, residuals and logits. */
import { plainLayer, shapeLimits } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf, type Names, type Source } from "./family.ts";

const [least, most] = [1e-6, 1e6];

export const minicpm: Family = {
  name: "minicpm",
  models: "MiniCPM 1B and 2B, MiniCPM 4 and 4.1 0.5B and 8B",
  classes: ["MiniCPMForCausalLM"],
  metadata: ["minicpm"],
  ignoresAutoMap: true,
  kvHeadsOptional: true,
  ggufScales: ["embedding_scale", "residual_scale", "logit_scale"],
  pairedRows: { gguf: true },
  defaults: { tie_word_embeddings: true },
  describe(source) {
    const biases = biasesOf(source);
    return {
      ...(source.kind === "config" ? fromConfig(source) : fromFile(source)),
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, biases })),
    };
  },
};

function fromConfig(source: Source) {
  const sparse: Names = ["sparse_config", null];
  if (source.has(sparse))
    source.refuse(sparse, "sparse attention is not supported; without the field it is dense");
  return {
    embeddingScale: source.number(["scale_emb", null], least, most),
    residualScale: source.number(["scale_depth", null], least, most) / Math.sqrt(source.layers),
    logitScale: source.integer(["dim_model_base", null], 1, shapeLimits.hidden) / source.sizes.hidden,
  };
}

function fromFile(source: Source) {
  return {
    embeddingScale: source.number([null, "embedding_scale"], least, most),
    residualScale: source.number([null, "residual_scale"], least, most),
    logitScale: 1 / source.number([null, "logit_scale"], least, most),
  };
}
