/** Fields of multi-head latent attention in configurations. */
import { latentScale } from "../rope.ts";
import { type Latent, type LayerShape, plainLayer, type Rope, type Traits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import type { Family, Names, Source } from "./family.ts";

/** Epsilon of the latents' norms, which no configuration has: that of transformers. */
const normEpsilon = 1e-6;

const queryRank: Names = ["q_lora_rank", "attention.q_lora_rank"];
const rotated: Names = ["qk_rope_head_dim", "rope.dimension_count"];

/** Names of the tensors of latent attention that other layers have by other names. */
export const latentNames: Pick<Family, "folderNames" | "ggufNames"> = {
  folderNames: {
    [TensorKind.qNorm]: "self_attn.q_a_layernorm.weight",
    [TensorKind.k]: "self_attn.kv_a_proj_with_mqa.weight",
    [TensorKind.kNorm]: "self_attn.kv_a_layernorm.weight",
  },
  ggufNames: {
    [TensorKind.qNorm]: "attn_q_a_norm.weight",
    [TensorKind.k]: "attn_kv_a_mqa.weight",
    [TensorKind.kNorm]: "attn_kv_a_norm.weight",
  },
};

/** Sizes, rope and scale of latent attention, and its layer. */
export function latentAttention(
  source: Source,
): Pick<Traits, "ropes" | "attentionScale"> & { readonly latent: Latent; readonly layer: LayerShape } {
  const size = (names: Names, least: number, fallback?: number): number =>
    source.integer(names, least, 1 << 16, fallback);
  const dimensions = size(rotated, 2);
  const ofHead = (field: string, key: string, old: string): number =>
    source.kind === "config"
      ? size([field, null], 16)
      : size([null, key], 16, size([null, old], 16, 0) || undefined);
  const keys = ofHead("qk_nope_head_dim", "attention.key_length_mla", "attention.key_length");
  const keySize = source.kind === "config" ? keys : keys - dimensions;
  const latent = {
    rank: source.sizes.headSize - dimensions,
    queryRank: source.integer(queryRank, 0, 1 << 16, 0),
    keySize,
    valueSize: ofHead("v_head_dim", "attention.value_length_mla", "attention.value_length"),
    normEpsilon,
  };
  const multiple = (names: Names, value: number, of: number): void => {
    if (value % of !== 0) source.refuse(names, `wanted: a multiple of ${of}`);
  };
  multiple(["kv_lora_rank", "attention.kv_lora_rank"], latent.rank, 32);
  multiple(queryRank, latent.queryRank, 16);
  multiple(["qk_nope_head_dim", "attention.key_length_mla"], latent.keySize, 16);
  multiple(["v_head_dim", "attention.value_length_mla"], latent.valueSize, 16);
  multiple(rotated, dimensions, 16);
  for (const field of ["attention_bias", "mlp_bias"]) {
    if (source.flag([field, null], false))
      source.refuse([field, null], "biases are not supported beside latents");
  }
  const interleave: Names = ["rope_interleave", null];
  if (!source.flag(interleave, true)) source.refuse(interleave, "wanted: true");
  const rope = ropeOf(source, latent.keySize, dimensions);
  const yarnNames: Names = ["mscale_all_dim", "rope.scaling.yarn_log_multiplier"];
  // GGUF metadata stores a tenth of the configuration's number.
  const yarnScale = source.number(yarnNames, 0, 100, 0) * (source.kind === "metadata" ? 10 : 1);
  return {
    latent,
    ropes: [rope],
    attentionScale: latentScale(latent.keySize + dimensions, rope, yarnScale),
    layer: { ...plainLayer, mixer: "latent" },
  };
}

function ropeOf(source: Source, keySize: number, dimensions: number): Rope {
  // The share of a head that rotates, in configurations that have it, is of the whole head.
  const isShare = source.number(["partial_rotary_factor", null], 0, 1, 0) > 0;
  const rope = source.rope(undefined, undefined, isShare ? keySize + dimensions : dimensions);
  if (rope.dimensions !== dimensions)
    source.refuse(["partial_rotary_factor", "rope.dimension_count"], `wanted: ${dimensions} rotated numbers`);
  // In files the scale of scores alone expresses the magnitude.
  return rope.kind === "yarn" && source.kind === "metadata" ? { ...rope, magnitude: 1 } : rope;
}
