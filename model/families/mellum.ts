/** JetBrains' Mellum 2: Qwen 3's mixture of experts, with a sliding window and a rope of its own in some layers. */
import { plainLayer } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { expertsOf, mixedLayers } from "./experts.ts";
import type { Family, Names } from "./family.ts";
import { allBut, windowsOf } from "./windows.ts";

const layerTypes: Names = ["mlp_layer_types", null];

export const mellum: Family = {
  name: "mellum",
  models: "Mellum 2 12B-A2.5B",
  classes: ["MellumForCausalLM"],
  metadata: ["mellum"],
  hasExperts: true,
  hasDraftLayers: true,
  defaults: {
    rope_parameters: {
      full_attention: { rope_type: "default", rope_theta: 500_000 },
      sliding_attention: { rope_type: "default", rope_theta: 10_000 },
    },
  },
  describe(source) {
    const usual = source.kind === "metadata" ? allBut(4) : () => false;
    const sliding = source.slidingLayers(usual);
    const windows = windowsOf(source, usual);
    const kinds = source.texts(layerTypes);
    if (kinds !== null && !kinds.every((kind) => kind === "dense" || kind === "sparse")) {
      source.refuse(layerTypes, 'wanted for each layer: "dense" or "sparse"');
    }
    const isNormalised = source.flag(["norm_topk_prob", null], true);
    const layer = { ...plainLayer, qkNorm: "head", biases: biasesOf(source) } as const;
    const ownTheta = source.has([null, "rope.freq_base_swa"]) ? "rope.freq_base_swa" : "rope.freq_base";
    const mixture = mixedLayers(source, layer, 0, (index) => kinds?.[index] !== "dense");
    return {
      ...mixture,
      experts: expertsOf(source, "num_experts", "moe_intermediate_size", {
        score: isNormalised ? "chosen" : "all",
      }),
      ropes: [source.rope("full_attention"), source.rope("sliding_attention", [null, ownTheta])],
      layers: mixture.layers.map((own, index) => ({
        ...own,
        slidingWindow: windows[index]!,
        rope: sliding[index] ? 1 : 0,
      })),
    };
  },
};
