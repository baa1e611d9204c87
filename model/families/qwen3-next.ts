/**
 * Qwen3-Next (80B-A3B): three of four layers are gated DeltaNets, the others attention whose output a
 * projection gates. All layers have experts and a gated MLP beside them. Folders store norm weights less 1,
 * but for those of DeltaNets.
 */
import { type LayerShape, plainLayer, shapeLimits, type Traits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { mtpHead } from "./draft-heads.ts";
import { expertsOf, mixedLayers, sharedWidth } from "./experts.ts";
import type { Family, Source } from "./family.ts";
import { deltaGgufNames, deltaLayers, deltaNames, deltaStates } from "./recurrent.ts";

const queriesToGates = "linear_attn.in_proj_qkvz.weight";
const betasAndAlphas = "linear_attn.in_proj_ba.weight";

/** Layers, states and rope of Qwen3-Next and of Qwen 3.5, whose layers are `mixed` with experts or not. */
export function describeQwenNext(
  source: Source,
  tiledHeads: boolean,
  layers: readonly LayerShape[],
): Pick<Traits, "layers" | "ropes" | "states"> {
  if (source.activation("silu") !== "silu") {
    source.refuse(["hidden_act", null], "wanted: silu, in the convolutions too");
  }
  for (const name of ["attention_bias", "use_sliding_window"]) {
    if (source.flag([name, null], false))
      source.refuse([name, null], "is not supported with gated attention");
  }
  if (!source.flag(["attn_output_gate", null], true)) {
    source.refuse(["attn_output_gate", null], "attention without its gate is not supported");
  }
  const isDelta = deltaLayers(source);
  return {
    states: { ...deltaStates(source), tiledHeads },
    ropes: [source.rope()],
    layers: layers.map(
      (layer, index): LayerShape =>
        isDelta[index]
          ? { ...layer, mixer: "delta", rope: null, qkNorm: "none", gatedOutput: false }
          : { ...layer, qkNorm: "head", gatedOutput: true },
    ),
  };
}

/** Experts of Qwen3-Next and Qwen 3.5 with the MLP beside them, and the layers that have them. */
export function describeQwenMixture(source: Source): ReturnType<Family["describe"]> {
  const isNormalised = source.flag(["norm_topk_prob", "expert_weights_norm"], true);
  const step = source.integer(["decoder_sparse_step", null], 1, shapeLimits.layers, 1);
  const dense = source.indices(["mlp_only_layers", null]);
  const shared = sharedWidth(source, () =>
    source.integer(["shared_expert_intermediate_size", null], 1, shapeLimits.feedForward, 512),
  );
  return {
    experts: expertsOf(source, "num_experts", "moe_intermediate_size", {
      score: isNormalised ? "chosen" : "all",
    }),
    ropes: [],
    ...mixedLayers(
      source,
      { ...plainLayer, mlp: "sharedGated" },
      shared,
      (index) => !dense.includes(index) && (index + 1) % step === 0,
    ),
  };
}

export const qwen3Next: Family = {
  name: "qwen3_next",
  models: "Qwen3-Next-80B-A3B, Qwen3-Coder-Next",
  classes: ["Qwen3NextForCausalLM"],
  metadata: ["qwen3next"],
  normsOneLess: true,
  hasExperts: true,
  readsRouter: true,
  hasDraftLayers: true,
  draftHead: mtpHead,
  stateGroups: /\.(in_proj_qkvz|in_proj_ba|ssm_ba)\.weight$/,
  defaults: {
    head_dim: 256,
    partial_rotary_factor: 0.25,
    num_experts: 512,
    num_experts_per_tok: 10,
    moe_intermediate_size: 512,
  },
  folderNames: {
    ...deltaNames,
    [TensorKind.besideGate]: "mlp.shared_expert.gate_proj.weight",
    [TensorKind.besideUp]: "mlp.shared_expert.up_proj.weight",
    [TensorKind.besideDown]: "mlp.shared_expert.down_proj.weight",
    [TensorKind.sharedGate]: "mlp.shared_expert_gate.weight",
    [TensorKind.stateQ]: queriesToGates,
    [TensorKind.stateK]: queriesToGates,
    [TensorKind.stateV]: queriesToGates,
    [TensorKind.stateZ]: queriesToGates,
    [TensorKind.stateB]: betasAndAlphas,
    [TensorKind.stateA]: betasAndAlphas,
  },
  ggufNames: {
    ...deltaGgufNames,
    [TensorKind.stateB]: "ssm_ba.weight",
    [TensorKind.stateA]: "ssm_ba.weight",
  },
  describe(source) {
    const mixture = describeQwenMixture(source);
    return { ...mixture, ...describeQwenNext(source, false, mixture.layers) };
  },
};
