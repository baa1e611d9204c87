/** Nemotron 3 and 4, Minitron and Nemotron Mini: Llama with LayerNorm, a partial rope, and a squared ReLU. */
import type { Family } from "./family.ts";
import { describeReluSquared } from "./relu-squared.ts";

export const nemotron: Family = {
  name: "nemotron",
  models: "Nemotron Mini 4B, Minitron 4B and 8B, Nemotron 4",
  classes: ["NemotronForCausalLM"],
  metadata: ["nemotron"],
  kvHeadsOptional: true,
  normsOneLess: true,
  defaults: { norm_eps: 1e-5, partial_rotary_factor: 0.5 },
  epsilon: ["norm_eps", "attention.layer_norm_epsilon"],
  describe: (source) => describeReluSquared(source, "biasedLayer"),
};
