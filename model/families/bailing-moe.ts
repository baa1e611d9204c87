/**
 * Ling and Ring 2 (Bailing-MoE v2): experts in groups, chosen by sigmoids with biases; shared experts, dense
 * first layers, norms of the heads of q and k. Half of each head rotates.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf, mixedLayers, sharedWidth, sigmoidRouter } from "./experts.ts";
import type { Family, Names } from "./family.ts";

const qkv = "attention.query_key_value.weight";
const qkvInFile = "attn_qkv.weight";

export const bailingMoe: Family = {
  name: "bailing_moe",
  models: "Ling and Ring 2.0: mini, flash, 1T",
  classes: ["BailingMoeV2ForCausalLM"],
  modelTypes: ["bailing_moe", "bailing_moe_v2"],
  metadata: ["bailingmoe2"],
  defaults: { partial_rotary_factor: 0.5, norm_topk_prob: true },
  ignoresAutoMap: true,
  hasExperts: true,
  readsRouter: true,
  hasDraftLayers: true,
  folderNames: {
    [TensorKind.embed]: "model.word_embeddings.weight",
    [TensorKind.q]: qkv,
    [TensorKind.k]: qkv,
    [TensorKind.v]: qkv,
    [TensorKind.o]: "attention.dense.weight",
    [TensorKind.qNorm]: "attention.query_layernorm.weight",
    [TensorKind.kNorm]: "attention.key_layernorm.weight",
    [TensorKind.choiceBias]: "mlp.gate.expert_bias",
  },
  ggufNames: { [TensorKind.q]: qkvInFile, [TensorKind.k]: qkvInFile, [TensorKind.v]: qkvInFile },
  describe(source) {
    const wanted = (field: string, value: boolean, usual: boolean): void => {
      const names: Names = [field, null];
      if (source.flag(names, usual) !== value) source.refuse(names, `wanted: ${value}`);
    };
    wanted("use_qk_norm", true, true);
    wanted("use_bias", false, false);
    wanted("use_qkv_bias", false, false);
    wanted("moe_router_enable_expert_bias", true, true);
    const score: Names = ["score_function", null];
    if (source.text(score, "sigmoid") !== "sigmoid") source.refuse(score, 'wanted: "sigmoid"');
    const experts = expertsOf(source, "num_experts", "moe_intermediate_size", sigmoidRouter(source));
    const shared = sharedWidth(source, () => {
      const count = source.integer(["num_shared_experts", null], 0, shapeLimits.experts, 1);
      const own: Names = ["moe_shared_expert_intermediate_size", null];
      return source.integer(own, 1, shapeLimits.feedForward, experts.feedForward) * count;
    });
    const first = source.integer(["first_k_dense_replace", null], 0, source.layers, 0);
    const layer: LayerShape = { ...plainLayer, qkNorm: "head" };
    return {
      experts,
      ropes: [source.rope()],
      ...mixedLayers(source, layer, shared, (index) => index >= first),
    };
  },
};
