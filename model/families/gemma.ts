/**
 * Gemma 1, 2 and 3 (text). Gemma 1 is Llama with GELU and an embedding scaled by the root of its width;
 * folders store norm weights less 1. Gemma 2 and 3 also have norms around attention and MLP. Gemma 2 caps
 * scores and logits, and has a sliding window in every other layer. Gemma 3 has norms of the heads of q and k
 * instead. Five of six layers have a sliding window and a rope of their own.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf, type Source } from "./family.ts";
import { allBut, windowsOf } from "./windows.ts";

const capMax = 1e6;

const common = {
  normsOneLess: true,
  folderNames: {
    [TensorKind.attentionPostNorm]: "post_attention_layernorm.weight",
    [TensorKind.mlpNorm]: "pre_feedforward_layernorm.weight",
    [TensorKind.mlpPostNorm]: "post_feedforward_layernorm.weight",
  },
} as const;

const sizes = {
  head_dim: 256,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  sliding_window: 4096,
  tie_word_embeddings: true,
};

/**
 * Square of the divisor of attention scores. GGUF metadata does not have it: it is hidden / heads in the
 * largest model of each generation, and the head size in the others.
 */
function queryScalar(source: Source, layersOfLargest: number): number {
  const { hidden, queryHeads, headSize } = source.sizes;
  if (source.kind === "metadata") return source.layers === layersOfLargest ? hidden / queryHeads : headSize;
  return source.number(["query_pre_attn_scalar", null], 1, shapeLimits.hidden, 256);
}

/** Gemma 3 as an encoder differs in its attention alone. */
const bareEncoder = {
  embeddingNorm: false,
  finalNorm: true,
  positions: 0,
  positionOffset: 0,
  tokenTypes: 0,
} as const;

export const gemma: Family = {
  name: "gemma",
  models: "Gemma 1, CodeGemma",
  classes: ["GemmaForCausalLM"],
  metadata: ["gemma"],
  normsOneLess: true,
  defaults: { head_dim: 256, tie_word_embeddings: true, hidden_activation: "gelu_pytorch_tanh" },
  describe: (source) => ({
    activation: source.activation("geluTanh"),
    embeddingScale: Math.sqrt(source.sizes.hidden),
    ropes: [source.rope()],
    layers: layersOf(source.layers, () => ({ ...plainLayer, biases: biasesOf(source) })),
  }),
};

export const gemma2: Family = {
  ...common,
  name: "gemma2",
  models: "Gemma 2",
  classes: ["Gemma2ForCausalLM"],
  metadata: ["gemma2"],
  defaults: { ...sizes, attn_logit_softcapping: 50, final_logit_softcapping: 30 },
  describe(source) {
    const windows = windowsOf(source, (layer) => layer % 2 === 0);
    const layer = { ...plainLayer, norms: "around", biases: biasesOf(source) } as const;
    const capFallback = source.kind === "metadata" ? ([50, 30] as const) : ([0, 0] as const);
    return {
      activation: source.activation("geluTanh"),
      embeddingScale: Math.sqrt(source.sizes.hidden),
      attentionScale: queryScalar(source, 46) ** -0.5,
      attentionCap: source.number(
        ["attn_logit_softcapping", "attn_logit_softcapping"],
        1e-3,
        capMax,
        capFallback[0],
      ),
      logitCap: source.number(
        ["final_logit_softcapping", "final_logit_softcapping"],
        1e-3,
        capMax,
        capFallback[1],
      ),
      ropes: [source.rope()],
      layers: windows.map((slidingWindow) => ({ ...layer, slidingWindow })),
    };
  },
};

/** VaultGemma, trained with differential privacy: Gemma 2 without norms after its parts. */
export const vaultGemma: Family = {
  ...gemma2,
  name: "vaultgemma",
  models: "VaultGemma 1B",
  classes: ["VaultGemmaForCausalLM"],
  metadata: [],
  describe(source) {
    const { layers, ...traits } = gemma2.describe(source);
    return { ...traits, layers: layers.map((layer) => ({ ...layer, norms: "before" })) };
  },
};

/** `isAlwaysEncoder`: true for a GGUF architecture of its own. */
function describeGemma3(source: Source, isAlwaysEncoder: boolean): ReturnType<Family["describe"]> {
  const period = source.integer(["sliding_window_pattern", null], 1, shapeLimits.layers, 6);
  const isEncoder = isAlwaysEncoder || source.flag(["use_bidirectional_attention", null], false);
  // An encoder's window is as wide as both sides together.
  const windows = windowsOf(source, allBut(period)).map((window) =>
    isEncoder && window > 0 ? Math.floor(window / 2) + 1 : window,
  );
  const sliding = source.slidingLayers(allBut(period));
  const layer = { ...plainLayer, norms: "around", qkNorm: "head", biases: biasesOf(source) } as const;
  return {
    ...(isEncoder ? { encoder: bareEncoder } : {}),
    activation: source.activation("geluTanh"),
    embeddingScale: Math.sqrt(source.sizes.hidden),
    attentionScale: queryScalar(source, 62) ** -0.5,
    attentionCap: source.number(["attn_logit_softcapping", "attn_logit_softcapping"], 1e-3, capMax, 0),
    logitCap: source.number(["final_logit_softcapping", "final_logit_softcapping"], 1e-3, capMax, 0),
    ropes: [
      source.rope("full_attention"),
      source.rope("sliding_attention", ["rope_local_base_freq", "rope.freq_base_swa"]),
    ],
    layers: windows.map((slidingWindow, index) => ({
      ...layer,
      slidingWindow,
      rope: sliding[index] ? 1 : 0,
    })),
  };
}

export const gemma3: Family = {
  ...common,
  name: "gemma3",
  models: "Gemma 3 (text)",
  classes: ["Gemma3ForCausalLM"],
  modelTypes: ["gemma3_text"],
  wrappers: ["Gemma3ForConditionalGeneration"],
  mayBeEncoder: true,
  metadata: ["gemma3"],
  defaults: { ...sizes, vocab_size: 262_208, max_position_embeddings: 131_072, rope_theta: 1e6 },
  describe: (source) => describeGemma3(source, false),
};

/** EmbeddingGemma in a GGUF file; its folders say in a field of Gemma 3 that they are of an encoder. */
export const gemmaEmbedding: Family = {
  ...common,
  name: "gemma-embedding",
  models: "EmbeddingGemma",
  classes: [],
  metadata: ["gemma-embedding"],
  isEncoder: true,
  describe: (source) => describeGemma3(source, true),
};
