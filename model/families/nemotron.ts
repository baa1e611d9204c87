/**
 * Nemotron 3 and 4, Minitron and Nemotron Mini: Llama with norms that subtract the mean, an MLP without a gate
 * whose activation is a squared ReLU, and a part of each head rotated.
 */
import { plainLayer } from "../shape.ts";
import { biasesWithoutGate } from "./biases.ts";
import { type Family, layersOf } from "./family.ts";

export const nemotron: Family = {
  name: "nemotron",
  models: "Nemotron Mini 4B, Minitron 4B and 8B, Nemotron 4",
  classes: ["NemotronForCausalLM"],
  metadata: ["nemotron"],
  kvHeadsOptional: true,
  normsOneLess: true,
  defaults: { norm_eps: 1e-5, partial_rotary_factor: 0.5 },
  epsilon: ["norm_eps", "attention.layer_norm_epsilon"],
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
