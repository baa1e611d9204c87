/** Shapes of published models: what their config.json says of the computation. */
import type { JsonObject } from "../../gpu/model/json.ts";

export interface PublishedShape {
  /** Weights of the published model, tied embeddings counted once. */
  readonly parameters: number;
  readonly config: JsonObject;
}

const common = { hidden_act: "silu", initializer_range: 0.02 };

const llama3 = {
  ...common,
  architectures: ["LlamaForCausalLM"],
  attention_bias: false,
  model_type: "llama",
  max_position_embeddings: 131_072,
  mlp_bias: false,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-5,
  rope_theta: 500_000,
  vocab_size: 128_256,
};
const llama3Rope = {
  rope_type: "llama3",
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};
const qwen3 = {
  ...common,
  architectures: ["Qwen3ForCausalLM"],
  attention_bias: false,
  model_type: "qwen3",
  head_dim: 128,
  max_position_embeddings: 40_960,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  use_sliding_window: false,
  vocab_size: 151_936,
};

export const publishedShapes: Readonly<Record<string, PublishedShape>> = {
  "Qwen2.5-0.5B": {
    parameters: 494_032_768,
    config: {
      ...common,
      architectures: ["Qwen2ForCausalLM"],
      model_type: "qwen2",
      hidden_size: 896,
      intermediate_size: 4864,
      max_position_embeddings: 32_768,
      num_attention_heads: 14,
      num_hidden_layers: 24,
      num_key_value_heads: 2,
      rms_norm_eps: 1e-6,
      rope_theta: 1_000_000,
      tie_word_embeddings: true,
      use_sliding_window: false,
      vocab_size: 151_936,
    },
  },
  "Llama-3.2-1B": {
    parameters: 1_235_814_400,
    config: {
      ...llama3,
      head_dim: 64,
      hidden_size: 2048,
      intermediate_size: 8192,
      num_hidden_layers: 16,
      rope_scaling: { ...llama3Rope, factor: 32 },
      tie_word_embeddings: true,
    },
  },
  "Llama-3.1-8B": {
    parameters: 8_030_261_248,
    config: {
      ...llama3,
      hidden_size: 4096,
      intermediate_size: 14_336,
      num_hidden_layers: 32,
      rope_scaling: { ...llama3Rope, factor: 8 },
      tie_word_embeddings: false,
    },
  },
  // The first release (v0.1), the one with a sliding window.
  "Mistral-7B": {
    parameters: 7_241_732_096,
    config: {
      ...common,
      architectures: ["MistralForCausalLM"],
      model_type: "mistral",
      hidden_size: 4096,
      intermediate_size: 14_336,
      max_position_embeddings: 32_768,
      num_attention_heads: 32,
      num_hidden_layers: 32,
      num_key_value_heads: 8,
      rms_norm_eps: 1e-5,
      rope_theta: 10_000,
      sliding_window: 4096,
      tie_word_embeddings: false,
      vocab_size: 32_000,
    },
  },
  "Qwen3-0.6B": {
    parameters: 596_049_920,
    config: {
      ...qwen3,
      hidden_size: 1024,
      intermediate_size: 3072,
      num_attention_heads: 16,
      num_hidden_layers: 28,
      tie_word_embeddings: true,
    },
  },
  "Qwen3-30B-A3B": {
    parameters: 30_532_122_624,
    config: {
      ...qwen3,
      architectures: ["Qwen3MoeForCausalLM"],
      decoder_sparse_step: 1,
      hidden_size: 2048,
      intermediate_size: 6144,
      mlp_only_layers: [],
      model_type: "qwen3_moe",
      moe_intermediate_size: 768,
      norm_topk_prob: true,
      num_attention_heads: 32,
      num_experts: 128,
      num_experts_per_tok: 8,
      num_hidden_layers: 48,
      num_key_value_heads: 4,
      tie_word_embeddings: false,
    },
  },
  "gpt-oss-20b": {
    parameters: 20_914_757_184,
    config: {
      ...common,
      architectures: ["GptOssForCausalLM"],
      attention_bias: true,
      head_dim: 64,
      hidden_size: 2880,
      intermediate_size: 2880,
      max_position_embeddings: 131_072,
      model_type: "gpt_oss",
      num_attention_heads: 64,
      num_experts_per_tok: 4,
      num_hidden_layers: 24,
      num_key_value_heads: 8,
      num_local_experts: 32,
      rms_norm_eps: 1e-5,
      rope_scaling: {
        rope_type: "yarn",
        beta_fast: 32,
        beta_slow: 1,
        factor: 32,
        original_max_position_embeddings: 4096,
        truncate: false,
      },
      rope_theta: 150_000,
      sliding_window: 128,
      tie_word_embeddings: false,
      vocab_size: 201_088,
    },
  },
  "Qwen3-8B": {
    parameters: 8_190_735_360,
    config: {
      ...qwen3,
      hidden_size: 4096,
      intermediate_size: 12_288,
      num_attention_heads: 32,
      num_hidden_layers: 36,
      tie_word_embeddings: false,
    },
  },
};
