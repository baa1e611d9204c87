/**
 * Configurations of small models of every family, beyond those with weights committed in this folder. Each has
 * the parts of its family that others lack.
 */
import type { JsonObject } from "../../model/json.ts";

export const vocab = 300;
const sizes = {
  hidden_size: 64,
  intermediate_size: 96,
  max_position_embeddings: 256,
  num_attention_heads: 4,
  num_hidden_layers: 3,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-5,
  vocab_size: vocab,
  head_dim: 32,
  tie_word_embeddings: false,
};
const of = (name: string, model_type: string, fields: JsonObject): JsonObject => ({
  ...sizes,
  architectures: [`${name}ForCausalLM`],
  model_type,
  ...fields,
});
/** A model of text and images, whose image tower has one small layer and is not written. */
const wrapped = (name: string, model_type: string, fields: JsonObject): JsonObject => ({
  architectures: [`${name}ForConditionalGeneration`],
  model_type,
  text_config: { ...sizes, model_type: `${model_type}_text`, ...fields },
  vision_config: {
    ...{ depth: 1, hidden_size: 32, num_heads: 2, out_hidden_size: 64, intermediate_size: 32 },
    ...{ patch_size: 14, fullatt_block_indexes: [0], deepstack_visual_indexes: [0] },
  },
});
const yarn = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 32 };
/** Sizes of models with latent attention, whose configurations have no head size. */
const latents = { head_dim: undefined, num_key_value_heads: 4 };
const deepseekYarn = { ...yarn, beta_fast: 32, beta_slow: 1 };
const factors = (least: number, most: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => least + ((most - least) * index) / (count - 1));
const longrope = {
  rope_type: "longrope",
  short_factor: factors(1, 1.5, 12),
  long_factor: factors(1, 20, 12),
};

const layerType = (letter: string): string => (letter === "s" ? "sliding_attention" : "full_attention");
const gemma4 = {
  hidden_activation: "gelu_pytorch_tanh",
  head_dim: 32,
  global_head_dim: 64,
  sliding_window: 12,
  final_logit_softcapping: 3.5,
  tie_word_embeddings: true,
};

const deltaNet = {
  ...{ linear_num_key_heads: 2, linear_num_value_heads: 4, linear_conv_kernel_dim: 4 },
  ...{ linear_key_head_dim: 32, linear_value_head_dim: 32, attn_output_gate: true },
};
const mamba = {
  ...{ mamba_n_heads: 8, mamba_d_head: 32, mamba_d_state: 16, mamba_d_conv: 4, mamba_expand: 2 },
  ...{ mamba_conv_bias: true, mamba_proj_bias: false, mamba_chunk_size: 16 },
};
const graniteScales = {
  ...{ embedding_multiplier: 6.5, attention_multiplier: 0.3, residual_multiplier: 0.22 },
  logits_scaling: 4.5,
};
const falconH1 = {
  ...{ mamba_d_ssm: 128, mamba_n_heads: 4, mamba_d_head: 32, mamba_d_state: 16, mamba_d_conv: 4 },
  ...{ mamba_conv_bias: true, mamba_proj_bias: false, mamba_rms_norm: false, mamba_chunk_size: 16 },
  ...{ projectors_bias: false, rope_theta: 1e11, embedding_multiplier: 5.65, lm_head_multiplier: 0.4 },
  ...{ attention_in_multiplier: 0.9, attention_out_multiplier: 0.94, key_multiplier: 0.39 },
  ...{ ssm_in_multiplier: 1.25, ssm_out_multiplier: 0.24, mlp_multipliers: [0.88, 0.58] },
  ssm_multipliers: [0.35, 0.25, 0.18, 0.5, 0.35],
};
const nemotronH = {
  ...{ ssm_state_size: 16, mamba_num_heads: 4, mamba_head_dim: 32, n_groups: 2, conv_kernel: 4 },
  ...{ mamba_hidden_act: "silu", mlp_hidden_act: "relu2", use_conv_bias: true, use_bias: false },
  ...{ chunk_size: 16, rms_norm_eps: undefined, layer_norm_epsilon: 1e-5 },
};
const qwen35 = {
  rope_parameters: {
    ...{ rope_type: "default", rope_theta: 1e7, partial_rotary_factor: 0.5 },
    ...{ mrope_section: [3, 3, 2], mrope_interleaved: true },
  },
};

/** Configurations (config.json) by name; of three layers, or as many as all layer kinds need. */
export const familyConfigs: Readonly<Record<string, JsonObject>> = {
  "llama-biases": of("Llama", "llama", { attention_bias: true, mlp_bias: true }),
  "llama-yarn": of("Llama", "llama", {
    rope_theta: 10_000,
    rope_scaling: { ...yarn, attention_factor: 1.25 },
  }),
  "llama-dynamic": of("Llama", "llama", {
    rope_theta: 10_000,
    rope_scaling: { rope_type: "dynamic", factor: 2 },
  }),
  "qwen2-yarn": of("Qwen2", "qwen2", { rope_theta: 1e6, rope_scaling: yarn }),
  "qwen3-windows": of("Qwen3", "qwen3", {
    use_sliding_window: true,
    sliding_window: 12,
    max_window_layers: 1,
  }),
  ministral: of("Ministral", "ministral", {
    sliding_window: 12,
    layer_types: ["full_attention", "sliding_attention", "sliding_attention"],
  }),
  ministral3: of("Ministral3", "ministral3", {
    rope_parameters: {
      ...yarn,
      original_max_position_embeddings: 16,
      rope_theta: 1e6,
      beta_fast: 32,
      beta_slow: 1,
      mscale: 1,
      mscale_all_dim: 1,
      llama_4_scaling_beta: 0.1,
    },
  }),
  gemma: of("Gemma", "gemma", { hidden_activation: "gelu_pytorch_tanh", tie_word_embeddings: true }),
  glm: of("Glm", "glm", { partial_rotary_factor: 0.5, attention_bias: true }),
  internlm2: of("InternLM2", "internlm2", {
    head_dim: undefined,
    hidden_size: 128,
    bias: true,
    rope_theta: 1e6,
    rope_scaling: { type: "dynamic", factor: 2 },
  }),
  internlm3: of("InternLM3", "internlm3", {
    qkv_bias: true,
    bias: true,
    rope_scaling: { rope_type: "dynamic", factor: 6 },
  }),
  gemma2: of("Gemma2", "gemma2", {
    num_hidden_layers: 4,
    hidden_activation: "gelu_pytorch_tanh",
    query_pre_attn_scalar: 32,
    attn_logit_softcapping: 5.5,
    final_logit_softcapping: 3.5,
    sliding_window: 12,
    tie_word_embeddings: true,
  }),
  gemma3: of("Gemma3", "gemma3_text", {
    num_hidden_layers: 7,
    hidden_activation: "gelu_pytorch_tanh",
    query_pre_attn_scalar: 32,
    num_key_value_heads: 1,
    rope_theta: 1e6,
    rope_local_base_freq: 10_000,
    rope_scaling: { rope_type: "linear", factor: 8 },
    sliding_window: 12,
    tie_word_embeddings: true,
  }),
  // Per-layer inputs, keys of earlier layers, and double MLPs, as in the small models.
  gemma4: of("Gemma4", "gemma4_text", {
    ...gemma4,
    num_hidden_layers: 8,
    layer_types: [..."ssfsfssf"].map(layerType),
    num_kv_shared_layers: 4,
    use_double_wide_mlp: true,
    hidden_size_per_layer_input: 16,
    vocab_size_per_layer_input: vocab,
  }),
  // Values that are keys, with fewer heads.
  "gemma4-keys": of("Gemma4", "gemma4_text", {
    ...gemma4,
    num_hidden_layers: 3,
    layer_types: [..."ssf"].map(layerType),
    hidden_size_per_layer_input: 0,
    attention_k_eq_v: true,
    num_global_key_value_heads: 1,
  }),
  "gemma4-unified": of("Gemma4Unified", "gemma4_unified_text", {
    ...gemma4,
    num_hidden_layers: 4,
    layer_types: [..."sfsf"].map(layerType),
    num_kv_shared_layers: 1,
  }),
  "gemma4-moe": of("Gemma4", "gemma4_text", {
    ...gemma4,
    num_hidden_layers: 3,
    layer_types: [..."sfs"].map(layerType),
    hidden_size_per_layer_input: 0,
    attention_k_eq_v: true,
    num_global_key_value_heads: 1,
    enable_moe_block: true,
    num_experts: 6,
    top_k_experts: 2,
    moe_intermediate_size: 40,
  }),
  "phi3-long": of("Phi3", "phi3", {
    head_dim: undefined,
    hidden_size: 128,
    partial_rotary_factor: 0.75,
    original_max_position_embeddings: 32,
    rope_theta: 10_000,
    rope_scaling: longrope,
  }),
  "phi3-short": of("Phi3", "phi3", {
    head_dim: undefined,
    hidden_size: 128,
    partial_rotary_factor: 0.75,
    original_max_position_embeddings: 256,
    sliding_window: 20,
    rope_theta: 10_000,
    rope_scaling: longrope,
  }),
  smollm3: of("SmolLM3", "smollm3", {
    num_hidden_layers: 4,
    head_dim: undefined,
    hidden_size: 128,
    rope_theta: 2e6,
  }),
  granite: of("Granite", "granite", {
    head_dim: undefined,
    hidden_size: 128,
    embedding_multiplier: 6.5,
    attention_multiplier: 0.3,
    residual_multiplier: 0.22,
    logits_scaling: 4.5,
  }),
  olmo2: of("Olmo2", "olmo2", { head_dim: undefined, hidden_size: 128 }),
  olmo3: of("Olmo3", "olmo3", {
    num_hidden_layers: 4,
    head_dim: undefined,
    hidden_size: 128,
    sliding_window: 12,
    rope_theta: 500_000,
    rope_scaling: yarn,
  }),
  glm4: of("Glm4", "glm4", { partial_rotary_factor: 0.5, attention_bias: true }),
  cohere2: of("Cohere2", "cohere2", {
    num_hidden_layers: 4,
    sliding_window: 12,
    layer_norm_eps: 1e-5,
    logit_scale: 0.25,
    tie_word_embeddings: true,
  }),
  "qwen3-moe": of("Qwen3Moe", "qwen3_moe", {
    num_experts: 6,
    num_experts_per_tok: 3,
    moe_intermediate_size: 40,
    norm_topk_prob: false,
    mlp_only_layers: [1],
    decoder_sparse_step: 1,
  }),
  "qwen3-moe-chosen": of("Qwen3Moe", "qwen3_moe", {
    num_experts: 5,
    num_experts_per_tok: 2,
    moe_intermediate_size: 48,
    norm_topk_prob: true,
  }),
  mixtral: of("Mixtral", "mixtral", { num_local_experts: 4, num_experts_per_tok: 2, sliding_window: null }),
  olmoe: of("Olmoe", "olmoe", {
    head_dim: undefined,
    hidden_size: 128,
    num_experts: 6,
    num_experts_per_tok: 3,
  }),
  "granite-moe": of("GraniteMoe", "granitemoe", {
    head_dim: undefined,
    hidden_size: 128,
    num_local_experts: 6,
    num_experts_per_tok: 2,
    embedding_multiplier: 6.5,
    attention_multiplier: 0.3,
    residual_multiplier: 0.22,
    logits_scaling: 4.5,
  }),
  "gpt-oss": of("GptOss", "gpt_oss", {
    num_local_experts: 5,
    num_experts_per_tok: 2,
    sliding_window: 12,
    attention_bias: true,
    rope_theta: 150_000,
    rope_scaling: { ...yarn, beta_fast: 32, beta_slow: 1, truncate: false },
  }),
  "gpt-oss-mxfp4": of("GptOss", "gpt_oss", {
    num_local_experts: 6,
    num_experts_per_tok: 3,
    sliding_window: 12,
    attention_bias: true,
    rope_theta: 150_000,
    rope_scaling: { ...yarn, beta_fast: 32, beta_slow: 1, truncate: false },
    quantization_config: { quant_method: "mxfp4" },
  }),
  // Models of text and images: one as published first, with the fields of text outside, and two of today.
  "qwen2-5-vl": of("Qwen2_5_VL", "qwen2_5_vl", {
    architectures: ["Qwen2_5_VLForConditionalGeneration"],
    head_dim: undefined,
    hidden_size: 128,
    rope_theta: 1e6,
    rope_scaling: { type: "mrope", mrope_section: [4, 6, 6] },
    use_sliding_window: false,
    vision_config: { depth: 1, hidden_size: 32, num_heads: 2, out_hidden_size: 128, intermediate_size: 32 },
  }),
  "qwen3-vl": wrapped("Qwen3VL", "qwen3_vl", {
    rope_scaling: { rope_type: "default", mrope_section: [6, 5, 5], mrope_interleaved: true },
    rope_theta: 5e6,
  }),
  "qwen3-vl-moe": wrapped("Qwen3VLMoe", "qwen3_vl_moe", {
    num_experts: 6,
    num_experts_per_tok: 3,
    moe_intermediate_size: 48,
    norm_topk_prob: true,
    rope_scaling: { rope_type: "default", mrope_section: [6, 5, 5], mrope_interleaved: true },
    rope_theta: 5e6,
  }),
  "granite4-dense": of("GraniteMoeHybrid", "granitemoehybrid", {
    ...{ head_dim: undefined, hidden_size: 128, intermediate_size: 200, shared_intermediate_size: 96 },
    layer_types: Array(3).fill("attention"),
    num_local_experts: 0,
    num_experts_per_tok: 0,
    position_embedding_type: "rope",
    embedding_multiplier: 6.5,
    attention_multiplier: 0.3,
    residual_multiplier: 0.22,
    logits_scaling: 4.5,
  }),
  exaone4: of("Exaone4", "exaone4", {
    num_hidden_layers: 4,
    sliding_window: 12,
    sliding_window_pattern: "LLLG",
    layer_types: [..."sssf"].map(layerType),
    rope_theta: 1e6,
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 16, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 64,
    },
  }),
  "exaone4-full": of("Exaone4", "exaone4", {
    sliding_window: null,
    layer_types: Array(3).fill("full_attention"),
    rope_theta: 1e6,
  }),
  "qwen2-moe": of("Qwen2Moe", "qwen2_moe", {
    ...{ head_dim: undefined, hidden_size: 128 },
    ...{ num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 40 },
    shared_expert_intermediate_size: 64,
    mlp_only_layers: [1],
    norm_topk_prob: false,
  }),
  "glm4-moe": of("Glm4Moe", "glm4_moe", {
    ...{ n_routed_experts: 8, num_experts_per_tok: 3, moe_intermediate_size: 32, n_shared_experts: 2 },
    ...{ n_group: 1, topk_group: 1, routed_scaling_factor: 2.5, first_k_dense_replace: 1 },
    ...{ attention_bias: true, use_qk_norm: true, partial_rotary_factor: 0.5 },
    ...{ num_nextn_predict_layers: 1, rope_theta: 1e6 },
  }),
  "glm4-moe-groups": of("Glm4Moe", "glm4_moe", {
    ...{ n_routed_experts: 12, num_experts_per_tok: 3, moe_intermediate_size: 40, n_shared_experts: 1 },
    ...{ n_group: 4, topk_group: 2, routed_scaling_factor: 1.5, first_k_dense_replace: 0 },
    ...{ num_nextn_predict_layers: 0, norm_topk_prob: false, intermediate_size: 64 },
  }),
  "deepseek-v2": of("DeepseekV2", "deepseek_v2", {
    ...latents,
    ...{ q_lora_rank: null, kv_lora_rank: 32, qk_nope_head_dim: 48, qk_rope_head_dim: 16, v_head_dim: 32 },
    ...{ n_routed_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 32, n_shared_experts: 2 },
    ...{ n_group: 1, topk_group: 1, topk_method: "greedy", norm_topk_prob: false, scoring_func: "softmax" },
    ...{ first_k_dense_replace: 1, moe_layer_freq: 1, rope_theta: 10_000 },
    rope_scaling: { ...deepseekYarn, mscale: 0.75, mscale_all_dim: 0.75 },
  }),
  "deepseek-v3": of("DeepseekV3", "deepseek_v3", {
    ...latents,
    ...{ q_lora_rank: 48, kv_lora_rank: 64, qk_nope_head_dim: 32, qk_rope_head_dim: 32, v_head_dim: 48 },
    ...{ n_routed_experts: 12, num_experts_per_tok: 3, moe_intermediate_size: 32, n_shared_experts: 1 },
    ...{ n_group: 4, topk_group: 2, topk_method: "noaux_tc", norm_topk_prob: true, scoring_func: "sigmoid" },
    ...{ first_k_dense_replace: 1, moe_layer_freq: 1, routed_scaling_factor: 2.5, rope_theta: 10_000 },
    ...{ num_nextn_predict_layers: 1, rope_scaling: { ...deepseekYarn, mscale: 1, mscale_all_dim: 1 } },
  }),
  "glm4-moe-lite": of("Glm4MoeLite", "glm4_moe_lite", {
    ...latents,
    ...{ q_lora_rank: 32, kv_lora_rank: 32, qk_nope_head_dim: 48, qk_rope_head_dim: 16, v_head_dim: 64 },
    ...{ n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64, n_shared_experts: 1 },
    ...{ routed_scaling_factor: 1.8, norm_topk_prob: true, rope_theta: 1e6, num_nextn_predict_layers: 1 },
    rope_scaling: null,
  }),
  mistral4: of("Mistral4", "mistral4", {
    ...latents,
    ...{ q_lora_rank: 32, kv_lora_rank: 64, qk_nope_head_dim: 16, qk_rope_head_dim: 16, v_head_dim: 32 },
    ...{ n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 32, n_shared_experts: 1 },
    ...{
      n_group: 1,
      topk_group: 1,
      routed_scaling_factor: 1.5,
      norm_topk_prob: true,
      first_k_dense_replace: 0,
    },
    rope_parameters: {
      ...{ ...deepseekYarn, original_max_position_embeddings: 16, rope_theta: 10_000, mscale: 1 },
      ...{ mscale_all_dim: 1, llama_4_scaling_beta: 0.1, partial_rotary_factor: 0.5 },
    },
  }),
  "bailing-moe": of("BailingMoeV2", "bailing_moe", {
    ...{ num_experts: 12, num_experts_per_tok: 3, moe_intermediate_size: 32, num_shared_experts: 1 },
    ...{ n_group: 4, topk_group: 2, routed_scaling_factor: 2.5, first_k_dense_replace: 1 },
    ...{ partial_rotary_factor: 0.5, rope_theta: 600_000, rope_scaling: null, use_qk_norm: true },
    ...{ score_function: "sigmoid", moe_router_enable_expert_bias: true, norm_topk_prob: true },
  }),
  "minimax-m2": of("MiniMaxM2", "minimax_m2", {
    ...{ num_local_experts: 8, num_experts_per_tok: 3, intermediate_size: 40, rotary_dim: 16 },
    ...{ rope_theta: 5e6, scoring_func: "sigmoid", use_qk_norm: true, qk_norm_type: "per_layer" },
  }),
  ernie: of("Ernie4_5", "ernie4_5", { rope_theta: 500_000, use_bias: false, tie_word_embeddings: true }),
  "ernie-moe": of("Ernie4_5_Moe", "ernie4_5_moe", {
    ...{ head_dim: undefined, hidden_size: 128, num_hidden_layers: 4, rope_theta: 500_000 },
    ...{ moe_num_experts: 8, moe_k: 3, moe_intermediate_size: 32, moe_num_shared_experts: 2 },
    ...{ moe_layer_start_index: 1, moe_layer_end_index: 3, moe_layer_interval: 1 },
    tie_word_embeddings: true,
  }),
  "hunyuan-dense": of("HunYuanDenseV1", "hunyuan_v1_dense", {
    ...{ tie_word_embeddings: true, rope_theta: 10_000 },
    rope_scaling: { type: "dynamic", alpha: 50, factor: 1 },
  }),
  "hunyuan-moe": of("HunYuanMoEV1", "hunyuan_v1_moe", {
    ...{
      num_experts: 6,
      moe_topk: [2, 2, 2],
      moe_intermediate_size: [96, 96, 96],
      num_shared_expert: [1, 1, 1],
    },
    ...{ tie_word_embeddings: true, rope_theta: 10_000 },
    rope_scaling: { type: "dynamic", alpha: 1000, factor: 1 },
  }),
  llama4: of("Llama4", "llama4_text", {
    ...{ num_hidden_layers: 4, intermediate_size: 32, intermediate_size_mlp: 96 },
    ...{ num_local_experts: 8, num_experts_per_tok: 1, interleave_moe_layer_step: 2 },
    ...{ attention_chunk_size: 20, attn_temperature_tuning: true, attn_scale: 0.3, floor_scale: 8 },
    ...{ no_rope_layers: [1, 1, 0, 1], use_qk_norm: true, rope_theta: 500_000 },
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 1 },
      original_max_position_embeddings: 32,
    },
  }),
  // Numbers that files do not have are those of the published models; both factors of the rope are 1.
  "llama4-published": of("Llama4", "llama4_text", {
    ...{ num_hidden_layers: 4, intermediate_size: 32, intermediate_size_mlp: 96 },
    ...{ num_local_experts: 8, num_experts_per_tok: 1, interleave_moe_layer_step: 2 },
    ...{ attention_chunk_size: 8192, attn_temperature_tuning: true, attn_scale: 0.1, floor_scale: 8192 },
    ...{ no_rope_layers: [1, 1, 1, 0], use_qk_norm: true, rope_theta: 500_000 },
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 16, low_freq_factor: 1, high_freq_factor: 1 },
      original_max_position_embeddings: 64,
    },
  }),
  starcoder2: of("Starcoder2", "starcoder2", {
    ...{ head_dim: undefined, hidden_size: 128, rms_norm_eps: undefined, norm_epsilon: 1e-5 },
    ...{ sliding_window: 12, use_bias: true, hidden_act: "gelu_pytorch_tanh", rope_theta: 999_999.4375 },
    tie_word_embeddings: true,
  }),
  apertus: of("Apertus", "apertus", {
    ...{ hidden_act: "xielu", rope_theta: 12e6 },
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 64,
    },
  }),
  "apertus1.5": of("Apertus1p5Text", "apertus1p5_text", {
    ...{ hidden_act: "xielu", rope_theta: 12e6, vocab_size: 340, output_vocab_size: vocab },
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 64,
    },
  }),
  // Two layers with sparse gates, and two that read keys of others.
  gemma3n: of("Gemma3n", "gemma3n_text", {
    ...{ hidden_activation: "gelu_pytorch_tanh", num_hidden_layers: 6, sliding_window: 12 },
    ...{ layer_types: [..."ssfssf"].map(layerType), num_kv_shared_layers: 2 },
    ...{ intermediate_size: Array(6).fill(256), activation_sparsity_pattern: [0.95, 0.6, 0, 0, 0, 0] },
    ...{ hidden_size_per_layer_input: 16, vocab_size_per_layer_input: vocab, laurel_rank: 8 },
    ...{ altup_num_inputs: 4, altup_active_idx: 0, altup_correct_scale: true },
    ...{ final_logit_softcapping: 3.5, rope_theta: 1e6, rope_local_base_freq: 10_000 },
    tie_word_embeddings: true,
  }),
  // DeltaNets with several value heads per key head, and with one.
  "qwen3-next": of("Qwen3Next", "qwen3_next", {
    ...{ ...deltaNet, num_hidden_layers: 4, partial_rotary_factor: 0.5, rope_theta: 1e6 },
    ...{ num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 40, norm_topk_prob: true },
    ...{ shared_expert_intermediate_size: 64, decoder_sparse_step: 1 },
  }),
  "qwen3-5": {
    ...wrapped("Qwen3_5", "qwen3_5", {
      ...{ ...deltaNet, ...qwen35, num_hidden_layers: 4, full_attention_interval: 2 },
      ...{ linear_num_key_heads: 3, linear_num_value_heads: 3, tie_word_embeddings: true },
    }),
    tie_word_embeddings: true,
  },
  "qwen3-5-moe": wrapped("Qwen3_5Moe", "qwen3_5_moe", {
    ...{ ...deltaNet, ...qwen35, layer_types: ["linear_attention", "full_attention", "linear_attention"] },
    ...{ num_experts: 6, num_experts_per_tok: 3, moe_intermediate_size: 48 },
    ...{ shared_expert_intermediate_size: 64 },
  }),
  "granite4-hybrid": of("GraniteMoeHybrid", "granitemoehybrid", {
    ...{ ...mamba, ...graniteScales, head_dim: undefined, hidden_size: 128, shared_intermediate_size: 96 },
    ...{ num_local_experts: 0, num_experts_per_tok: 0, mamba_n_groups: 1 },
    layer_types: ["mamba", "attention", "mamba"],
    position_embedding_type: "nope",
  }),
  "granite4-moe": of("GraniteMoeHybrid", "granitemoehybrid", {
    ...{ ...mamba, ...graniteScales, head_dim: undefined, hidden_size: 128, shared_intermediate_size: 96 },
    ...{ intermediate_size: 40, num_local_experts: 6, num_experts_per_tok: 2, mamba_n_groups: 2 },
    layer_types: ["mamba", "mamba", "attention"],
    position_embedding_type: "nope",
  }),
  lfm2: of("Lfm2", "lfm2", {
    ...{ head_dim: undefined, hidden_size: 128, rms_norm_eps: undefined, norm_eps: 1e-5 },
    ...{ intermediate_size: 130, block_multiple_of: 32, block_ffn_dim_multiplier: 1, conv_L_cache: 3 },
    ...{ block_auto_adjust_ff_dim: true, conv_bias: false, tie_word_embeddings: true, rope_theta: 1e6 },
    layer_types: ["conv", "full_attention", "conv"],
  }),
  "lfm2-moe": of("Lfm2Moe", "lfm2_moe", {
    ...{ head_dim: undefined, hidden_size: 128, rms_norm_eps: undefined, norm_eps: 1e-5 },
    ...{ num_dense_layers: 1, num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 40 },
    ...{ use_expert_bias: true, norm_topk_prob: true, conv_bias: false, conv_L_cache: 4 },
    ...{ tie_word_embeddings: true, rope_theta: 1e6 },
    layer_types: ["conv", "full_attention", "conv"],
  }),
  "falcon-h1": of("FalconH1", "falcon_h1", { ...falconH1, mamba_n_groups: 1 }),
  "falcon-h1-norm": of("FalconH1", "falcon_h1", {
    ...{ ...falconH1, mamba_n_groups: 2, mamba_rms_norm: true, mamba_norm_before_gate: false },
    ...{ num_hidden_layers: 2, time_step_limit: [0.4, 1.2] },
  }),
  "nemotron-h": of("NemotronH", "nemotron_h", {
    ...{ ...nemotronH, hybrid_override_pattern: "M-*-M", num_hidden_layers: 5 },
  }),
  "nemotron-h-moe": of("NemotronH", "nemotron_h", {
    ...{ ...nemotronH, num_hidden_layers: 5 },
    layers_block_type: ["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
    ...{ n_routed_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 40, n_shared_experts: 1 },
    ...{ moe_shared_expert_intermediate_size: 64, routed_scaling_factor: 2.5, norm_topk_prob: true },
    ...{ n_group: 1, topk_group: 1 },
  }),
  mimo: of("MiMo", "mimo", {
    ...{ attention_bias: true, rope_theta: 640_000, use_sliding_window: false, num_nextn_predict_layers: 1 },
    auto_map: { AutoModelForCausalLM: "modeling_mimo.MiMoForCausalLM" },
  }),
  arcee: of("Arcee", "arcee", { hidden_act: "relu2", rope_theta: 10_000, rope_scaling: yarn }),
  afmoe: of("Afmoe", "afmoe", {
    ...{ num_hidden_layers: 4, num_dense_layers: 1, num_experts: 8, num_experts_per_tok: 3 },
    ...{ moe_intermediate_size: 32, num_shared_experts: 2, route_scale: 2.8, route_norm: true },
    ...{ n_group: 1, topk_group: 1, global_attn_every_n_layers: 4, sliding_window: 12, mup_enabled: true },
    layer_types: [..."sssf"].map(layerType),
    rope_theta: 10_000,
  }),
  mellum: of("Mellum", "mellum", {
    ...{ num_hidden_layers: 4, num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 40 },
    ...{ norm_topk_prob: true, sliding_window: 12 },
    layer_types: [..."ssfs"].map(layerType),
    rope_parameters: {
      full_attention: { ...deepseekYarn, rope_theta: 500_000 },
      sliding_attention: { rope_type: "default", rope_theta: 20_000 },
    },
  }),
  "granite-swa": of("GraniteSWA", "granite_swa", {
    ...{ ...graniteScales, head_dim: undefined, hidden_size: 128, num_hidden_layers: 5 },
    ...{ sliding_window: 12, rope_theta: 10_000, layer_rope_theta: [0, 10_000, 10_000, 0, 10_000] },
    layer_types: [..."fsssf"].map(layerType),
    tie_word_embeddings: true,
  }),
  "granite-swa-thetas": of("GraniteSWA", "granite_swa", {
    ...{ ...graniteScales, head_dim: undefined, hidden_size: 128, sliding_window: 12 },
    ...{ rope_theta: 10_000, layer_rope_theta: [500_000, 10_000, 0] },
  }),
  "granite-moe-swa": of("GraniteMoeSWA", "granitemoe_swa", {
    ...{ ...graniteScales, head_dim: undefined, hidden_size: 128, sliding_window: 12 },
    ...{ num_local_experts: 6, num_experts_per_tok: 2, shared_intermediate_size: 0, rope_theta: 10_000 },
  }),
  hyperclovax: of("HyperCLOVAX", "hyperclovax", {
    ...{ ...graniteScales, logits_scaling: 0.4, head_dim: undefined, hidden_size: 128 },
    ...{ use_post_norm: true, rope_theta: 500_000 },
  }),
  // Untied: while it loads this family, transformers clears the embedding of the padding token.
  youtu: of("Youtu", "youtu", {
    ...latents,
    ...{ q_lora_rank: 48, kv_lora_rank: 64, qk_nope_head_dim: 32, qk_rope_head_dim: 32, v_head_dim: 48 },
    ...{ rope_theta: 1_600_000, rope_interleave: true },
  }),
  cohere: of("Cohere", "cohere", {
    ...{ head_dim: undefined, hidden_size: 128, rms_norm_eps: undefined, layer_norm_eps: 1e-5 },
    ...{ logit_scale: 0.25, use_qk_norm: false, rope_theta: 8e6, tie_word_embeddings: true },
  }),
  nemotron: of("Nemotron", "nemotron", {
    ...{ hidden_act: "relu2", partial_rotary_factor: 0.5, rope_theta: 10_000 },
    ...{ rms_norm_eps: undefined, norm_eps: 1e-5 },
  }),
  stablelm: of("StableLm", "stablelm", {
    ...{ head_dim: undefined, hidden_size: 128, partial_rotary_factor: 0.25, rope_theta: 10_000 },
    ...{ use_qkv_bias: true, use_parallel_residual: false, rms_norm_eps: undefined, layer_norm_eps: 1e-5 },
  }),
  jais2: of("Jais2", "jais2", {
    ...{ hidden_act: "relu2", attention_bias: true, mlp_bias: true, rope_theta: 500_000 },
    ...{ rms_norm_eps: undefined, layer_norm_eps: 1e-5 },
  }),
  vaultgemma: of("VaultGemma", "vaultgemma", {
    ...{ num_hidden_layers: 4, hidden_activation: "gelu_pytorch_tanh", query_pre_attn_scalar: 32 },
    ...{ attn_logit_softcapping: 5.5, final_logit_softcapping: 3.5, sliding_window: 12 },
    layer_types: [..."sfsf"].map(layerType),
    tie_word_embeddings: true,
  }),
  minicpm: of("MiniCPM", "minicpm", {
    ...{ head_dim: undefined, hidden_size: 128, scale_emb: 12, scale_depth: 1.4, dim_model_base: 32 },
    ...{ rope_theta: 10_000, rope_scaling: null, tie_word_embeddings: true },
    auto_map: { AutoModelForCausalLM: "modeling_minicpm.MiniCPMForCausalLM" },
  }),
  exaone: of("Exaone", "exaone", {
    ...{ num_hidden_layers: undefined, num_layers: 3, activation_function: "silu" },
    ...{ rms_norm_eps: undefined, layer_norm_epsilon: 1e-5, rope_theta: 1e6, tie_word_embeddings: false },
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 64,
    },
    auto_map: { AutoModelForCausalLM: "modeling_exaone.ExaoneForCausalLM" },
  }),
  lfm3: of("Lfm3", "lfm3", {
    ...{ rms_norm_eps: undefined, norm_eps: 1e-5, num_hidden_layers: 5, sliding_window: 12 },
    ...{ conv_bias: false, conv_L_cache: 7, tie_word_embeddings: true },
    layer_types: ["conv", "sliding_attention", "conv", "full_attention", "conv"],
    rope_parameters: {
      sliding_attention: { rope_type: "default", rope_theta: 10_000 },
      full_attention: { rope_type: "proportional", rope_theta: 1e6, partial_rotary_factor: 0.5 },
    },
  }),
  "seed-oss": of("SeedOss", "seed_oss", { attention_bias: true, attention_out_bias: true }),
};
