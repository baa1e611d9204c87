/** Command R and Aya: Cohere 2 without windows, whose layers all rotate. */
import { shapeLimits } from "../shape.ts";
import { cohere2 } from "./cohere2.ts";
import type { Family, Names } from "./family.ts";

const perHead: Names = ["use_qk_norm", null];

export const cohere: Family = {
  ...cohere2,
  name: "cohere",
  models: "Command R 35B, Aya 23 and Expanse",
  classes: ["CohereForCausalLM"],
  metadata: ["command-r"],
  defaults: { layer_norm_eps: 1e-5, rope_theta: 500_000, tie_word_embeddings: true },
  describe(source) {
    const hasNorms =
      source.kind === "config" ? source.flag(perHead, false) : !source.lacks("", 0, "attn_q_norm.weight");
    if (hasNorms) source.refuse(perHead, "norms of q and k with weights for each head are not supported");
    const { layers, ...traits } = cohere2.describe(source);
    return {
      ...traits,
      // Command R was trained on longer texts than its max_position_embeddings says.
      contextMax: source.integer(
        ["model_max_length", null],
        1,
        shapeLimits.contextMax,
        source.sizes.contextMax,
      ),
      layers: layers.map((layer) => ({ ...layer, slidingWindow: 0, rope: 0 })),
    };
  },
};
