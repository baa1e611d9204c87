/**
 * Apertus: Llama with norms of the heads of q and k, and an MLP without a gate whose activation has numbers of
 * its own in each layer.
 */
import { plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import { type Family, layersOf } from "./family.ts";

export const apertus: Family = {
  name: "apertus",
  models: "Apertus 8B and 70B",
  classes: ["ApertusForCausalLM"],
  metadata: ["apertus"],
  kvHeadsOptional: true,
  defaults: {
    rms_norm_eps: 1e-5,
    hidden_act: "xielu",
    rope_theta: 12e6,
    rope_parameters: {
      rope_type: "llama3",
      rope_theta: 12e6,
      factor: 8,
      original_max_position_embeddings: 8192,
      low_freq_factor: 1,
      high_freq_factor: 4,
    },
  },
  folderNames: {
    [TensorKind.attentionNorm]: "attention_layernorm.weight",
    [TensorKind.mlpNorm]: "feedforward_layernorm.weight",
  },
  describe(source) {
    const biases = { ...biasesOf(source), gateUp: false, down: false };
    return {
      activation: source.activation("xielu"),
      ropes: [source.rope()],
      layers: layersOf(source.layers, () => ({ ...plainLayer, mlp: "plain", biases, qkNorm: "head" })),
    };
  },
};

/** Apertus 1.5: its embedding has rows for image and audio tokens, which its vocabulary projection lacks. */
export const apertus15: Family = {
  ...apertus,
  name: "apertus1p5_text",
  models: "Apertus 1.5 8B (text)",
  classes: ["Apertus1p5TextForCausalLM"],
  wrappers: ["Apertus1p5ForConditionalGeneration"],
  metadata: [],
  hasMoreRows: true,
  unread: /^model\.(vision|audio)_tokenizer\./,
  describe(source) {
    const { vocab } = source.sizes;
    return {
      ...apertus.describe(source),
      vocab: source.integer(["output_vocab_size", null], 1, shapeLimits.vocab, vocab),
    };
  },
};
