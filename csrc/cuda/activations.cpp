#include "cuda/activations.h"

#include <algorithm>

#include "cuda/attention_kinds.h"
#include "host/memory_region.h"

namespace bunting::cuda {
namespace {

// Size of the largest activation of an MLP: rows of a step times its width. It is [T, F], [T k, Fe] or [T,
// P].
size_t widest_activated(Model const& model, size_t tokens) {
  bunting_model_shape const& s = model.shape();
  size_t widest = tokens * size_t(s.layer_inputs);
  for (int32_t i = 0; i < s.layers; ++i) {
    size_t const rows = tokens * size_t(model.has_experts(i) ? s.experts_used : 1);
    widest = std::max(widest, rows * size_t(model.feed_forward(i)));
    if (model.has_beside(i)) widest = std::max(widest, tokens * size_t(model.layer_shape(i).feed_forward));
  }
  return widest;
}

// Numbers of a token in the widest projection of a layer's heads.
size_t widest_projection(Model const& model) {
  int64_t widest = 0;
  for (int32_t i = 0; i < model.shape().layers; ++i)
    widest = std::max(widest, model.is_latent(i) ? model.q_rows(i) : model.qkv_width(i));
  return size_t(widest);
}

// Number of arrival counters of the GEMMs.
size_t gemm_counters(Model const& model) {
  bunting_model_shape const& s = model.shape();
  int32_t const widest = std::max(2 * s.expert_feed_forward, s.hidden);
  return size_t(std::max(kGemmArrived, model.has_experts() ? gemm_experts_arrived(widest, s.experts) : 0));
}

}  // namespace

size_t Activations::place(Model const& model, bunting_engine_limits const& limits, int32_t attention_blocks,
                          char* base) {
  Carver carver(base);
  bunting_model_shape const& s = model.shape();
  size_t const tokens = size_t(limits.step_tokens_max), draws = size_t(limits.step_draws_max),
               rows = draws + size_t(limits.step_hidden_max);
  size_t const hidden = size_t(s.hidden), query = size_t(model.query_width()),
               wide = widest_activated(model, tokens);
  x = carver.take<float>(tokens * hidden);
  wanted_x = carver.take<float>(rows * hidden);
  delta = carver.take<float>(tokens * hidden);
  if (model.has_beside()) both = carver.take<float>(tokens * hidden);
  normed = carver.take<bf16>(tokens * hidden);
  qkv = carver.take<float>(tokens * widest_projection(model));
  angles.clear();
  for (RopeTable const& rope : model.ropes()) {
    size_t const count = tokens * size_t(rope.dimensions / 2);
    angles.push_back({carver.take<float>(count), carver.take<float>(count)});
  }
  q = carver.take<bf16>(tokens * query);
  attended = carver.take<bf16>(tokens * query);
  wanted_attended = carver.take<bf16>(rows * query);
  if (model.has_gated_output()) q_gates = carver.take<float>(tokens * query);
  if (model.has_states()) place_states(model, tokens, rows, carver);
  if (model.is_latent()) {
    size_t const heads = size_t(s.query_heads);
    query_latents = carver.take<float>(tokens * size_t(s.query_rank));
    normed_latents = carver.take<bf16>(tokens * size_t(s.query_rank));
    key = carver.take<float>(tokens * size_t(s.head_size));
    nope = carver.take<bf16>(tokens * heads * size_t(s.key_size));
    head_outputs = carver.take<bf16>(tokens * heads * size_t(s.value_size));
  }
  gate_up = carver.take<float>(2 * wide);
  activated = carver.take<bf16>(wide);
  if (s.layer_inputs > 0) {
    layer_inputs = carver.take<float>(tokens * size_t(s.layers * s.layer_inputs));
    layer_projections = carver.take<float>(tokens * size_t(s.layers * s.layer_inputs));
  }
  if (model.has_experts() || model.has_states()) router_input = carver.take<float>(tokens * hidden);
  if (model.has_experts()) {
    size_t const experts = size_t(s.experts), pairs = tokens * size_t(s.experts_used);
    shared_gates = carver.take<float>(tokens);
    router_logits = carver.take<float>(tokens * experts);
    chosen = carver.take<int32_t>(pairs);
    expert_weights = carver.take<float>(pairs);
    expert_row = carver.take<int32_t>(pairs);
    expert_pair = carver.take<int32_t>(pairs);
    expert_begin = carver.take<int32_t>(experts + 1);
    expert_input = carver.take<bf16>(pairs * hidden);
    expert_output = carver.take<float>(pairs * hidden);
  }
  logits = carver.take<float>(draws * size_t(s.vocab));
  changed = carver.take<float>(draws * size_t(s.vocab));
  AttentionKinds const kinds(model, attention_blocks);
  partial_out = carver.take<float>(kinds.partial_floats());
  partial_log = carver.take<float>(kinds.partial_rows());
  running = carver.take<float>(size_t(attention_blocks) * kManyRows * size_t(s.head_size));
  arrived = carver.take<int32_t>(tokens * size_t(s.kv_heads));
  gemm_partial = carver.take<float>(kGemmPartialFloats);
  gemm_arrived = carver.take<int32_t>(gemm_counters(model));
  return carver.used();
}

void Activations::place_states(Model const& model, size_t tokens, size_t rows, Carver& carver) {
  size_t const heads = size_t(model.shape().state_heads), channels = size_t(model.conv_channels()),
               values = size_t(model.state_value_width());
  state_in = carver.take<float>(tokens * (model.has_state_heads() ? channels + values : 3 * channels));
  mixed = carver.take<bf16>(tokens * values);
  wanted_mixed = carver.take<bf16>(rows * values);
  if (!model.has_state_heads()) return;
  state_z = carver.take<float>(tokens * values);
  state_gates = carver.take<float>(tokens * 2 * heads);
  state_conv = carver.take<float>(tokens * channels);
  state_decay = carver.take<float>(tokens * heads);
  state_factor = carver.take<float>(tokens * heads);
  state_out = carver.take<float>(tokens * values);
}

}  // namespace bunting::cuda
