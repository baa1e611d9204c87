// layers.cpp - the kernels of a step, from the embedding to the logits.
#include <cmath>

#include "cuda/forward.h"

namespace bunting::cuda {

void Forward::queue_layers(int32_t tokens, int32_t chunks, int32_t rows, int32_t draws) {
  bunting_model_shape const& s = model_.shape();
  StepArrays const& in = inputs_.on_device();
  int32_t const last = s.layers - 1;
  embed(stream_, {act_.x, weights_.embedding(), in.tokens, tokens, s.hidden, s.embedding_scale});
  for (int32_t i = 0; i < s.ropes; ++i) {
    RopeTable const& rope = weights_.rope(i);
    Activations::Angles const angles = act_.angles[size_t(i)];
    rope_angles(stream_, {rope.far, rope.near, in.positions, angles.cos, angles.sin, tokens,
                          rope.dimensions / 2, rope.magnitude});
  }
  if (s.layer_inputs > 0) make_layer_inputs(tokens);
  float* x = act_.x;
  Pending pending;
  for (int32_t i = 0; i <= last; ++i) {
    bool const has_attention = model_.has_attention(i), has_state = model_.has_state(i);
    if (has_attention || has_state)
      normalise(x, pending, weights_.layer(i).attention_norm, tokens,
                has_state && model_.has_state_heads() ? act_.router_input : nullptr);
    else if (pending.delta)
      add_and_norm(x, pending, nullptr, tokens, nullptr, nullptr);
    if (has_attention) project_and_append(i, tokens);
    if (has_state) mix_states(i, tokens, chunks);
    // Later steps need no result that follows the last layer with memory.
    if (rows == 0 && i >= model_.last_layer_with_memory()) return;
    if (has_attention) attend(i, tokens);
    Mixed mixed{has_attention ? act_.attended : nullptr, has_state ? act_.mixed : nullptr};
    if (i == last) {
      tokens = rows;
      auto const keep = [&](auto const* from, auto* to, int64_t width) {
        gather(stream_, {from, to, in.wanted, rows, int32_t(width * int64_t(sizeof *to))});
        return to;
      };
      x = keep(x, act_.wanted_x, s.hidden);
      if (has_attention) mixed.attended = keep(act_.attended, act_.wanted_attended, attended_width(i));
      if (has_state) mixed.recurrent = keep(act_.mixed, act_.wanted_mixed, model_.state_value_width());
    }
    pending = finish_layer(i, x, mixed, tokens, i == last);
  }
  normalise(x, pending, weights_.final_norm(), rows);
  if (rows > draws)
    stream_.copy(hidden_.data(), act_.normed + size_t(draws) * size_t(s.hidden),
                 size_t(rows - draws) * size_t(s.hidden) * sizeof(bf16));
  if (draws == 0) return;
  multiply({act_.normed, weights_.vocabulary_projection(), nullptr, act_.logits, draws, s.vocab, s.hidden});
  if (s.logit_cap > 0) cap(stream_, {act_.logits, int64_t(draws) * s.vocab, s.logit_cap});
}

// Computes the per-layer inputs of each token from x, which is the embedding here (engine.h, layer_inputs).
void Forward::make_layer_inputs(int32_t tokens) {
  bunting_model_shape const& s = model_.shape();
  int32_t const all = s.layers * s.layer_inputs;
  float const half = std::sqrt(0.5f);
  normalise(act_.x, {}, nullptr, tokens);
  multiply(
      {act_.normed, weights_.layer_projection(), nullptr, act_.layer_projections, tokens, all, s.hidden});
  embed(stream_, {act_.layer_inputs, weights_.layer_embedding(), inputs_.on_device().tokens, tokens, all,
                  std::sqrt(float(s.layer_inputs)) * half});
  // Scaling epsilon by H makes the norm of x equal to the norm of x / sqrt(H).
  add_norm(stream_, {.x = act_.layer_inputs,
                     .delta = act_.layer_projections,
                     .weight = nullptr,
                     .y = nullptr,
                     .epsilon = s.norm_epsilon * float(s.hidden),
                     .tokens = tokens * s.layers,
                     .hidden = s.layer_inputs,
                     .delta_scale = half,
                     .delta_weight = weights_.layer_input_norm(),
                     .kind = BUNTING_NORM_RMS});
}

void Forward::project_and_append(int32_t index, int32_t tokens) {
  if (model_.is_latent(index)) return project_and_append_latents(index, tokens);
  bunting_model_shape const& s = model_.shape();
  bunting_layer_shape const& has = model_.layer_shape(index);
  DeviceLayer const& layer = weights_.layer(index);
  multiply({act_.normed, layer.qkv, layer.qkv_bias, act_.qkv, tokens, int32_t(model_.projected_width(index)),
            s.hidden});
  RopeTable const rope = has.rope < 0 ? RopeTable{} : weights_.rope(has.rope);
  Activations::Angles const angles = has.rope < 0 ? Activations::Angles{} : act_.angles[size_t(has.rope)];
  KvPages kv = pages_.layer(index);
  if (!model_.has_keys(index)) kv.kv_heads = 0;
  rope_append(stream_, {.qkv = act_.qkv,
                        .q = act_.q,
                        .query_heads = s.query_heads,
                        .q_norm = layer.q_norm,
                        .k_norm = layer.k_norm,
                        .norm_epsilon = s.norm_epsilon,
                        .cos = angles.cos,
                        .sin = angles.sin,
                        .query_scale = rope.query_scale,
                        .positions = inputs_.on_device().positions,
                        .slots = inputs_.on_device().slots,
                        .kv = kv,
                        .tokens = tokens,
                        .rotated = rope.dimensions,
                        .has_wide_norms = has.qk_norm == BUNTING_QK_NORM_WIDE,
                        .values_are_keys = (has.values & BUNTING_VALUES_KEYS) != 0,
                        .has_value_norm = (has.values & BUNTING_VALUES_NORMED) != 0,
                        .norms_after = has.qk_norm == BUNTING_QK_NORM_ROTATED,
                        .has_unit_norms = has.qk_norm == BUNTING_QK_NORM_UNIT});
}

void Forward::attend(int32_t layer, int32_t tokens) {
  if (model_.is_latent(layer)) return attend_to_latents(layer, tokens);
  bunting_model_shape const& s = model_.shape();
  int32_t const window = model_.layer_shape(layer).sliding_window;
  StepArrays const& in = inputs_.on_device();
  StepArrays::Plan const& plan = inputs_.plan_of(layer);
  static_assert(kPageTokens == 16);
  attention(stream_, {.q = act_.q,
                      .out = act_.attended,
                      .kv = pages_.layer(layer),
                      .query_heads = s.query_heads,
                      .sliding_window = window,
                      .scale = s.attention_scale,
                      .blocks = blocks_,
                      .items = plan.items,
                      .item_begin = plan.item_begin,
                      .merge_begin = plan.merge_begin,
                      .merge_rows = plan.merge_rows,
                      .pages = in.pages,
                      .positions = in.positions,
                      .partial_out = act_.partial_out,
                      .partial_log = act_.partial_log,
                      .running = act_.running,
                      .arrived = act_.arrived,
                      .cap = s.attention_cap,
                      .sinks = weights_.layer(layer).sinks,
                      .is_chunked = model_.layer_shape(layer).chunked != 0});
  if (!model_.layer_shape(layer).gated_output) return;
  int32_t const width = int32_t(model_.query_width(layer));
  multiply({act_.normed, weights_.layer(layer).q_gate, nullptr, act_.q_gates, tokens, width, s.hidden});
  gate_output(stream_, {act_.attended, act_.q_gates, tokens, width});
}

// Numbers of a token in act_.attended: heads' outputs, or the latents of them.
int64_t Forward::attended_width(int32_t layer) const {
  return model_.is_latent(layer) ? int64_t(model_.shape().query_heads) * model_.shape().latent_rank
                                 : model_.query_width(layer);
}

// Queues the projections of a layer's mixers, of which the last is pending.
Forward::Pending Forward::finish_mixer(int32_t index, float* x, Mixed const& mixed, int32_t tokens) {
  DeviceLayer const& layer = weights_.layer(index);
  Pending pending;
  auto const add = [&](bf16 const* of, WeightMatrix const& o, float const* bias, int64_t width) {
    if (pending.delta) add_and_norm(x, pending, nullptr, tokens, nullptr, nullptr);
    pending = {project_back(of, o, bias, tokens, int32_t(width)), layer.attention_post_norm,
               model_.shape().residual_scale};
  };
  bf16 const* const attended = mixed.attended && model_.is_latent(index)
                                   ? turn_from_latents(index, mixed.attended, tokens)
                                   : mixed.attended;
  if (attended) add(attended, layer.o, layer.o_bias, model_.mixed_width(index));
  if (mixed.recurrent) add(mixed.recurrent, layer.state.o, nullptr, model_.state_value_width());
  return pending;
}

Forward::Pending Forward::finish_layer(int32_t index, float* x, Mixed const& mixed, int32_t tokens,
                                       bool is_last) {
  bunting_model_shape const& s = model_.shape();
  DeviceLayer const& layer = weights_.layer(index);
  Pending const of_mixer = finish_mixer(index, x, mixed, tokens);
  Pending pending;
  if (!model_.has_mlp(index)) {
    pending = of_mixer;
  } else if (model_.has_both(index)) {
    pending = mix_both(index, x, of_mixer, tokens, is_last);
  } else {
    bool const has_experts = model_.has_experts(index), is_parallel = model_.layer_shape(index).parallel;
    normalise(x, is_parallel ? Pending{} : of_mixer, layer.mlp_norm, tokens,
              has_experts ? act_.router_input : nullptr);
    // A parallel MLP has its input already, so x may change here.
    if (is_parallel) add_and_norm(x, of_mixer, nullptr, tokens, nullptr, nullptr);
    int32_t const width = int32_t(model_.feed_forward(index));
    pending = {model_.has_shared(index) ? mix_shared(index, tokens, is_last)
               : has_experts            ? mix_experts(layer, tokens, is_last)
               : model_.has_gate(index) ? multiply_gated(layer.mlp, tokens, width)
                                        : multiply_plain(layer, tokens, width),
               layer.mlp_post_norm, s.residual_scale};
  }
  if (s.layer_inputs > 0) {
    normalise(x, pending, nullptr, tokens);
    pending = {use_input(index, tokens, is_last), layer.input_post_norm};
  }
  pending.sum_scale = layer.scale;
  return pending;
}

// Computes norm(norm(MLP output) + norm(experts' output)), which is then pending.
Forward::Pending Forward::mix_both(int32_t index, float* x, Pending const& of_mixer, int32_t tokens,
                                   bool is_last) {
  DeviceLayer const& layer = weights_.layer(index);
  normalise(x, of_mixer, layer.mlp_norm, tokens);
  multiply_gated(layer.beside, tokens, model_.layer_shape(index).feed_forward);
  add_and_norm(act_.delta, {}, layer.beside_post_norm, tokens, nullptr, act_.both);
  add_and_norm(x, {}, layer.router_norm, tokens, nullptr, act_.router_input);
  normalise(x, {}, layer.experts_norm, tokens);
  Pending const of_experts{mix_experts(layer, tokens, is_last), layer.experts_post_norm};
  add_and_norm(act_.both, of_experts, nullptr, tokens, nullptr, nullptr);
  return {act_.both, layer.mlp_post_norm, model_.shape().residual_scale};
}

// Computes experts' output + shared experts' output, maybe gated.
float const* Forward::mix_shared(int32_t index, int32_t tokens, bool is_last) {
  DeviceLayer const& layer = weights_.layer(index);
  int32_t const hidden = model_.shape().hidden, width = model_.layer_shape(index).feed_forward;
  activate(layer.beside, tokens, width);
  multiply({act_.activated, layer.beside.down, nullptr, act_.both, tokens, hidden, width});
  float const* const gates = layer.shared_gate ? act_.shared_gates : nullptr;
  if (gates)
    router(stream_, {act_.router_input, layer.shared_gate, nullptr, act_.shared_gates, tokens, 1, hidden});
  return mix_experts(layer, tokens, is_last, act_.both, gates);
}

float const* Forward::mix_experts(DeviceLayer const& layer, int32_t tokens, bool is_last, float const* shared,
                                  float const* gates) {
  bunting_model_shape const& s = model_.shape();
  int32_t const used = s.experts_used, pairs = tokens * used, wide = s.expert_feed_forward;
  router(stream_, {act_.router_input, layer.router, layer.router_bias, act_.router_logits, tokens, s.experts,
                   s.hidden});
  // Padding tokens of a decode graph use no expert. In the last layer padding rows repeat the first row.
  choose_experts(stream_, {.logits = act_.router_logits,
                           .slots = is_last ? nullptr : inputs_.on_device().slots,
                           .chosen = act_.chosen,
                           .weights = act_.expert_weights,
                           .tokens = tokens,
                           .experts = s.experts,
                           .used = used,
                           .score = s.router,
                           .scales = layer.expert_scales,
                           .bias = layer.choice_bias,
                           .is_normalised = (s.router_options & BUNTING_ROUTER_NORMALISED) != 0,
                           .groups = s.router_groups,
                           .groups_used = s.router_groups_used,
                           .scale = s.router_scale});
  group_experts(stream_,
                {act_.chosen, act_.expert_begin, act_.expert_row, act_.expert_pair, tokens, s.experts, used});
  gather(stream_, {act_.normed, act_.expert_input, act_.expert_row, pairs, s.hidden * int32_t(sizeof(bf16))});
  multiply_experts({act_.expert_input, layer.mlp.gate_up, layer.mlp.gate_up_bias, act_.gate_up, pairs,
                    2 * wide, s.hidden});
  // With one expert per token, the weight of a pair is that of its row.
  bool const scales_input = (s.router_options & BUNTING_ROUTER_SCALES_INPUT) != 0;
  Gate gating = gate_of(act_.gate_up, act_.activated, pairs, wide, s.activation);
  if (scales_input) gating.scales = act_.expert_weights, gating.scale_rows = act_.expert_row;
  gate(stream_, gating);
  multiply_experts(
      {act_.activated, layer.mlp.down, layer.mlp.down_bias, act_.expert_output, pairs, s.hidden, wide});
  combine_experts(stream_,
                  {act_.delta, act_.expert_output, act_.expert_pair,
                   scales_input ? nullptr : act_.expert_weights, tokens, used, s.hidden, shared, gates});
  return act_.delta;
}

// Computes out(activation(gate(x)) * input) from act_.normed, which is x itself here.
float const* Forward::use_input(int32_t index, int32_t tokens, bool is_last) {
  bunting_model_shape const& s = model_.shape();
  DeviceLayer const& layer = weights_.layer(index);
  multiply({act_.normed, layer.input_gate, nullptr, act_.gate_up, tokens, s.layer_inputs, s.hidden});
  gate(stream_, {.gate = act_.gate_up,
                 .up = act_.layer_inputs + index * s.layer_inputs,
                 .gate_stride = s.layer_inputs,
                 .up_stride = s.layers * s.layer_inputs,
                 .y = act_.activated,
                 .tokens = tokens,
                 .feed_forward = s.layer_inputs,
                 .activation = s.activation,
                 .up_rows = is_last ? inputs_.on_device().wanted : nullptr});
  return project_back(act_.activated, layer.input_out, nullptr, tokens, s.layer_inputs);
}

void Forward::activate(GatedWeights const& mlp, int32_t tokens, int32_t width) {
  multiply(
      {act_.normed, mlp.gate_up, mlp.gate_up_bias, act_.gate_up, tokens, 2 * width, model_.shape().hidden});
  gate(stream_, gate_of(act_.gate_up, act_.activated, tokens, width, model_.shape().activation));
}

float const* Forward::multiply_gated(GatedWeights const& mlp, int32_t tokens, int32_t width) {
  activate(mlp, tokens, width);
  return project_back(act_.activated, mlp.down, mlp.down_bias, tokens, width);
}

float const* Forward::multiply_plain(DeviceLayer const& layer, int32_t tokens, int32_t width) {
  GatedWeights const& mlp = layer.mlp;
  multiply({act_.normed, mlp.gate_up, mlp.gate_up_bias, act_.gate_up, tokens, width, model_.shape().hidden});
  gate(stream_, {.gate = act_.gate_up,
                 .up = nullptr,
                 .gate_stride = width,
                 .up_stride = 0,
                 .y = act_.activated,
                 .tokens = tokens,
                 .feed_forward = width,
                 .activation = model_.shape().activation,
                 .xielu = layer.xielu});
  return project_back(act_.activated, mlp.down, mlp.down_bias, tokens, width);
}

float const* Forward::project_back(bf16 const* x, WeightMatrix const& w, float const* bias, int32_t tokens,
                                   int32_t k) {
  multiply({x, w, bias, act_.delta, tokens, model_.shape().hidden, k});
  return act_.delta;
}

void Forward::multiply(Gemm g) {
  g.partial = act_.gemm_partial;
  g.arrived = act_.gemm_arrived;
  // cuBLASLt may allocate memory for a new shape, which must not happen while a graph is recorded.
  if (cublaslt_ && !is_recording_ && g.tokens > kGemmFewTokens && g.w.format == Format::plain)
    cublaslt_->multiply(stream_, g);
  else
    gemm(stream_, g);
}

void Forward::multiply_experts(Gemm g) {
  g.partial = act_.gemm_partial;
  g.arrived = act_.gemm_arrived;
  gemm_experts(stream_, g, {act_.expert_begin, model_.shape().experts, model_.shape().experts_used});
}

void Forward::normalise(float* x, Pending const& pending, float const* weight, int32_t tokens, float* exact) {
  add_and_norm(x, pending, weight, tokens, act_.normed, exact);
}

void Forward::add_and_norm(float* x, Pending const& pending, float const* weight, int32_t tokens, bf16* y,
                           float* exact) {
  add_norm(stream_, {.x = x,
                     .delta = pending.delta,
                     .weight = weight,
                     .y = y,
                     .epsilon = model_.shape().norm_epsilon,
                     .tokens = tokens,
                     .hidden = model_.shape().hidden,
                     .delta_scale = pending.delta_scale,
                     .delta_weight = pending.norm,
                     .kind = model_.shape().norm,
                     .exact = exact,
                     .sum_scale = pending.sum_scale,
                     .has_biases = model_.shape().norm_biases != 0});
}

}  // namespace bunting::cuda
