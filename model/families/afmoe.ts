/**
 * Arcee's Trinity: experts chosen by sigmoids beside a shared MLP, norms before and after each part, and a
 * projection that gates the attention's output. Layers with a sliding window rotate, the others do not.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf, mixedLayers, sharedWidth } from "./experts.ts";
import type { Family, Names } from "./family.ts";
import { allBut, windowsOf } from "./windows.ts";

export const afmoe: Family = {
  name: "afmoe",
  models: "Trinity Nano, Mini and Large",
  classes: ["AfmoeForCausalLM"],
  metadata: ["afmoe"],
  ignoresAutoMap: true,
  kvHeadsOptional: true,
  hasExperts: true,
  readsRouter: true,
  defaults: { head_dim: 128, rms_norm_eps: 1e-5, sliding_window: 1024 },
  folderNames: {
    [TensorKind.qGate]: "self_attn.gate_proj.weight",
    [TensorKind.attentionPostNorm]: "post_attention_layernorm.weight",
    [TensorKind.mlpNorm]: "pre_mlp_layernorm.weight",
    [TensorKind.mlpPostNorm]: "post_mlp_layernorm.weight",
    [TensorKind.router]: "mlp.router.gate.weight",
    [TensorKind.choiceBias]: "mlp.expert_bias",
  },
  ggufNames: { [TensorKind.qGate]: "attn_gate.weight" },
  describe(source) {
    const gating: Names = [null, "expert_gating_func"];
    if (source.integer(gating, 0, 3, 2) === 1) source.refuse(gating, "wanted: 2, for sigmoids");
    source.integer(["n_group", "expert_group_count"], 0, 1, 1);
    const experts = expertsOf(source, "num_experts", "moe_intermediate_size", {
      score: "sigmoid",
      biased: true,
      normalised: source.flag(["route_norm", "expert_weights_norm"], true),
      scale: source.number(["route_scale", "expert_weights_scale"], 0, 1e6, 1) || 1,
    });
    const shared = sharedWidth(
      source,
      () => experts.feedForward * source.integer(["num_shared_experts", null], 0, shapeLimits.experts, 2),
    );
    const dense = source.integer(["num_dense_layers", null], 0, source.layers, 1);
    const layer: LayerShape = { ...plainLayer, norms: "around", qkNorm: "head", gatedOutput: true };
    const mixture = mixedLayers(source, layer, shared, (index) => index >= dense);
    const period = source.integer(["global_attn_every_n_layers", null], 1, shapeLimits.layers, 4);
    const sliding = source.slidingLayers(allBut(period));
    const windows = windowsOf(source, allBut(period));
    // Files do not say whether embeddings are scaled; those of all published models are.
    const isScaled = source.flag(["mup_enabled", null], source.kind === "metadata");
    return {
      ...mixture,
      experts,
      embeddingScale: isScaled ? Math.sqrt(source.sizes.hidden) : 1,
      ropes: [source.rope()],
      layers: mixture.layers.map((own, index) => ({
        ...own,
        slidingWindow: windows[index]!,
        rope: sliding[index] ? 0 : null,
      })),
    };
  },
};
