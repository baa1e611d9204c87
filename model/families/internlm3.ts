/** InternLM 3: Llama with its own names of bias fields. */
import { plainLayer } from "../shape.ts";
import { type Family, layersOf } from "./family.ts";

export const internlm3: Family = {
  name: "internlm3",
  models: "InternLM 3",
  classes: ["InternLM3ForCausalLM"],
  ignoresAutoMap: true,
  metadata: [],
  ggufAs: "llama",
  defaults: { head_dim: 128 },
  pairedRows: { gguf: true },
  describe(source) {
    const hasBias = source.flag(["bias", null], false) || source.flag(["attention_bias", null], false);
    const biases = {
      ...plainLayer.biases,
      qkv: hasBias || source.flag(["qkv_bias", null], false),
      o: hasBias,
      gateUp: source.flag(["bias", null], false) || source.flag(["mlp_bias", null], false),
      down: source.flag(["bias", null], false) || source.flag(["mlp_bias", null], false),
    };
    return { ropes: [source.rope()], layers: layersOf(source.layers, () => ({ ...plainLayer, biases })) };
  },
};
