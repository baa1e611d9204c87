/**
 * Command R7B and Command A (Cohere 2). Attention and MLP run in parallel behind one norm, which subtracts
 * the mean. Sliding-window layers rotate neighbouring pairs; every fourth layer has full attention and no
 * rope. Logits are scaled.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import type { Family } from "./family.ts";
import { allBut, windowsOf } from "./windows.ts";

export const cohere2: Family = {
  name: "cohere2",
  models: "Command R7B, Command A",
  classes: ["Cohere2ForCausalLM"],
  metadata: ["cohere2"],
  defaults: { head_dim: 128, layer_norm_eps: 1e-5, sliding_window: 4096, tie_word_embeddings: true },
  epsilon: ["layer_norm_eps", "attention.layer_norm_epsilon"],
  kvHeadsOptional: true,
  ggufScales: ["logit_scale"],
  pairedRows: { folder: true, gguf: true },
  describe(source) {
    const period = source.integer(["sliding_window_pattern", null], 1, shapeLimits.layers, 4);
    const sliding = source.slidingLayers(allBut(period));
    const windows = windowsOf(source, allBut(period));
    const biases = { ...biasesOf(source), gateUp: false, down: false };
    return {
      norm: "layer",
      logitScale: source.number(["logit_scale", "logit_scale"], 1e-6, 1e6, 0.0625),
      ropes: [source.rope()],
      layers: windows.map((slidingWindow, index) => ({
        ...plainLayer,
        biases,
        parallel: true,
        slidingWindow,
        rope: sliding[index] ? 0 : null,
      })),
    };
  },
};
