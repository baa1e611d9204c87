/** HyperCLOVA X SEED Think: Granite whose parts have norms after them, too, and whose logits are multiplied. */
import { TensorKind } from "../tensor-kinds.ts";
import type { Family } from "./family.ts";
import { granite } from "./granite.ts";

export const hyperclovax: Family = {
  ...granite,
  name: "hyperclovax",
  models: "HyperCLOVA X SEED Think 14B",
  classes: ["HyperCLOVAXForCausalLM"],
  metadata: [],
  ignoresAutoMap: true,
  folderNames: {
    [TensorKind.attentionPostNorm]: "post_norm1.weight",
    [TensorKind.mlpPostNorm]: "post_norm2.weight",
  },
  describe(source) {
    const { layers, ...traits } = granite.describe(source);
    const hasPostNorms = source.flag(["use_post_norm", null], true);
    const usualScale = source.sizes.headSize ** -0.5;
    return {
      ...traits,
      attentionScale: source.number(["attention_multiplier", null], 1e-6, 1e6, usualScale),
      logitScale: source.number(["logits_scaling", null], 1e-6, 1e6, 1),
      layers: layers.map((layer) => ({ ...layer, norms: hasPostNorms ? "around" : "before" })),
    };
  },
};
