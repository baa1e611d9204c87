/** Fields and tensor names of Mamba-2 layers. */
import { plainStates, type States, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import type { Names, Source } from "./family.ts";

/** Names of a family's fields in config.json, where Granite's differ. */
export interface MambaFields {
  readonly heads: string;
  readonly headSize: string;
  readonly groups: string;
  readonly stateSize: string;
  readonly conv: string;
  readonly convBias: string;
  /** Width of all heads together; absent: heads times their size. */
  readonly width?: string;
  /** Fields that must be false. */
  readonly projectionBiases: readonly string[];
}

export const graniteFields: MambaFields = {
  heads: "mamba_n_heads",
  headSize: "mamba_d_head",
  groups: "mamba_n_groups",
  stateSize: "mamba_d_state",
  conv: "mamba_d_conv",
  convBias: "mamba_conv_bias",
  projectionBiases: ["mamba_proj_bias"],
};

/** Sizes of Mamba-2 layers, of which layer `first` is one; `width` is that of all heads together. */
export function mambaStates(
  source: Source,
  fields: MambaFields,
  first: number,
  width: number | null,
): Omit<States, "norm"> {
  for (const name of fields.projectionBiases) {
    if (source.flag([name, null], false)) source.refuse([name, null], "is not supported in recurrent layers");
  }
  const groups = source.integer([fields.groups, "ssm.group_count"], 1, shapeLimits.heads);
  const headNames: Names = [fields.heads, "ssm.time_step_rank"];
  const heads = source.integer(headNames, 1, shapeLimits.heads);
  if (heads % groups !== 0) source.refuse(headNames, `is no multiple of the ${groups} groups`);
  const inner = source.integer([null, "ssm.inner_size"], 1, shapeLimits.hidden, width ?? 0);
  if (inner % heads !== 0) source.refuse(headNames, `does not divide the width ${inner} of all heads`);
  const sizeNames: Names = [fields.headSize, null];
  const headSize = source.integer(sizeNames, 1, shapeLimits.stateSize, inner / heads || undefined);
  if (inner > 0 && headSize * heads !== inner) {
    source.refuse(sizeNames, `${heads} heads of this size are not ${inner} wide together`);
  }
  const [dtMin = 0, dtMax = Number.POSITIVE_INFINITY] = source.numbers(["time_step_limit", null]) ?? [];
  return {
    ...plainStates,
    keyHeads: groups,
    heads,
    keySize: source.integer([fields.stateSize, "ssm.state_size"], 1, shapeLimits.stateSize),
    valueSize: headSize,
    conv: source.integer([fields.conv, "ssm.conv_kernel"], 2, shapeLimits.stateConv, 4),
    convBias:
      source.kind === "config"
        ? source.flag([fields.convBias, null], true)
        : !source.lacks("", first, "ssm_conv1d.bias"),
    skip: true,
    dtMin,
    dtMax,
  };
}

/** Names of Mamba-2 tensors in folders, below the mixer's name. */
export function mambaNames(mixer: string): Readonly<Record<number, string>> {
  return {
    ...allOf(`${mixer}.in_proj.weight`, `${mixer}.conv1d`),
    [TensorKind.stateDtBias]: `${mixer}.dt_bias`,
    [TensorKind.stateALog]: `${mixer}.A_log`,
    [TensorKind.stateD]: `${mixer}.D`,
    [TensorKind.stateNorm]: `${mixer}.norm.weight`,
    [TensorKind.stateO]: `${mixer}.out_proj.weight`,
  };
}

/** Names of Mamba-2 tensors in GGUF files, in addition to those of all recurrent layers (gguf.ts). */
export const mambaGgufNames = allOf("ssm_in.weight", "ssm_conv1d");

function allOf(projection: string, conv: string): Readonly<Record<number, string>> {
  return {
    [TensorKind.stateZ]: projection,
    [TensorKind.stateV]: projection,
    [TensorKind.stateK]: projection,
    [TensorKind.stateQ]: projection,
    [TensorKind.stateA]: projection,
    [TensorKind.stateConvV]: `${conv}.weight`,
    [TensorKind.stateConvK]: `${conv}.weight`,
    [TensorKind.stateConvQ]: `${conv}.weight`,
    [TensorKind.stateConvVBias]: `${conv}.bias`,
    [TensorKind.stateConvKBias]: `${conv}.bias`,
    [TensorKind.stateConvQBias]: `${conv}.bias`,
  };
}
