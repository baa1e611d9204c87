/**
 * GLM-4 (dense, 0414): norms around attention and MLP; half of each head rotates, in neighbouring pairs;
 * biases on q, k, v.
 */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { type Family, layersOf } from "./family.ts";

const gateUp = "mlp.gate_up_proj.weight";

/** GLM-4-9B and GLM-Edge: GLM-4 with norms only before attention and MLP. */
export const glm: Family = {
  name: "glm",
  models: "GLM-4-9B (HF), GLM-Edge",
  classes: ["GlmForCausalLM"],
  metadata: [],
  defaults: { partial_rotary_factor: 0.5 },
  pairedRows: { folder: true },
  folderNames: { [TensorKind.gate]: gateUp, [TensorKind.up]: gateUp },
  describe(source) {
    const biases = { ...plainLayer.biases, qkv: source.bias("attention_bias", "attn_q.bias") };
    return { ropes: [source.rope()], layers: layersOf(source.layers, () => ({ ...plainLayer, biases })) };
  },
};

export const glm4: Family = {
  name: "glm4",
  models: "GLM-4-0414, GLM-Z1 (dense)",
  classes: ["Glm4ForCausalLM"],
  metadata: ["glm4"],
  defaults: { partial_rotary_factor: 0.5 },
  pairedRows: { folder: true, gguf: true },
  folderNames: {
    [TensorKind.attentionPostNorm]: "post_self_attn_layernorm.weight",
    [TensorKind.mlpPostNorm]: "post_mlp_layernorm.weight",
    [TensorKind.gate]: gateUp,
    [TensorKind.up]: gateUp,
  },
  ggufNames: { [TensorKind.gate]: "ffn_up.weight", [TensorKind.up]: "ffn_up.weight" },
  describe(source) {
    const biases = { ...plainLayer.biases, qkv: source.bias("attention_bias", "attn_q.bias") };
    return {
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, norms: "around", biases })),
    };
  },
};
