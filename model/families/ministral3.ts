/**
 * Ministral 3 and later Mistral models: Llama with yarn and queries scaled by the logarithm of their
 * position.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import type { Family } from "./family.ts";
import { toldWindows } from "./windows.ts";

export const ministral3: Family = {
  name: "ministral3",
  models: "Ministral 3 (text)",
  classes: ["Ministral3ForCausalLM"],
  wrappers: ["Mistral3ForConditionalGeneration"],
  metadata: ["mistral3"],
  defaults: { head_dim: 128, rope_theta: 1e6 },
  pairedRows: { gguf: true },
  describe(source) {
    const rope = source.rope();
    const growth = source.number(["llama_4_scaling_beta", "attention.temperature_scale"], 0, 10, 0);
    const trained = rope.kind === "yarn" ? rope.originalContext : source.sizes.contextMax;
    const span = source.integer([null, "attention.temperature_length"], 1, shapeLimits.contextMax, trained);
    return {
      ropes: [growth > 0 ? { ...rope, queries: { growth, span } } : rope],
      layers: toldWindows(source, () => true).map((slidingWindow) => ({ ...plainLayer, slidingWindow })),
    };
  },
};
