/**
 * Nemotron-H, Nemotron Nano 2 and Nemotron 3 Nano: each layer is one part with one norm, Mamba-2, attention
 * without rotation, an MLP, or experts with an MLP beside them. MLPs and experts have a squared ReLU and no
 * gate.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf, sharedWidth, sigmoidRouter } from "./experts.ts";
import { type Family, layersOf, type Names, type Source } from "./family.ts";
import { type MambaFields, mambaGgufNames, mambaNames, mambaStates } from "./mamba.ts";

type Part = "mamba" | "attention" | "mlp" | "moe";

const mambaFields: MambaFields = {
  heads: "mamba_num_heads",
  headSize: "mamba_head_dim",
  groups: "n_groups",
  stateSize: "ssm_state_size",
  conv: "conv_kernel",
  convBias: "use_conv_bias",
  projectionBiases: ["use_bias", "mamba_proj_bias"],
};

const letters: Readonly<Record<string, Part>> = { M: "mamba", "*": "attention", "-": "mlp", E: "moe" };
const words: Readonly<Record<string, Part>> = {
  mamba: "mamba",
  linear_attention: "mamba",
  attention: "attention",
  full_attention: "attention",
  mlp: "mlp",
  moe: "moe",
};

export const nemotronH: Family = {
  name: "nemotron_h",
  models: "Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano",
  classes: ["NemotronHForCausalLM"],
  ignoresAutoMap: true,
  metadata: ["nemotron_h", "nemotron_h_moe"],
  layersDiffer: true,
  hasExperts: true,
  readsRouter: true,
  hasDraftLayers: true,
  layerLists: ["layers_block_type", "hybrid_override_pattern"],
  epsilon: ["layer_norm_epsilon", "attention.layer_norm_epsilon"],
  defaults: { layer_norm_epsilon: 1e-5, head_dim: 128, intermediate_size: 21_504 },
  layerNames: "backbone.layers",
  folderNames: {
    ...mambaNames("mixer"),
    [TensorKind.embed]: "backbone.embeddings.weight",
    [TensorKind.finalNorm]: "backbone.norm_f.weight",
    [TensorKind.attentionNorm]: "norm.weight",
    [TensorKind.mlpNorm]: "norm.weight",
    [TensorKind.q]: "mixer.q_proj.weight",
    [TensorKind.k]: "mixer.k_proj.weight",
    [TensorKind.v]: "mixer.v_proj.weight",
    [TensorKind.o]: "mixer.o_proj.weight",
    [TensorKind.up]: "mixer.up_proj.weight",
    [TensorKind.down]: "mixer.down_proj.weight",
    [TensorKind.router]: "mixer.gate.weight",
    [TensorKind.choiceBias]: "mixer.gate.e_score_correction_bias",
    [TensorKind.besideUp]: "mixer.shared_experts.up_proj.weight",
    [TensorKind.besideDown]: "mixer.shared_experts.down_proj.weight",
  },
  expertNames: {
    [TensorKind.up]: "mixer.experts.{}.up_proj.weight",
    [TensorKind.down]: "mixer.experts.{}.down_proj.weight",
  },
  ggufNames: { ...mambaGgufNames, [TensorKind.mlpNorm]: "attn_norm.weight" },
  describe(source) {
    for (const name of ["attention_bias", "mlp_bias"]) {
      if (source.flag([name, null], false)) source.refuse([name, null], "is not supported in this family");
    }
    for (const [name, wanted] of [
      ["mlp_hidden_act", "relu2"],
      ["mamba_hidden_act", "silu"],
    ] as const) {
      if (source.text([name, null], wanted) !== wanted) source.refuse([name, null], `wanted: ${wanted}`);
    }
    const latent: Names = ["moe_latent_size", "moe_latent_size"];
    if (source.has(latent)) source.refuse(latent, "experts of a smaller input are not supported");
    const parts = partsOf(source);
    const dense = parts.includes("mlp") ? source.sizes.feedForward : 0;
    const shared = parts.includes("moe") ? sharedOf(source) : 0;
    const feedForward = Math.max(dense, shared, 1);
    const first = parts.indexOf("mamba");
    return {
      feedForward,
      activation: "reluSquared",
      ...(parts.includes("moe") ? { experts: mixtureOf(source) } : {}),
      ...(first < 0
        ? {}
        : { states: { ...mambaStates(source, mambaFields, first, null), norm: "groups", gateFirst: true } }),
      ropes: [],
      layers: parts.map((part) => ({
        ...plainLayer,
        rope: null,
        ...shapeOf(part, feedForward, dense, shared),
      })),
    };
  },
};

function shapeOf(part: Part, largest: number, dense: number, shared: number): Partial<LayerShape> {
  const sized = (width: number) => ({ ownSizes: width === largest ? {} : { feedForward: width } });
  if (part === "mamba") return { mixer: "ssm", mlp: "none" };
  if (part === "attention") return { mlp: "none" };
  if (part === "mlp") return { mixer: "none", mlp: "plain", ...sized(dense) };
  return { mixer: "none", mlp: "sharedPlain", ...sized(shared) };
}

function partsOf(source: Source): readonly Part[] {
  if (source.kind === "metadata") {
    const heads = source.perLayer([null, "attention.head_count_kv"]);
    const widths = source.perLayer([null, "feed_forward_length"]);
    return layersOf(source.layers, (layer): Part => {
      if ((widths?.[layer] ?? 1) === 0) return (heads?.[layer] ?? 1) === 0 ? "mamba" : "attention";
      return source.lacks("", layer, "ffn_gate_inp.weight") ? "mlp" : "moe";
    });
  }
  const listed: Names = ["layers_block_type", null];
  const spelled: Names = ["hybrid_override_pattern", null];
  const names = source.has(listed) ? listed : spelled;
  const own = source.has(listed) ? source.texts(listed)! : [...source.text(spelled, "")];
  const table = source.has(listed) ? words : letters;
  const parts = own.map((name) => (Object.hasOwn(table, name) ? table[name]! : null));
  if (parts.length === 0 || parts.includes(null)) {
    source.refuse(names, `wanted for each layer: one of ${Object.keys(table).join(", ")}`);
  }
  return parts as Part[];
}

function sharedOf(source: Source): number {
  return sharedWidth(source, () => {
    const each = source.integer(["moe_shared_expert_intermediate_size", null], 1, shapeLimits.feedForward);
    source.integer(["n_shared_experts", null], 1, 1, 1);
    return each;
  });
}

function mixtureOf(source: Source) {
  return expertsOf(source, "n_routed_experts", "moe_intermediate_size", sigmoidRouter(source));
}
