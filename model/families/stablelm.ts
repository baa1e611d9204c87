/** StableLM 2 and 3B: Llama with LayerNorm, and a rope on a quarter of each head. */
import { plainLayer } from "../shape.ts";
import { type Family, layersOf, type Names } from "./family.ts";

const perHead: Names = ["qk_layernorm", null];
const parallel: Names = ["use_parallel_residual", null];

export const stablelm: Family = {
  name: "stablelm",
  models: "StableLM 2 1.6B, StableLM and StableCode 3B",
  classes: ["StableLmForCausalLM"],
  metadata: ["stablelm"],
  kvHeadsOptional: true,
  defaults: { layer_norm_eps: 1e-5, partial_rotary_factor: 0.25 },
  epsilon: ["layer_norm_eps", "attention.layer_norm_epsilon"],
  describe(source) {
    const isFile = source.kind === "metadata";
    if (isFile ? !source.lacks("", 0, "attn_q_norm.weight") : source.flag(perHead, false))
      source.refuse(perHead, "norms of q and k with weights for each head are not supported");
    if (isFile ? source.lacks("", 0, "ffn_norm.weight") : source.flag(parallel, false))
      source.refuse(parallel, "an MLP beside the attention is not supported in this family");
    const biases = { ...plainLayer.biases, qkv: source.bias("use_qkv_bias", "attn_q.bias") };
    return {
      norm: "biasedLayer",
      activation: source.activation("silu"),
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, biases })),
    };
  },
};
