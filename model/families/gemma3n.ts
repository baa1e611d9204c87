/**
 * Gemma 3n (text): several residual streams, of which layers compute the first (AltUp), a residual that is
 * augmented by a product of low rank (LAuReL), inputs of each layer, sparse gates in the first layers, and
 * last layers that read keys and values of earlier ones.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import type { Family, Names, Source } from "./family.ts";
import { gemma4 } from "./gemma4.ts";
import { allBut, windowOf } from "./windows.ts";

/** Defaults: number of layers with a sparse gate, and the share of their gates that are 0. */
const published = { sparseLayers: 10, share: 0.95 };

/** Standard deviations above the mean below which a share of normally distributed numbers lies. */
function deviationsOf(share: number): number {
  // Newton's method on the distribution function, by Simpson's rule from 0.
  const density = (x: number): number => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  const below = (x: number): number => {
    const steps = 200;
    const width = x / steps;
    let sum = density(0) + density(x);
    for (let step = 1; step < steps; step += 1) sum += density(step * width) * (step % 2 === 1 ? 4 : 2);
    return 0.5 + (sum * width) / 3;
  };
  let x = 0;
  for (let round = 0; round < 50; round += 1) x -= (below(x) - share) / density(x);
  return x;
}

/** Cutoff of each layer's gates. Files have it as deviations, -infinity for none; folders as a share, 0 for none. */
function cutoffsOf(source: Source): (number | null)[] {
  const names: Names = ["activation_sparsity_pattern", "activation_sparsity_scale"];
  const isFile = source.kind === "metadata";
  const usual = Array.from({ length: source.layers }, (_, layer) =>
    source.layers > published.sparseLayers && layer < published.sparseLayers ? published.share : 0,
  );
  const values =
    source.realsPerLayer(names) ?? (isFile ? source.refuse(names, "wanted: a number per layer") : usual);
  return values.map((value) => {
    if (isFile) return Number.isFinite(value) ? value : null;
    if (!(value >= 0 && value < 1)) source.refuse(names, "wanted: shares from 0 to below 1");
    return value === 0 ? null : deviationsOf(value);
  });
}

export const gemma3n: Family = {
  name: "gemma3n",
  models: "Gemma 3n E2B and E4B (text)",
  classes: ["Gemma3nForCausalLM"],
  modelTypes: ["gemma3n_text"],
  wrappers: ["Gemma3nForConditionalGeneration"],
  metadata: ["gemma3n"],
  hasMoreRows: true,
  defaults: {
    head_dim: 256,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    sliding_window: 512,
    vocab_size: 262_400,
    vocab_size_per_layer_input: 262_144,
    max_position_embeddings: 32_768,
    tie_word_embeddings: true,
    hidden_size_per_layer_input: 256,
    final_logit_softcapping: 30,
    rope_theta: 1e6,
    rope_local_base_freq: 10_000,
  },
  folderNames: {
    ...gemma4.folderNames,
    [TensorKind.streamIn]: "model.altup_projections.{}.weight",
    [TensorKind.streamOut]: "model.altup_unembed_projections.{}.weight",
    [TensorKind.streamRouter]: "altup.modality_router.weight",
    [TensorKind.streamNorm]: "altup.router_norm.weight",
    [TensorKind.streamPredict]: "altup.prediction_coefs.weight",
    [TensorKind.streamCorrect]: "altup.correction_coefs.weight",
    [TensorKind.streamScale]: "altup.correct_output_scale",
    [TensorKind.laurelIn]: "laurel.linear_left.weight",
    [TensorKind.laurelOut]: "laurel.linear_right.weight",
    [TensorKind.laurelNorm]: "laurel.post_laurel_norm.weight",
  },
  describe(source) {
    const { layers: count, sizes } = source;
    const shared: Names = ["num_kv_shared_layers", "attention.shared_kv_layers"];
    const sharing = source.integer(shared, 0, count - 1, source.kind === "config" ? 15 : 0);
    source.integer(["altup_active_idx", "altup.active_idx"], 0, 0, 0);
    const scaled: Names = ["altup_correct_scale", null];
    if (!source.flag(scaled, true)) source.refuse(scaled, "streams without a scale are not supported");
    const sliding = source.slidingLayers(allBut(5));
    const window = windowOf(source);
    const cutoffs = cutoffsOf(source);
    const rank =
      source.kind === "config"
        ? source.integer(["laurel_rank", null], 1, shapeLimits.hidden, 64)
        : (source.rows("laurel_l.weight") ?? 0);
    const layers = sliding.map((slides, layer): LayerShape => {
      const before = sliding.lastIndexOf(slides, count - sharing - 1);
      const readsOthers = layer >= count - sharing;
      if (readsOthers && before < 0)
        source.refuse(shared, `no layer before has the keys that layer ${layer} reads`);
      return {
        ...plainLayer,
        norms: "around",
        qkNorm: "head",
        biases: { ...biasesOf(source), gateUp: false, down: false },
        rope: slides ? 1 : 0,
        slidingWindow: slides ? window : 0,
        valueNorm: true,
        kvLayersBack: readsOthers ? layer - before : 0,
        laurelRank: rank,
        gateCutoff: cutoffs[layer]!,
      };
    });
    return {
      layers,
      vocab: source.integer(["vocab_size_per_layer_input", null], 1, sizes.vocab, sizes.vocab),
      streams: source.integer(["altup_num_inputs", "altup.num_inputs"], 2, shapeLimits.streams, 4),
      activation: source.activation("geluTanh"),
      attentionScale: 1,
      embeddingScale: Math.sqrt(sizes.hidden),
      logitCap: source.number(["final_logit_softcapping", "final_logit_softcapping"], 1e-3, 1e6, 30),
      layerInputs: source.integer(
        ["hidden_size_per_layer_input", "embedding_length_per_layer_input"],
        1,
        shapeLimits.layerInputs,
        256,
      ),
      ropes: [
        source.rope("full_attention"),
        source.rope("sliding_attention", ["rope_local_base_freq", "rope.freq_base_swa"]),
      ],
    };
  },
};
