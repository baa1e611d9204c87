/**
 * MiniMax M2: experts chosen by sigmoids with biases, norms over all heads of q and of k, and a rope for a
 * part of each head.
 */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf } from "./experts.ts";
import { type Family, layersOf, type Names } from "./family.ts";

const experts = "block_sparse_moe";

export const minimaxM2: Family = {
  name: "minimax_m2",
  models: "MiniMax M2 and M2.1",
  classes: ["MiniMaxM2ForCausalLM"],
  metadata: ["minimax-m2"],
  ignoresAutoMap: true,
  defaults: { head_dim: 128, rope_theta: 5e6 },
  hasExperts: true,
  readsRouter: true,
  folderNames: {
    [TensorKind.router]: `${experts}.gate.weight`,
    [TensorKind.choiceBias]: `${experts}.e_score_correction_bias`,
  },
  expertNames: {
    [TensorKind.gate]: `${experts}.experts.{}.w1.weight`,
    [TensorKind.up]: `${experts}.experts.{}.w3.weight`,
    [TensorKind.down]: `${experts}.experts.{}.w2.weight`,
  },
  describe(source) {
    const textual = (field: string, value: string): void => {
      const names: Names = [field, null];
      if (source.text(names, value) !== value) source.refuse(names, `wanted: ${JSON.stringify(value)}`);
    };
    textual("scoring_func", "sigmoid");
    textual("qk_norm_type", "per_layer");
    const shared: Names = ["shared_intermediate_size", "expert_shared_feed_forward_length"];
    if (source.integer(shared, 0, 1 << 20, 0) > 0) source.refuse(shared, "shared experts are not supported");
    const rope = source.rope();
    const dimensions = source.integer(["rotary_dim", null], 2, source.sizes.headSize, rope.dimensions);
    if (dimensions % 2 !== 0) source.refuse(["rotary_dim", null], "wanted: an even number");
    return {
      experts: expertsOf(source, "num_local_experts", "intermediate_size", {
        score: "sigmoid",
        biased: true,
        normalised: true,
      }),
      ropes: [{ ...rope, dimensions }],
      layers: layersOf(source.layers, () => ({ ...plainLayer, mlp: "experts", qkNorm: "wide" })),
    };
  },
};
