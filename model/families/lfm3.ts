/**
 * LFM3: LFM2 with norms before and after each part, and a gate for the output of each attention head. Layers with
 * a sliding window have a rope of their own.
 */
import { type LayerShape, plainLayer, plainStates } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import type { Family, Names } from "./family.ts";
import { lfm2 } from "./lfm2.ts";
import { windowOf } from "./windows.ts";

const types: Names = ["layer_types", null];
const known: readonly string[] = ["conv", "full_attention", "sliding_attention"];

export const lfm3: Family = {
  name: "lfm3",
  models: "LFM3 1.7B",
  classes: ["Lfm3ForCausalLM"],
  metadata: [],
  layersDiffer: true,
  gatesPerHead: true,
  epsilon: ["norm_eps", "attention.layer_norm_rms_epsilon"],
  defaults: {
    norm_eps: 1e-5,
    head_dim: 128,
    sliding_window: 256,
    tie_word_embeddings: true,
    max_position_embeddings: 128_000,
    rope_parameters: {
      sliding_attention: { rope_type: "default", rope_theta: 10_000 },
      full_attention: { rope_type: "proportional", rope_theta: 1e6, partial_rotary_factor: 0.5 },
    },
  },
  folderNames: {
    ...lfm2.folderNames,
    [TensorKind.o]: "self_attn.o_proj.weight",
    [TensorKind.qNorm]: "self_attn.q_norm.weight",
    [TensorKind.kNorm]: "self_attn.k_norm.weight",
    [TensorKind.qGate]: "self_attn.gate_proj.weight",
    [TensorKind.attentionPostNorm]: "post_operator_norm.weight",
    [TensorKind.mlpPostNorm]: "post_ffn_norm.weight",
  },
  describe(source) {
    for (const name of ["conv_bias", "attention_bias"]) {
      if (source.flag([name, null], false)) source.refuse([name, null], "is not supported in this family");
    }
    const kinds = source.texts(types) ?? Array.from({ length: source.layers }, (_, layer) => usual(layer));
    if (kinds.length !== source.layers || !kinds.every((kind) => known.includes(kind))) {
      source.refuse(types, `wanted: one of ${known.join(", ")} for each of ${source.layers} layers`);
    }
    const norms = source.flag(["use_sandwich_norm", null], true) ? "around" : "before";
    const gatedOutput = source.flag(["use_attention_gate", null], true);
    const layerOf = (kind: string): LayerShape => {
      const layer = { ...plainLayer, norms } as const;
      if (kind === "conv") return { ...layer, mixer: "conv", rope: null };
      const isSliding = kind === "sliding_attention";
      return {
        ...layer,
        qkNorm: "head",
        gatedOutput,
        rope: isSliding ? 1 : 0,
        slidingWindow: isSliding ? windowOf(source) : 0,
      };
    };
    return {
      states: { ...plainStates, conv: source.integer(["conv_L_cache", null], 2, 8, 7) },
      ropes: [source.rope("full_attention"), source.rope("sliding_attention")],
      layers: kinds.map(layerOf),
    };
  },
};

/** Kind of a layer in configurations without a list. */
function usual(layer: number): string {
  if (layer % 4 === 2) return "full_attention";
  return layer % 4 === 0 && layer > 0 ? "sliding_attention" : "conv";
}
