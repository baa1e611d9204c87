/** Seed-OSS: Llama with biases on q, k and v, and a separate setting for the bias on o. */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf } from "./family.ts";

export const seedOss: Family = {
  name: "seed_oss",
  models: "Seed-OSS 36B",
  classes: ["SeedOssForCausalLM"],
  metadata: ["seed_oss"],
  defaults: { attention_bias: true, head_dim: 128 },
  // GGUF files name the norm before the MLP after the attention that precedes it.
  ggufNames: { [TensorKind.mlpNorm]: "post_attention_norm.weight" },
  describe(source) {
    const biases = { ...biasesOf(source), o: source.bias("attention_out_bias", "attn_output.bias") };
    return { ropes: [source.rope()], layers: layersOf(source.layers, () => ({ ...plainLayer, biases })) };
  },
};
