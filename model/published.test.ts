/** Configurations as published, with the fields that matter here and some that do not. */
import { expect, test } from "bun:test";
import { parseModelConfig } from "./config.ts";
import type { JsonObject } from "./json.ts";

const llama2: JsonObject = {
  architectures: ["LlamaForCausalLM"],
  bos_token_id: 1,
  eos_token_id: 2,
  hidden_act: "silu",
  hidden_size: 4096,
  initializer_range: 0.02,
  intermediate_size: 11008,
  max_position_embeddings: 4096,
  model_type: "llama",
  num_attention_heads: 32,
  num_hidden_layers: 32,
  num_key_value_heads: 32,
  pretraining_tp: 1,
  rms_norm_eps: 1e-5,
  rope_scaling: null,
  tie_word_embeddings: false,
  torch_dtype: "float16",
  vocab_size: 32000,
};
const llama32: JsonObject = {
  architectures: ["LlamaForCausalLM"],
  attention_bias: false,
  attention_dropout: 0.0,
  eos_token_id: [128001, 128008, 128009],
  head_dim: 64,
  hidden_act: "silu",
  hidden_size: 2048,
  intermediate_size: 8192,
  max_position_embeddings: 131072,
  mlp_bias: false,
  model_type: "llama",
  num_attention_heads: 32,
  num_hidden_layers: 16,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-5,
  rope_scaling: {
    factor: 32.0,
    high_freq_factor: 4.0,
    low_freq_factor: 1.0,
    original_max_position_embeddings: 8192,
    rope_type: "llama3",
  },
  rope_theta: 500000.0,
  tie_word_embeddings: true,
  torch_dtype: "bfloat16",
  vocab_size: 128256,
};
const mistral: JsonObject = {
  architectures: ["MistralForCausalLM"],
  bos_token_id: 1,
  eos_token_id: 2,
  hidden_act: "silu",
  hidden_size: 4096,
  intermediate_size: 14336,
  max_position_embeddings: 32768,
  model_type: "mistral",
  num_attention_heads: 32,
  num_hidden_layers: 32,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-5,
  rope_theta: 10000.0,
  sliding_window: 4096,
  tie_word_embeddings: false,
  vocab_size: 32000,
};
const nemo: JsonObject = {
  ...mistral,
  head_dim: 128,
  hidden_size: 5120,
  max_position_embeddings: 131072,
  num_hidden_layers: 40,
  rope_theta: 1000000.0,
  sliding_window: null,
  vocab_size: 131072,
};
const qwen25: JsonObject = {
  architectures: ["Qwen2ForCausalLM"],
  attention_dropout: 0.0,
  bos_token_id: 151643,
  eos_token_id: 151645,
  hidden_act: "silu",
  hidden_size: 896,
  intermediate_size: 4864,
  max_position_embeddings: 32768,
  max_window_layers: 21,
  model_type: "qwen2",
  num_attention_heads: 14,
  num_hidden_layers: 24,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1000000.0,
  sliding_window: 32768,
  tie_word_embeddings: true,
  use_sliding_window: false,
  vocab_size: 151936,
};
const qwen3: JsonObject = {
  architectures: ["Qwen3ForCausalLM"],
  attention_bias: false,
  bos_token_id: 151643,
  eos_token_id: 151645,
  head_dim: 128,
  hidden_act: "silu",
  hidden_size: 1024,
  intermediate_size: 3072,
  max_position_embeddings: 40960,
  max_window_layers: 28,
  model_type: "qwen3",
  num_attention_heads: 16,
  num_hidden_layers: 28,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-6,
  rope_scaling: null,
  rope_theta: 1000000,
  sliding_window: null,
  tie_word_embeddings: true,
  use_sliding_window: false,
  vocab_size: 151936,
};

test.each<[string, JsonObject, string]>([
  ["Llama 2 7B", llama2, "llama 32x4096 heads 32/32x128 context 4096 window 0 plain 10000"],
  ["Llama 3.2 1B", llama32, "llama 16x2048 heads 32/8x64 context 131072 window 0 llama3 500000 tied"],
  ["Mistral 7B v0.1", mistral, "mistral 32x4096 heads 32/8x128 context 32768 window 4096 plain 10000"],
  ["Mistral Nemo 12B", nemo, "mistral 40x5120 heads 32/8x128 context 131072 window 0 plain 1000000"],
  ["Qwen2.5 0.5B", qwen25, "qwen2 24x896 heads 14/2x64 context 32768 window 0 plain 1000000 tied bias"],
  ["Qwen3 0.6B", qwen3, "qwen3 28x1024 heads 16/8x128 context 40960 window 0 plain 1000000 tied norm"],
])("%s is read as what it is", (_, json, summary) => {
  const { family, shape } = parseModelConfig({ file: "config.json", json }, { file: "", json: {} });
  const [layer] = shape.layers;
  const [rope] = shape.ropes;
  const flags = [
    shape.tiedEmbeddings ? " tied" : "",
    layer!.biases.qkv ? " bias" : "",
    layer!.qkNorm === "head" ? " norm" : "",
  ].join("");
  expect(
    `${family} ${shape.layers.length}x${shape.hidden} heads ${shape.queryHeads}/${shape.kvHeads}x${shape.headSize} ` +
      `context ${shape.contextMax} window ${layer!.slidingWindow} ${rope!.kind} ${rope!.theta}${flags}`,
  ).toBe(summary);
});
