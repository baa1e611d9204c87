/**
 * Mistral Small 4: DeepSeek's latent attention with queries scaled by the logarithm of their position;
 * experts weighted by the softmax of all logits, beside shared ones.
 */
import { shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { latentMixture, mixtureFamily, sparseFrom } from "./deepseek.ts";
import { expertsOf } from "./experts.ts";
import type { Family } from "./family.ts";

const gateAndUp = "mlp.experts.gate_up_proj";

export const mistral4: Family = {
  ...mixtureFamily,
  name: "mistral4",
  models: "Mistral Small 4 (text)",
  classes: ["Mistral4ForCausalLM"],
  wrappers: ["Mistral3ForConditionalGeneration"],
  metadata: ["mistral4"],
  expertNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "mlp.experts.down_proj",
  },
  ggufExpertNames: {
    [TensorKind.gate]: "ffn_gate_up_exps.weight",
    [TensorKind.up]: "ffn_gate_up_exps.weight",
    [TensorKind.down]: "ffn_down_exps.weight",
  },
  describe(source) {
    const groups = source.integer(["n_group", "expert_group_count"], 0, 64, 1) || 1;
    const experts = expertsOf(source, "n_routed_experts", "moe_intermediate_size", {
      score: "all",
      normalised: source.flag(["norm_topk_prob", "expert_weights_norm"], true),
      groups,
      groupsUsed: source.integer(["topk_group", "expert_group_used_count"], 0, groups, 1) || 1,
      scale: source.number(["routed_scaling_factor", "expert_weights_scale"], 0, 1e6, 1) || 1,
    });
    const described = latentMixture(source, experts, sparseFrom(source, 0));
    const [rope] = described.ropes;
    const growth = source.number(["llama_4_scaling_beta", "attention.temperature_scale"], 0, 10, 0);
    const trained = rope!.kind === "yarn" ? rope!.originalContext : source.sizes.contextMax;
    const span = source.integer([null, "attention.temperature_length"], 1, shapeLimits.contextMax, trained);
    return { ...described, ropes: [growth > 0 ? { ...rope!, queries: { growth, span } } : rope!] };
  },
};
