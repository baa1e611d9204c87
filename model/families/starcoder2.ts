/**
 * StarCoder 2: Llama with norms that subtract the mean, an MLP without a gate, biases everywhere, and a window
 * in all layers.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { type Family, layersOf } from "./family.ts";

/** Window of all published models, which GGUF files do not have. */
const publishedWindow = 4096;

export const starcoder2: Family = {
  name: "starcoder2",
  models: "StarCoder 2 3B, 7B, 15B",
  classes: ["Starcoder2ForCausalLM"],
  metadata: ["starcoder2"],
  defaults: {
    use_bias: true,
    norm_epsilon: 1e-5,
    tie_word_embeddings: true,
    hidden_act: "gelu_pytorch_tanh",
  },
  epsilon: ["norm_epsilon", "attention.layer_norm_epsilon"],
  folderNames: {
    [TensorKind.up]: "mlp.c_fc.weight",
    [TensorKind.upBias]: "mlp.c_fc.bias",
    [TensorKind.down]: "mlp.c_proj.weight",
    [TensorKind.downBias]: "mlp.c_proj.bias",
  },
  describe(source) {
    const window = source.integer(
      ["sliding_window", "attention.sliding_window"],
      0,
      shapeLimits.contextMax,
      source.kind === "metadata" && source.sizes.contextMax > publishedWindow ? publishedWindow : 0,
    );
    const has = source.bias("use_bias", "attn_q.bias");
    const biases = { qkv: has, o: has, gateUp: has, down: has, router: false };
    return {
      norm: "biasedLayer",
      activation: source.activation("geluTanh"),
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, mlp: "plain", biases, slidingWindow: window })),
    };
  },
};
