/**
 * Falcon-H1: each layer adds up attention and Mamba-2 of the same input. Folders leave multipliers of most
 * projections to the forward pass; here they multiply the weights while loading, as in GGUF files.
 */
import { type LayerShape, plainLayer } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf, type Source } from "./family.ts";
import { graniteFields, mambaGgufNames, mambaNames, mambaStates } from "./mamba.ts";

const [least, most] = [1e-9, 1e9];

export const falconH1: Family = {
  name: "falcon_h1",
  models: "Falcon-H1 0.5B to 34B",
  classes: ["FalconH1ForCausalLM"],
  metadata: ["falcon-h1"],
  kvHeadsOptional: true,
  defaults: { rms_norm_eps: 1e-5, mamba_d_ssm: 1024 },
  folderNames: {
    ...mambaNames("mamba"),
    [TensorKind.finalNorm]: "model.final_layernorm.weight",
    [TensorKind.mlpNorm]: "pre_ff_layernorm.weight",
    [TensorKind.gate]: "feed_forward.gate_proj.weight",
    [TensorKind.up]: "feed_forward.up_proj.weight",
    [TensorKind.down]: "feed_forward.down_proj.weight",
  },
  ggufNames: { ...mambaGgufNames, [TensorKind.mlpNorm]: "ffn_norm" },
  describe(source) {
    const width = source.kind === "config" ? source.integer(["mamba_d_ssm", null], 1, 1 << 18) : null;
    const hasNorm =
      source.kind === "config"
        ? source.flag(["mamba_rms_norm", null], false)
        : !source.lacks("", 0, "ssm_norm.weight");
    const fields = { ...graniteFields, projectionBiases: ["mamba_proj_bias", "projectors_bias"] };
    const layer: LayerShape = { ...plainLayer, mixer: "attentionAndSsm", biases: biasesOf(source) };
    return {
      states: {
        ...mambaStates(source, fields, 0, width),
        norm: hasNorm ? "groups" : "none",
        gateFirst: hasNorm && !source.flag(["mamba_norm_before_gate", null], source.kind === "config"),
      },
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => layer),
      ...(source.kind === "config" ? multipliersOf(source) : {}),
    };
  },
};

function multipliersOf(source: Source) {
  const one = (name: string): number => source.number([name, null], -most, most, 1);
  const several = (name: string, count: number): readonly number[] => {
    const values = source.numbers([name, null]) ?? Array<number>(count).fill(1);
    return values.length === count ? values : source.refuse([name, null], `wanted: ${count} numbers`);
  };
  const [gate, down] = several("mlp_multipliers", 2) as [number, number];
  const [z, x, b, c, dt] = several("ssm_multipliers", 5) as [number, number, number, number, number];
  const [intoAttention, intoState] = [one("attention_in_multiplier"), one("ssm_in_multiplier")];
  return {
    embeddingScale: source.number(["embedding_multiplier", null], least, most, 1),
    logitScale: source.number(["lm_head_multiplier", null], least, most, 1),
    factors: {
      [TensorKind.q]: intoAttention,
      [TensorKind.k]: intoAttention * one("key_multiplier"),
      [TensorKind.v]: intoAttention,
      [TensorKind.o]: one("attention_out_multiplier"),
      [TensorKind.gate]: gate,
      [TensorKind.down]: down,
      [TensorKind.stateZ]: z * intoState,
      [TensorKind.stateV]: x * intoState,
      [TensorKind.stateK]: b * intoState,
      [TensorKind.stateQ]: c * intoState,
      [TensorKind.stateA]: dt * intoState,
      [TensorKind.stateO]: one("ssm_out_multiplier"),
    },
  };
}
