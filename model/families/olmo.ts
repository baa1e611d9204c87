/**
 * OLMo 2 and 3: norms after attention and MLP instead of before, and norms over all heads of q and of k. In
 * OLMo 3 three of four layers have a sliding window and a plain rope; only the other layers have the rope
 * that lengthens the context.
 */
import { type LayerShape, plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf, type Source } from "./family.ts";
import { allBut, windowOf, windowsOf } from "./windows.ts";

const folderNames = {
  [TensorKind.attentionPostNorm]: "post_attention_layernorm.weight",
  [TensorKind.mlpPostNorm]: "post_feedforward_layernorm.weight",
};

const layerOf = (source: Source): LayerShape => ({
  ...plainLayer,
  norms: "after",
  qkNorm: "wide",
  biases: biasesOf(source),
});

export const olmo2: Family = {
  name: "olmo2",
  models: "OLMo 2",
  classes: ["Olmo2ForCausalLM"],
  metadata: [],
  ggufAs: "olmo2", // an OLMo 3 without a window
  defaults: { rms_norm_eps: 1e-5 },
  kvHeadsOptional: true,
  folderNames,
  describe: (source) => ({ ropes: [source.rope()], layers: layersOf(source.layers, () => layerOf(source)) }),
};

export const olmo3: Family = {
  name: "olmo3",
  models: "OLMo 3",
  classes: ["Olmo3ForCausalLM"],
  metadata: ["olmo2"],
  defaults: { rms_norm_eps: 1e-5 },
  kvHeadsOptional: true,
  folderNames,
  describe(source) {
    const slides = source.kind === "config" || windowOf(source) > 0 ? allBut(4) : () => false;
    const sliding = source.slidingLayers(slides);
    const windows = windowsOf(source, slides);
    const layer = layerOf(source);
    const { dimensions, theta } = source.rope("sliding_attention");
    return {
      ropes: [source.rope("full_attention"), { kind: "plain", dimensions, theta }],
      layers: windows.map((slidingWindow, index) => ({
        ...layer,
        slidingWindow,
        rope: sliding[index] ? 1 : 0,
      })),
    };
  },
};
