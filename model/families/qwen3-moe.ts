/**
 * Qwen3's mixtures of experts (30B-A3B, 235B-A22B, Coder): Qwen3 with experts in place of MLPs, except in
 * listed layers.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { expertsOf } from "./experts.ts";
import { type Family, layersOf } from "./family.ts";

export const qwen3Moe: Family = {
  name: "qwen3_moe",
  models: "Qwen 3 30B-A3B and 235B-A22B, Qwen3-Coder",
  classes: ["Qwen3MoeForCausalLM"],
  metadata: ["qwen3moe"],
  hasExperts: true,
  describe(source) {
    if (source.flag(["use_sliding_window", null], false)) {
      source.refuse(["use_sliding_window", null], "windows are not supported in a qwen3_moe model");
    }
    const isNormalised = source.flag(["norm_topk_prob", null], source.kind === "metadata");
    const step = source.integer(["decoder_sparse_step", null], 1, shapeLimits.layers, 1);
    const dense = source.indices(["mlp_only_layers", null]);
    const layer: LayerShape = { ...plainLayer, biases: biasesOf(source), qkNorm: "head" };
    return {
      experts: expertsOf(source, "num_experts", "moe_intermediate_size", {
        score: isNormalised ? "chosen" : "all",
      }),
      ropes: [source.rope()],
      layers: layersOf(source.layers, (index) => ({
        ...layer,
        mlp: dense.includes(index) || (index + 1) % step !== 0 ? "gated" : "experts",
      })),
    };
  },
};
