/** OLMoE: Llama with norms over all heads of q and of k, and experts in place of MLPs. */
import { plainLayer } from "../shape.ts";
import { biasesOf } from "./biases.ts";
import { expertsOf } from "./experts.ts";
import { type Family, layersOf } from "./family.ts";

export const olmoe: Family = {
  name: "olmoe",
  models: "OLMoE 1B-7B",
  classes: ["OlmoeForCausalLM"],
  metadata: ["olmoe"],
  defaults: { rms_norm_eps: 1e-5 },
  kvHeadsOptional: true,
  hasExperts: true,
  describe(source) {
    if (source.has(["clip_qkv", "attention.clamp_kqv"])) {
      source.refuse(["clip_qkv", "attention.clamp_kqv"], "clipping of q, k and v is not supported");
    }
    const biases = biasesOf(source);
    const isNormalised = source.flag(["norm_topk_prob", null], false);
    return {
      experts: expertsOf(source, "num_experts", "intermediate_size", {
        score: isNormalised ? "chosen" : "all",
      }),
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, biases, mlp: "experts", qkNorm: "wide" })),
    };
  },
};
