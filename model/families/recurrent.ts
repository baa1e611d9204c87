/** Fields and tensor names of recurrent layers. */
import { plainStates, type States, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { layersOf, type Names, type Source } from "./family.ts";

const typesNames: Names = ["layer_types", "attention.recurrent_layers"];

/** Reads a size of recurrent layers. */
export function stateSize(source: Source, names: Names, fallback?: number): number {
  return source.integer(names, 1, shapeLimits.hidden, fallback);
}

/**
 * True for each DeltaNet layer: by the file's list, else all but every nth one. Refuses other kinds of layers.
 */
export function deltaLayers(source: Source): readonly boolean[] {
  const flags = source.flags(typesNames);
  if (flags !== null) return flags;
  const types = source.texts(typesNames);
  const interval: Names = ["full_attention_interval", "full_attention_interval"];
  const period = source.integer(interval, 1, shapeLimits.layers, 4);
  if (types === null) return layersOf(source.layers, (layer) => (layer + 1) % period !== 0);
  const known = ["linear_attention", "full_attention"];
  if (types.length !== source.layers || !types.every((type) => known.includes(type))) {
    source.refuse(typesNames, `wanted: one of ${known.join(", ")} for each of ${source.layers} layers`);
  }
  return types.map((type) => type === "linear_attention");
}

/**
 * True for each layer with attention: in config.json by the list of types, in metadata if it has key heads.
 * Refuses other types.
 */
export function attendingLayers(
  source: Source,
  recurrent: readonly string[],
  attending: readonly string[] = ["full_attention"],
): readonly boolean[] {
  if (source.kind === "metadata") {
    const heads = source.perLayer([null, "attention.head_count_kv"]);
    return layersOf(source.layers, (layer) => (heads?.[layer] ?? 1) > 0);
  }
  const types = source.texts(typesNames);
  const known = [...recurrent, ...attending];
  if (types?.length !== source.layers || !types.every((type) => known.includes(type))) {
    return source.refuse(
      typesNames,
      `wanted: one of ${known.join(", ")} for each of ${source.layers} layers`,
    );
  }
  return types.map((type) => attending.includes(type));
}

/** Sizes of DeltaNet layers. */
export function deltaStates(source: Source): States {
  const keyHeads = stateSize(source, ["linear_num_key_heads", "ssm.group_count"], 16);
  const heads: Names = ["linear_num_value_heads", "ssm.time_step_rank"];
  const count = stateSize(source, heads, 32);
  if (count % keyHeads !== 0) source.refuse(heads, `is no multiple of the ${keyHeads} key heads`);
  const keySize = stateSize(source, ["linear_key_head_dim", "ssm.state_size"], 128);
  const inner: Names = [null, "ssm.inner_size"];
  const width = stateSize(source, inner, count * keySize);
  if (width % count !== 0) source.refuse(inner, `is no multiple of the ${count} heads`);
  return {
    ...plainStates,
    norm: "heads",
    keyHeads,
    heads: count,
    keySize,
    valueSize:
      source.kind === "config" ? stateSize(source, ["linear_value_head_dim", null], 128) : width / count,
    conv: source.integer(["linear_conv_kernel_dim", "ssm.conv_kernel"], 2, 8, 4),
  };
}

/** Names in folders of the tensors that all DeltaNets have. */
export const deltaNames: Readonly<Record<number, string>> = {
  [TensorKind.stateConvQ]: "linear_attn.conv1d.weight",
  [TensorKind.stateConvK]: "linear_attn.conv1d.weight",
  [TensorKind.stateConvV]: "linear_attn.conv1d.weight",
  [TensorKind.stateDtBias]: "linear_attn.dt_bias",
  [TensorKind.stateALog]: "linear_attn.A_log",
  [TensorKind.stateNorm]: "linear_attn.norm.weight",
  [TensorKind.stateO]: "linear_attn.out_proj.weight",
};

/**
 * Names in GGUF files of the tensors that all DeltaNets have, in addition to those of all recurrent layers
 * (gguf.ts).
 */
export const deltaGgufNames: Readonly<Record<number, string>> = {
  [TensorKind.mlpNorm]: "post_attention_norm.weight",
  [TensorKind.stateQ]: "attn_qkv.weight",
  [TensorKind.stateK]: "attn_qkv.weight",
  [TensorKind.stateV]: "attn_qkv.weight",
  [TensorKind.stateZ]: "attn_gate.weight",
};
