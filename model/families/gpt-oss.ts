/** gpt-oss: experts with biases and a clamped SwiGLU, sinks in every head's softmax, and a window in every second layer. */
import { plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf } from "./experts.ts";
import type { Family } from "./family.ts";
import { allBut, windowsOf } from "./windows.ts";

const gateAndUp = "mlp.experts.gate_up_proj";

export const gptOss: Family = {
  name: "gpt_oss",
  models: "gpt-oss 20b and 120b",
  classes: ["GptOssForCausalLM"],
  metadata: ["gpt-oss"],
  defaults: {
    head_dim: 64,
    rope_theta: 150_000,
    rms_norm_eps: 1e-5,
    sliding_window: 128,
    attention_bias: true,
  },
  hasExperts: true,
  transposesExperts: "interleaved",
  folderNames: {
    [TensorKind.router]: "mlp.router.weight",
    [TensorKind.routerBias]: "mlp.router.bias",
  },
  expertNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "mlp.experts.down_proj",
    [TensorKind.gateBias]: `${gateAndUp}_bias`,
    [TensorKind.upBias]: `${gateAndUp}_bias`,
    [TensorKind.downBias]: "mlp.experts.down_proj_bias",
  },
  ggufNames: { [TensorKind.mlpNorm]: "post_attention_norm.weight" },
  describe(source) {
    const spellings = ["rope_scaling", "rope_parameters"];
    if (source.kind === "config" && !spellings.some((name) => source.has([name, null]))) {
      source.refuse(["rope_scaling", null], "wanted: how positions are rotated");
    }
    // The engines' clamped SwiGLU supports only these constants.
    source.number(["swiglu_limit", null], 7, 7, 7);
    source.number(["swiglu_alpha", null], 1.702, 1.702, 1.702);
    const isBiased = source.bias("attention_bias", "attn_q.bias");
    const biases = { qkv: isBiased, o: isBiased, gateUp: true, down: true, router: true };
    const rope = source.rope();
    // GGUF metadata cannot express that the blended range is not truncated.
    const isYarn = source.kind === "metadata" && rope.kind === "yarn";
    return {
      activation: "clampedSwiglu",
      experts: expertsOf(source, "num_local_experts", "intermediate_size", {}),
      ropes: [isYarn ? { ...rope, truncate: false } : rope],
      layers: windowsOf(source, allBut(2)).map((slidingWindow) => ({
        ...plainLayer,
        biases,
        mlp: "experts",
        sinks: true,
        slidingWindow,
      })),
    };
  },
};
