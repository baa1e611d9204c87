/** SmolLM3: Llama without rope in every fourth layer. */
import { plainLayer } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import type { Family } from "./family.ts";
import { allBut, windowsOf } from "./windows.ts";

export const smollm3: Family = {
  name: "smollm3",
  models: "SmolLM 3",
  classes: ["SmolLM3ForCausalLM"],
  metadata: ["smollm3"],
  defaults: { rope_theta: 2e6, tie_word_embeddings: true },
  kvHeadsOptional: true,
  pairedRows: { gguf: true },
  describe(source) {
    const biases = biasesOf(source);
    const usesWindows = source.kind === "config" && source.flag(["use_sliding_window", null], false);
    const interval = source.integer(
      ["no_rope_layer_interval", null],
      1,
      source.layers,
      Math.min(4, source.layers),
    );
    const rotated = source.perLayer(["no_rope_layers", null]); // 1: rotated
    const rotates = (index: number): boolean => (rotated ? rotated[index] === 1 : allBut(interval)(index));
    const windows = windowsOf(source, (index) => usesWindows && !rotates(index));
    return {
      ropes: [source.rope()],
      layers: windows.map((window, index) => ({
        ...plainLayer,
        biases,
        rope: rotates(index) ? 0 : null,
        slidingWindow: usesWindows ? window : 0,
      })),
    };
  },
};
