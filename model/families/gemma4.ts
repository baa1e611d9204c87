/**
 * Gemma 4 (text): Gemma 3 with plain norm weights, values normalised by their root mean square, and unscaled
 * scores. Sliding-window layers differ from full layers in head size, key heads and rope. The last layers may
 * read keys and values of earlier layers, and values may equal keys. Small models give each layer inputs of
 * its own; the mixture has experts beside each MLP.
 */
import { type LayerShape, type LayerSizes, plainLayer, plainRouter, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import type { Family, Names, Source } from "./family.ts";
import { gemma3 } from "./gemma.ts";
import { allBut, windowOf } from "./windows.ts";

const experts = "experts.gate_up_proj";
const expertsInFile = "ffn_gate_up_exps.weight";

/** Sizes of a layer, which depend on whether it has a sliding window. */
function sizesOf(source: Source): (slides: boolean, layer: number, readsOthers: boolean) => LayerSizes {
  const headSize = (names: Names, fallback: number): number => {
    const size = source.integer(names, 16, shapeLimits.headSize, fallback);
    return size % 16 === 0 ? size : source.refuse(names, "wanted: a multiple of 16");
  };
  const slidingHead = headSize(["head_dim", "attention.key_length_swa"], source.sizes.headSize);
  const fullHead = headSize(["global_head_dim", "attention.key_length"], 512);
  const listedHeads = source.perLayer([null, "attention.head_count_kv"]);
  const fullHeads = source.flag(["attention_k_eq_v", null], false)
    ? source.integer(["num_global_key_value_heads", null], 1, shapeLimits.heads, source.sizes.kvHeads)
    : source.sizes.kvHeads;
  const listedWidths = source.perLayer([null, "feed_forward_length"]);
  const widening = source.flag(["use_double_wide_mlp", null], false) ? 2 : 1;
  return (slides, layer, readsOthers) => ({
    headSize: slides ? slidingHead : fullHead,
    kvHeads: listedHeads?.[layer] ?? (slides ? source.sizes.kvHeads : fullHeads),
    feedForward: listedWidths?.[layer] ?? source.sizes.feedForward * (readsOthers ? widening : 1),
  });
}

export const gemma4: Family = {
  name: "gemma4",
  models: "Gemma 4 (text): E2B, E4B, 31B, 26B-A4B",
  classes: ["Gemma4ForCausalLM"],
  modelTypes: ["gemma4_text"],
  wrappers: ["Gemma4ForConditionalGeneration"],
  metadata: ["gemma4"],
  layersDiffer: true,
  hasExperts: true,
  defaults: {
    head_dim: 256,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    sliding_window: 512,
    vocab_size: 262_144,
    max_position_embeddings: 131_072,
    tie_word_embeddings: true,
    hidden_size_per_layer_input: 256,
    rope_parameters: {
      sliding_attention: { rope_type: "default", rope_theta: 10_000 },
      full_attention: { rope_type: "proportional", partial_rotary_factor: 0.25, rope_theta: 1e6 },
    },
  },
  folderNames: {
    ...gemma3.folderNames,
    [TensorKind.layerEmbed]: "model.embed_tokens_per_layer.weight",
    [TensorKind.layerProjection]: "model.per_layer_model_projection.weight",
    [TensorKind.layerInputNorm]: "model.per_layer_projection_norm.weight",
    [TensorKind.router]: "router.proj.weight",
    [TensorKind.routerNorm]: "router.scale",
    [TensorKind.expertScales]: "router.per_expert_scale",
    [TensorKind.besideGate]: "mlp.gate_proj.weight",
    [TensorKind.besideUp]: "mlp.up_proj.weight",
    [TensorKind.besideDown]: "mlp.down_proj.weight",
    [TensorKind.besidePostNorm]: "post_feedforward_layernorm_1.weight",
    [TensorKind.expertsNorm]: "pre_feedforward_layernorm_2.weight",
    [TensorKind.expertsPostNorm]: "post_feedforward_layernorm_2.weight",
    [TensorKind.inputGate]: "per_layer_input_gate.weight",
    [TensorKind.inputOut]: "per_layer_projection.weight",
    [TensorKind.inputPostNorm]: "post_per_layer_input_norm.weight",
    [TensorKind.layerScale]: "layer_scalar",
  },
  expertNames: {
    [TensorKind.gate]: experts,
    [TensorKind.up]: experts,
    [TensorKind.down]: "experts.down_proj",
  },
  ggufNames: {
    [TensorKind.besideGate]: "ffn_gate.weight",
    [TensorKind.besideUp]: "ffn_up.weight",
    [TensorKind.besideDown]: "ffn_down.weight",
  },
  ggufExpertNames: { [TensorKind.gate]: expertsInFile, [TensorKind.up]: expertsInFile },
  describe(source) {
    const overrides: Names = ["per_layer_config", null];
    if (source.has(overrides) && !source.has(["global_head_dim", null])) {
      source.refuse(
        overrides,
        "sizes of layers are read from global_head_dim and num_global_key_value_heads",
      );
    }
    const { layers: count, sizes } = source;
    source.integer(["vocab_size_per_layer_input", null], sizes.vocab, sizes.vocab, sizes.vocab);
    const sharing = source.integer(["num_kv_shared_layers", "attention.shared_kv_layers"], 0, count - 1, 0);
    const hasExperts = source.flag(["enable_moe_block", null], source.has([null, "expert_count"]));
    // The last layer always has full attention, whatever the configuration says.
    const sliding = source.slidingLayers(allBut(6)).map((slides, layer) => slides && layer < count - 1);
    const window = windowOf(source);
    const ofLayer = sizesOf(source);
    const own = sliding.map((slides, layer) => ofLayer(slides, layer, layer >= count - sharing));
    const largest = {
      headSize: Math.max(...own.map(({ headSize }) => headSize)),
      kvHeads: Math.max(...own.map(({ kvHeads }) => kvHeads)),
      feedForward: Math.max(...own.map(({ feedForward }) => feedForward)),
    };
    const layers = sliding.map((slides, layer): LayerShape => {
      const before = sliding.lastIndexOf(slides, count - sharing - 1);
      const readsOthers = layer >= count - sharing;
      if (readsOthers && before < 0) {
        source.refuse(
          ["num_kv_shared_layers", "attention.shared_kv_layers"],
          `no layer before has the keys that layer ${layer} reads`,
        );
      }
      return {
        ...plainLayer,
        mlp: hasExperts ? "both" : "gated",
        norms: "around",
        qkNorm: "head",
        biases: { ...biasesOf(source), gateUp: false, down: false },
        rope: slides ? 1 : 0,
        slidingWindow: slides ? window : 0,
        ownSizes: own[layer]!,
        valuesAreKeys: !readsOthers && !slides && source.lacks("attention_k_eq_v", layer, "attn_v.weight"),
        valueNorm: true,
        kvLayersBack: readsOthers ? layer - before : 0,
        scaled: source.kind === "config" || !source.lacks("", layer, "layer_output_scale.weight"),
      };
    });
    const full = own[sliding.indexOf(false)]!;
    const first = own[sliding.indexOf(true)] ?? full;
    return {
      ...largest,
      layers,
      activation: source.activation("geluTanh"),
      attentionScale: 1,
      embeddingScale: Math.sqrt(sizes.hidden),
      logitCap: source.number(["final_logit_softcapping", "final_logit_softcapping"], 1e-3, 1e6, 0),
      layerInputs: source.integer(
        ["hidden_size_per_layer_input", "embedding_length_per_layer_input"],
        0,
        shapeLimits.layerInputs,
        0,
      ),
      experts: hasExperts ? mixture(source) : null,
      ropes: [
        source.rope("full_attention", undefined, full.headSize),
        source.rope("sliding_attention", [null, "rope.freq_base_swa"], first.headSize),
      ],
    };
  },
};

/**
 * Gemma 4 unified: the same text model without layer inputs; images and sounds enter its embedding directly.
 */
export const gemma4Unified: Family = {
  ...gemma4,
  name: "gemma4_unified",
  models: "Gemma 4 unified (text)",
  classes: ["Gemma4UnifiedForCausalLM"],
  modelTypes: ["gemma4_unified_text"],
  wrappers: ["Gemma4UnifiedForConditionalGeneration"],
  metadata: [],
  ggufAs: "gemma4",
  defaults: {
    ...gemma4.defaults,
    sliding_window: 1024,
    max_position_embeddings: 262_144,
    hidden_size_per_layer_input: 0,
  },
};

function mixture(source: Source) {
  const count = source.integer(["num_experts", "expert_count"], 1, shapeLimits.experts);
  return {
    ...plainRouter,
    count,
    used: source.integer(["top_k_experts", "expert_used_count"], 1, count),
    feedForward: source.integer(
      ["moe_intermediate_size", "expert_feed_forward_length"],
      1,
      shapeLimits.feedForward,
    ),
  };
}
