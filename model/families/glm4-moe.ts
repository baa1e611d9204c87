/**
 * GLM-4.5, 4.5-Air, 4.6 and 4.7: experts chosen by sigmoids with biases, shared experts, and dense first
 * layers. Half of each head is rotated. A last layer that predicts a second token (MTP) is a draft head.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { nextnHead } from "./draft-heads.ts";
import { expertsOf, mixedLayers, sharedWidth, sigmoidRouter } from "./experts.ts";
import type { Family } from "./family.ts";

export const glm4Moe: Family = {
  name: "glm4_moe",
  models: "GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7",
  classes: ["Glm4MoeForCausalLM"],
  metadata: ["glm4moe"],
  defaults: { partial_rotary_factor: 0.5, rms_norm_eps: 1e-5, norm_topk_prob: true },
  hasExperts: true,
  readsRouter: true,
  hasDraftLayers: true,
  draftHead: nextnHead,
  ggufNames: { [TensorKind.mlpNorm]: "post_attention_norm.weight" },
  describe(source) {
    const experts = expertsOf(source, "n_routed_experts", "moe_intermediate_size", sigmoidRouter(source));
    const shared = sharedWidth(
      source,
      () => experts.feedForward * source.integer(["n_shared_experts", null], 0, shapeLimits.experts, 1),
    );
    const first = source.integer(["first_k_dense_replace", null], 0, source.layers, 1);
    const hasNorms =
      source.kind === "config"
        ? source.flag(["use_qk_norm", null], false)
        : !source.lacks("", 0, "attn_q_norm.weight");
    const layer: LayerShape = {
      ...plainLayer,
      qkNorm: hasNorms ? "head" : "none",
      biases: { ...plainLayer.biases, qkv: source.bias("attention_bias", "attn_q.bias") },
    };
    return {
      experts,
      ropes: [source.rope()],
      ...mixedLayers(source, layer, shared, (index) => index >= first),
    };
  },
};
