/**
 * Qwen2's mixtures of experts (Qwen1.5-MoE-A2.7B, 57B-A14B): Qwen2 with experts, and beside them a shared MLP
 * that one more projection gates.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf, mixedLayers, sharedWidth } from "./experts.ts";
import type { Family } from "./family.ts";

export const qwen2Moe: Family = {
  name: "qwen2_moe",
  models: "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
  classes: ["Qwen2MoeForCausalLM"],
  metadata: ["qwen2moe"],
  defaults: { qkv_bias: true },
  hasExperts: true,
  readsRouter: true,
  folderNames: {
    [TensorKind.besideGate]: "mlp.shared_expert.gate_proj.weight",
    [TensorKind.besideUp]: "mlp.shared_expert.up_proj.weight",
    [TensorKind.besideDown]: "mlp.shared_expert.down_proj.weight",
    [TensorKind.sharedGate]: "mlp.shared_expert_gate.weight",
  },
  describe(source) {
    if (source.flag(["use_sliding_window", null], false)) {
      source.refuse(["use_sliding_window", null], "windows are not supported in a qwen2_moe model");
    }
    const isNormalised = source.flag(["norm_topk_prob", "expert_weights_norm"], false);
    const step = source.integer(["decoder_sparse_step", null], 1, shapeLimits.layers, 1);
    const dense = source.indices(["mlp_only_layers", null]);
    const shared = sharedWidth(source, () =>
      source.integer(["shared_expert_intermediate_size", null], 1, shapeLimits.feedForward),
    );
    const layer: LayerShape = {
      ...plainLayer,
      mlp: "sharedGated",
      biases: { ...plainLayer.biases, qkv: source.bias("qkv_bias", "attn_q.bias") },
    };
    return {
      experts: expertsOf(source, "num_experts", "moe_intermediate_size", {
        score: isNormalised ? "chosen" : "all",
      }),
      ropes: [source.rope()],
      ...mixedLayers(source, layer, shared, (index) => !dense.includes(index) && (index + 1) % step === 0),
    };
  },
};
