/**
 * DeepSeek V2 and V3 and models of their shape: multi-head latent attention, routed and shared experts, dense
 * first layers. The first layer after the last (MTP) is a draft head.
 */
import { type Experts, shapeLimits } from "../shape.ts";
import { nextnHead } from "./draft-heads.ts";
import { expertsOf, mixedLayers, sharedWidth, sigmoidRouter } from "./experts.ts";
import { type Family, layersOf, type Names, type Source } from "./family.ts";
import { latentAttention, latentNames } from "./latent.ts";

/** Traits of all these families. */
export const mixtureFamily = {
  ...latentNames,
  isLatent: true,
  hasExperts: true,
  readsRouter: true,
  hasDraftLayers: true,
  draftHead: nextnHead,
  ignoresAutoMap: true,
  kvHeadsOptional: true,
  pairedRows: { folder: true, gguf: true },
} satisfies Partial<Family>;

export const deepseekV2: Family = {
  ...mixtureFamily,
  name: "deepseek_v2",
  models: "DeepSeek V2-Lite, Coder-V2-Lite",
  classes: ["DeepseekV2ForCausalLM"],
  metadata: [],
  ggufAs: "deepseek2",
  defaults: { first_k_dense_replace: 0, n_shared_experts: 2 },
  describe: (source) => latentMixture(source, softmaxExperts(source), sparseFrom(source, 0)),
};

export const deepseekV3: Family = {
  ...mixtureFamily,
  name: "deepseek_v3",
  models: "DeepSeek V3, V3.1, R1; Kimi K2; Moonlight, GigaChat 3, Kanana 2",
  classes: ["DeepseekV3ForCausalLM"],
  modelTypes: ["deepseek_v3", "kimi_k2"],
  metadata: ["deepseek2"],
  defaults: { n_group: 8, topk_group: 4, routed_scaling_factor: 2.5, first_k_dense_replace: 3 },
  describe(source) {
    if (source.kind === "metadata") return fromFile(source);
    wanted(source, "scoring_func", "sigmoid");
    wanted(source, "topk_method", "noaux_tc");
    return latentMixture(source, sigmoidExperts(source), sparseFrom(source, 3));
  },
};

export const glm4MoeLite: Family = {
  ...mixtureFamily,
  name: "glm4_moe_lite",
  models: "GLM-4.7-Flash",
  classes: ["Glm4MoeLiteForCausalLM"],
  metadata: [],
  ggufAs: "deepseek2",
  defaults: { rms_norm_eps: 1e-5, routed_scaling_factor: 1.8 },
  describe(source) {
    const kinds = source.texts(["mlp_layer_types", null]);
    const first = sparseFrom(source, 1);
    return latentMixture(source, sigmoidExperts(source), (index) =>
      kinds === null ? first(index) : kinds[index] === "sparse",
    );
  },
};

/** GGUF files have one architecture for all of these, and for models without experts (youtu.ts). */
function fromFile(source: Source): Described {
  if (source.integer([null, "expert_count"], 0, shapeLimits.experts, 0) === 0) {
    const { layer, ...attention } = latentAttention(source);
    return { ...attention, layers: layersOf(source.layers, () => layer) };
  }
  const gating: Names = [null, "expert_gating_func"];
  // Early files do not say how experts are chosen. Those of models with sigmoids have a bias for the choice.
  const first = source.rows("ffn_gate_inp.weight") === null ? null : firstSparse(source);
  const hasBias = first !== null && !source.lacks("", first, "exp_probs_b.bias");
  const isSigmoid = source.integer(gating, 1, 2, hasBias ? 2 : 1) === 2;
  return latentMixture(source, isSigmoid ? sigmoidExperts(source) : softmaxExperts(source), () => true);
}

type Described = ReturnType<Family["describe"]>;

/** Description of a model with latent attention and these experts. */
export function latentMixture(
  source: Source,
  experts: Experts,
  isSparse: (index: number) => boolean,
): Described {
  const { layer, ...attention } = latentAttention(source);
  const shared = sharedWidth(
    source,
    () => experts.feedForward * source.integer(["n_shared_experts", null], 0, shapeLimits.experts, 1),
  );
  return { experts, ...attention, ...mixedLayers(source, layer, shared, isSparse) };
}

/** Rule for which layers have experts: all from a configured index on, by default `usual`. */
export function sparseFrom(source: Source, usual: number): (index: number) => boolean {
  source.integer(["moe_layer_freq", null], 1, 1, 1);
  const first = source.integer(["first_k_dense_replace", null], 0, shapeLimits.layers, usual);
  return (index) => index >= first;
}

function firstSparse(source: Source): number {
  return Array.from({ length: source.layers }, (_, index) => index).find(
    (index) => !source.lacks("", index, "ffn_gate_inp.weight"),
  )!;
}

function sigmoidExperts(source: Source): Experts {
  return expertsOf(source, "n_routed_experts", "moe_intermediate_size", sigmoidRouter(source));
}

/** Experts weighted by their shares of the softmax over all logits. */
function softmaxExperts(source: Source): Experts {
  wanted(source, "topk_method", "greedy");
  wanted(source, "scoring_func", "softmax");
  const normalised: Names = ["norm_topk_prob", "expert_weights_norm"];
  const isNormalised = source.flag(normalised, false);
  if (isNormalised && source.kind === "config") source.refuse(normalised, "wanted: false");
  const groups: Names = [null, "expert_group_count"];
  if (source.integer(groups, 0, 64, 0) > 1)
    source.refuse(groups, "groups of experts need scores by sigmoids");
  return expertsOf(source, "n_routed_experts", "moe_intermediate_size", {
    score: "all",
    normalised: isNormalised,
    scale: source.number(["routed_scaling_factor", "expert_weights_scale"], 0, 1e6, 1) || 1,
  });
}

/** Refuses a field unless it has the one value that this family computes. */
function wanted(source: Source, field: string, value: string): void {
  const names: Names = [field, null];
  if (source.text(names, value) !== value) source.refuse(names, `wanted: "${value}"`);
}
