/** Jais 2: Llama with LayerNorm, biases everywhere, and a squared ReLU. */
import type { Family } from "./family.ts";
import { describeReluSquared } from "./relu-squared.ts";

export const jais2: Family = {
  name: "jais2",
  models: "Jais 2 8B and 70B",
  classes: ["Jais2ForCausalLM"],
  metadata: ["jais2"],
  kvHeadsOptional: true,
  defaults: { layer_norm_eps: 1e-5, attention_bias: true, mlp_bias: true },
  epsilon: ["layer_norm_eps", "attention.layer_norm_epsilon"],
  describe: (source) => describeReluSquared(source, "biasedLayer"),
};
