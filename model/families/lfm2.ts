/**
 * LFM2 and LFM2.5, dense and with experts: most layers are short convolutions between two gates, the others
 * attention with norms of the heads of q and k.
 */
import { type LayerShape, plainLayer, plainStates, shapeLimits, type Traits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { expertsOf, mixedLayers, sigmoidRouter } from "./experts.ts";
import { type Family, layersOf, type Names, type Source } from "./family.ts";
import { attendingLayers } from "./recurrent.ts";

const projections = "conv.in_proj.weight";
const projectionsInFile = "shortconv.in_proj.weight";

export const lfm2: Family = {
  name: "lfm2",
  models: "LFM2 and 2.5 350M, 700M, 1.2B, 2.6B",
  classes: ["Lfm2ForCausalLM"],
  metadata: ["lfm2"],
  layersDiffer: true,
  epsilon: ["norm_eps", "attention.layer_norm_rms_epsilon"],
  renamedFields: { tie_embedding: "tie_word_embeddings" },
  defaults: {
    norm_eps: 1e-5,
    rope_theta: 1e6,
    tie_word_embeddings: true,
    max_position_embeddings: 128_000,
    intermediate_size: 12_288,
  },
  folderNames: {
    [TensorKind.finalNorm]: "model.embedding_norm.weight",
    [TensorKind.attentionNorm]: "operator_norm.weight",
    [TensorKind.mlpNorm]: "ffn_norm.weight",
    [TensorKind.o]: "self_attn.out_proj.weight",
    [TensorKind.qNorm]: "self_attn.q_layernorm.weight",
    [TensorKind.kNorm]: "self_attn.k_layernorm.weight",
    [TensorKind.gate]: "feed_forward.w1.weight",
    [TensorKind.up]: "feed_forward.w3.weight",
    [TensorKind.down]: "feed_forward.w2.weight",
    [TensorKind.stateQ]: projections,
    [TensorKind.stateK]: projections,
    [TensorKind.stateV]: projections,
    [TensorKind.stateConvQ]: "conv.conv.weight",
    [TensorKind.stateO]: "conv.out_proj.weight",
  },
  ggufNames: {
    [TensorKind.finalNorm]: "token_embd_norm.weight",
    [TensorKind.stateQ]: projectionsInFile,
    [TensorKind.stateK]: projectionsInFile,
    [TensorKind.stateV]: projectionsInFile,
    [TensorKind.stateConvQ]: "shortconv.conv.weight",
    [TensorKind.stateO]: "shortconv.out_proj.weight",
  },
  describe: (source) => ({
    ...(source.kind === "config" ? { feedForward: widthOf(source) } : {}),
    ...describeLayers(
      source,
      layersOf(source.layers, () => plainLayer),
    ),
  }),
};

/** Width of MLPs: two thirds of the field, rounded up. */
function widthOf(source: Source): number {
  const field = source.has(["block_ff_dim", null]) ? "block_ff_dim" : "intermediate_size";
  const width = source.integer([field, null], 1, shapeLimits.feedForward);
  if (!source.flag(["block_auto_adjust_ff_dim", null], true)) return width;
  const factor = source.number(["block_ffn_dim_multiplier", null], 1e-3, 1e3, 1);
  const multiple = source.integer(["block_multiple_of", null], 1, shapeLimits.feedForward, 256);
  return Math.ceil(Math.floor(factor * Math.floor((2 * width) / 3)) / multiple) * multiple;
}

/** Layers with short convolutions in place of the attention that they do not have. */
function describeLayers(
  source: Source,
  layers: readonly LayerShape[],
): Pick<Traits, "layers" | "ropes" | "states"> {
  if (source.flag(["conv_bias", null], false)) {
    source.refuse(["conv_bias", null], "biases of short convolutions are not supported");
  }
  const types: Names = ["full_attn_idxs", null];
  const listed = !source.has(["layer_types", null]) && source.has(types) ? source.indices(types) : null;
  const attends =
    listed === null
      ? attendingLayers(source, ["conv"])
      : layersOf(source.layers, (layer) => listed.includes(layer));
  return {
    states: { ...plainStates, conv: source.integer(["conv_L_cache", "shortconv.l_cache"], 2, 8, 3) },
    ropes: [source.rope()],
    layers: layers.map((layer, index) =>
      attends[index] ? { ...layer, qkNorm: "head" } : { ...layer, mixer: "conv", rope: null },
    ),
  };
}

export const lfm2Moe: Family = {
  ...lfm2,
  name: "lfm2_moe",
  models: "LFM2 and 2.5 8B-A1B, 24B-A2B",
  classes: ["Lfm2MoeForCausalLM"],
  metadata: ["lfm2moe"],
  hasExperts: true,
  readsRouter: true,
  folderNames: {
    ...lfm2.folderNames,
    [TensorKind.router]: "feed_forward.gate.weight",
    [TensorKind.choiceBias]: "feed_forward.expert_bias",
  },
  expertNames: {
    [TensorKind.gate]: "feed_forward.experts.{}.w1.weight",
    [TensorKind.up]: "feed_forward.experts.{}.w3.weight",
    [TensorKind.down]: "feed_forward.experts.{}.w2.weight",
  },
  describe(source) {
    const dense = source.integer(["num_dense_layers", null], 0, source.layers, 2);
    const mixture = mixedLayers(source, plainLayer, 0, (index) => index >= dense);
    return {
      ...mixture,
      experts: expertsOf(source, "num_experts", "moe_intermediate_size", {
        ...sigmoidRouter(source),
        biased: source.flag(["use_expert_bias", null], true),
      }),
      ...describeLayers(source, mixture.layers),
    };
  },
};
