/** Granite 3 (dense): Llama with scales for embedding, scores, residuals and logits. */
import { plainLayer } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf } from "./family.ts";

const [least, most] = [1e-6, 1e6];

export const granite: Family = {
  name: "granite",
  models: "Granite 3.x (dense)",
  classes: ["GraniteForCausalLM"],
  metadata: ["granite"],
  kvHeadsOptional: true,
  pairedRows: { gguf: true },
  // Files of dense models may have the width of shared experts, which no layer has.
  readsRouter: true,
  ggufScales: ["embedding_scale", "attention.scale", "residual_scale", "logit_scale"],
  describe(source) {
    const biases = biasesOf(source);
    const rotates = source.flag([null, "rope.scaling.finetuned"], true);
    return {
      embeddingScale: source.number(["embedding_multiplier", "embedding_scale"], least, most, 1),
      attentionScale: source.number(["attention_multiplier", "attention.scale"], least, most, 1),
      residualScale: source.number(["residual_multiplier", "residual_scale"], least, most, 1),
      logitScale: 1 / source.number(["logits_scaling", "logit_scale"], least, most, 1),
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, biases, rope: rotates ? 0 : null })),
    };
  },
};
