/**
 * EXAONE 4: norms after attention and MLP, and of the heads of q and k. If some layers have a sliding window,
 * the others do not rotate.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import type { Family } from "./family.ts";
import { allBut, patternNames, windowOf, windowsOf } from "./windows.ts";

export const exaone4: Family = {
  name: "exaone4",
  models: "EXAONE 4.0 1.2B and 32B",
  classes: ["Exaone4ForCausalLM"],
  metadata: ["exaone4"],
  defaults: { rms_norm_eps: 1e-5 },
  folderNames: {
    [TensorKind.attentionPostNorm]: "post_attention_layernorm.weight",
    [TensorKind.mlpPostNorm]: "post_feedforward_layernorm.weight",
  },
  describe(source) {
    const isHybrid = windowOf(source) > 0;
    const period =
      source.has(patternNames) || !isHybrid
        ? 4
        : source.integer(["sliding_window_pattern", null], 1, shapeLimits.layers, 4);
    const usual = isHybrid ? allBut(period) : () => false;
    const sliding = source.slidingLayers(usual);
    return {
      ropes: [source.rope()],
      layers: windowsOf(source, usual).map((slidingWindow, index) => ({
        ...plainLayer,
        norms: "after",
        qkNorm: "head",
        rope: isHybrid && !sliding[index] ? null : 0,
        slidingWindow,
      })),
    };
  },
};
