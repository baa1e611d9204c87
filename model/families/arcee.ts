/** Arcee's AFM: Llama with an MLP without a gate, whose activation is a squared ReLU. */
import { plainLayer } from "../shape.ts";
import { biasesWithoutGate } from "./biases.ts";
import { type Family, layersOf } from "./family.ts";

export const arcee: Family = {
  name: "arcee",
  models: "AFM 4.5B",
  classes: ["ArceeForCausalLM"],
  metadata: ["arcee"],
  kvHeadsOptional: true,
  defaults: { rms_norm_eps: 1e-5 },
  pairedRows: { gguf: true },
  describe(source) {
    if (source.text(["hidden_act", null], "relu2") !== "relu2") {
      source.refuse(["hidden_act", null], "wanted: relu2");
    }
    const biases = biasesWithoutGate(source);
    return {
      activation: "reluSquared",
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, mlp: "plain", biases })),
    };
  },
};
