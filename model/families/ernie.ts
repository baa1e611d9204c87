/**
 * ERNIE 4.5 (text): Llama whose heads rotate in neighbouring pairs. Its mixtures choose experts by the softmax
 * of all logits with biases, and have shared experts and dense first layers.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf, mixedLayers, sharedWidth } from "./experts.ts";
import { type Family, layersOf, type Source } from "./family.ts";

const common = {
  defaults: { rope_theta: 500_000, rms_norm_eps: 1e-5, tie_word_embeddings: true },
  ignoresAutoMap: true,
  pairedRows: { folder: true, gguf: true },
} as const;

function layerOf(source: Source): LayerShape {
  const has = (tensor: string): boolean => source.bias("use_bias", tensor);
  const biases = {
    ...{ qkv: has("attn_q.bias"), o: has("attn_output.bias"), router: false },
    ...{ gateUp: has("ffn_gate.bias"), down: has("ffn_down.bias") },
  };
  return { ...plainLayer, biases };
}

export const ernie: Family = {
  ...common,
  name: "ernie4_5",
  models: "ERNIE 4.5 0.3B (dense)",
  classes: ["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
  metadata: ["ernie4_5"],
  kvHeadsOptional: true,
  describe: (source) => ({
    ropes: [source.rope()],
    layers: layersOf(source.layers, () => layerOf(source)),
  }),
};

export const ernieMoe: Family = {
  ...common,
  name: "ernie4_5_moe",
  models: "ERNIE 4.5 21B-A3B and 300B-A47B (text)",
  classes: ["Ernie4_5_MoeForCausalLM"],
  metadata: ["ernie4_5-moe"],
  hasExperts: true,
  readsRouter: true,
  folderNames: { [TensorKind.choiceBias]: "mlp.moe_statics.e_score_correction_bias" },
  describe(source) {
    const layer = layerOf(source);
    if (layer.biases.qkv) source.refuse(["use_bias", null], "biases are not supported beside experts");
    const experts = expertsOf(source, "moe_num_experts", "moe_intermediate_size", {
      used: "moe_k",
      score: "all",
      biased: true,
      normalised: true,
    });
    const { layers: count } = source;
    const shared = sharedWidth(
      source,
      () => experts.feedForward * source.integer(["moe_num_shared_experts", null], 0, shapeLimits.experts, 2),
    );
    const first = source.integer(["moe_layer_start_index", null], 0, count, 1);
    const last = source.integer(["moe_layer_end_index", null], -1, count, -1);
    const step = source.integer(["moe_layer_interval", null], 1, count, 1);
    return {
      experts,
      ropes: [source.rope()],
      ...mixedLayers(
        source,
        layer,
        shared,
        (index) => (index + 1) % step === 0 && index >= first && (last === -1 || index <= last),
      ),
    };
  },
};
