/** Seed-OSS: Llama with a bias on q, k and v, and one on o that is told apart. */
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
  // Files of metadata name the norm before the MLP by what it follows.
  ggufNames: { [TensorKind.mlpNorm]: "post_attention_norm.weight" },
  describe(source) {
    const biases = { ...biasesOf(source), o: source.bias("attention_out_bias", "attn_output.bias") };
    return { ropes: [source.rope()], layers: layersOf(source.layers, () => ({ ...plainLayer, biases })) };
  },
};
