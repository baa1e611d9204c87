/**
 * Jais 2: Llama with norms that subtract the mean, biases everywhere, and an MLP without a gate whose activation
 * is a squared ReLU.
 */
import { plainLayer } from "../shape.ts";
import { biasesWithoutGate } from "./biases.ts";
import { type Family, layersOf } from "./family.ts";

export const jais2: Family = {
  name: "jais2",
  models: "Jais 2 8B and 70B",
  classes: ["Jais2ForCausalLM"],
  metadata: ["jais2"],
  kvHeadsOptional: true,
  defaults: { layer_norm_eps: 1e-5, attention_bias: true, mlp_bias: true },
  epsilon: ["layer_norm_eps", "attention.layer_norm_epsilon"],
  describe(source) {
    if (source.text(["hidden_act", null], "relu2") !== "relu2") {
      source.refuse(["hidden_act", null], "wanted: relu2");
    }
    const biases = biasesWithoutGate(source);
    return {
      norm: "biasedLayer",
      activation: "reluSquared",
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, mlp: "plain", biases })),
    };
  },
};
