// layers.cpp - the layers of a step, from after the embedding to before the final norm.
#include <cmath>
#include <cstring>

#include "cpu/forward.h"
#include "cpu/kernels/row_stride.h"
#include "cpu/parallel_gemm.h"

namespace bunting {
namespace {

constexpr int64_t kChoiceElements = 10;  // cost of a router logit in elements of a loop over activations

// Operand for rows that a layer's experts read or pass on.
Operand expert_rows(PackedMatrix const& w, char* rows, std::atomic<bool>& outliers) {
  outliers = false;
  return {rows, w.grouped() ? w.kp() / kGroup : row_stride(w.dtype, w.k), w.dtype, &outliers};
}

}  // namespace

void Forward::project_and_append(StepPlan const& plan, int32_t layer) {
  if (model_.is_latent(layer)) return project_and_append_latents(plan, layer);
  LayerWeights const& weights = model_.layer(layer);
  auto const project = [&](PackedMatrix const& w, int64_t column) {
    multiply({.w = &w,
              .bias = weights.qkv_bias ? weights.qkv_bias + column : nullptr,
              .y = work_.qkv + column,
              .ldy = model_.qkv_width(),
              .tokens = plan.tokens},
             normalise(weights.attention_norm, plan.tokens, w));
  };
  project(weights.qkv, 0);
  if (weights.v.n > 0) project(weights.v, weights.qkv.n);
  RopeTable const* const rope = model_.rope(layer);
  bunting_layer_shape const& has = model_.layer_shape(layer);
  Workspace::Angles const angles = rope ? work_.angles[size_t(has.rope)] : Workspace::Angles{};
  RopeAppend append{.qkv = work_.qkv,
                    .ldqkv = model_.qkv_width(),
                    .query_heads = model_.shape().query_heads,
                    .q_norm = weights.q_norm,
                    .k_norm = weights.k_norm,
                    .has_wide_norms = has.qk_norm == BUNTING_QK_NORM_WIDE,
                    .norms_after = has.qk_norm == BUNTING_QK_NORM_ROTATED,
                    .has_unit_norms = has.qk_norm == BUNTING_QK_NORM_UNIT,
                    .values_are_keys = (has.values & BUNTING_VALUES_KEYS) != 0,
                    .has_value_norm = (has.values & BUNTING_VALUES_NORMED) != 0,
                    .norm_epsilon = model_.shape().norm_epsilon,
                    .rotated = rope ? rope->dimensions : 0,
                    .cos = angles.cos,
                    .sin = angles.sin,
                    .query_scale = rope ? rope->query_scale : nullptr,
                    .positions = plan.position.data(),
                    .token_pages = plan.token_page.data(),
                    .kv = pages_.layer(layer)};
  if (!model_.has_keys(layer)) append.kv.pages = nullptr;
  share_rows(plan.tokens, model_.qkv_width(layer),
             [&](int64_t begin, int64_t end) { kernels_.rope_append(append, begin, end); });
}

void Forward::attend(StepPlan const& plan, int32_t layer) {
  if (model_.is_latent(layer)) turn_to_latents(plan, layer);
  AttentionPlan const& attention_plan = attention_plans_[plan_of_layer_[size_t(layer)]];
  Attention const attention{.q = work_.qkv,
                            .ldq = model_.qkv_width(),
                            .kv = pages_.layer(layer),
                            .chunks = plan.chunk.data(),
                            .items = attention_plan.items(),
                            .query_heads = model_.shape().query_heads,
                            .sliding_window = model_.layer_shape(layer).sliding_window,
                            .is_bidirectional = model_.is_bidirectional(),
                            .is_chunked = model_.layer_shape(layer).chunked != 0,
                            .scale = model_.shape().attention_scale,
                            .cap = model_.shape().attention_cap,
                            .sinks = model_.layer(layer).sinks,
                            .out = work_.attended,
                            .ldo = attended_stride_,
                            .states = work_.attention_states,
                            .parts = work_.attention_parts,
                            .scratch = nullptr};
  size_t const scratch_bytes = attention_scratch(model_);
  for (int32_t phase = 0; phase < attention_plan.phases(); phase++) {
    pool_.run(attention_plan.pieces(phase), 1, [&](int64_t begin, int64_t end, int thread) {
      Attention mine = attention;
      mine.scratch = work_.attention_scratch + size_t(thread) * scratch_bytes;
      kernels_.attention(mine, attention_plan.piece_begin(phase, int32_t(begin)),
                         attention_plan.piece_begin(phase, int32_t(end)));
    });
  }
}

// Computes the per-layer inputs of each token from x, which is the embedding here (engine.h, layer_inputs).
void Forward::make_layer_inputs(StepPlan const& plan) {
  LayerInputWeights const& weights = model_.layer_inputs();
  bunting_model_shape const& shape = model_.shape();
  int64_t const inputs = shape.layer_inputs, all = shape.layers * inputs;
  multiply({.w = &weights.projection, .y = work_.layer_projections, .ldy = all, .tokens = plan.tokens},
           normalise(nullptr, plan.tokens, weights.projection));
  // Scaling epsilon by H makes the norm of x equal to the norm of x / sqrt(H).
  Norm const norm{NormKind::rms, weights.norm, shape.norm_epsilon * float(shape.hidden)};
  float const half = std::sqrt(0.5f);
  share_rows(plan.tokens, all, [&](int64_t begin, int64_t end) {
    kernels_.embed(work_.layer_inputs, all, weights.embedding, plan.token, begin, end);
    kernels_.scale_and_cap(work_.layer_inputs, all, all, std::sqrt(float(inputs)) * half, 0, begin, end);
    kernels_.add_normed(work_.layer_inputs, inputs, work_.layer_projections, inputs, norm, half, inputs,
                        begin * shape.layers, end * shape.layers);
  });
}

// Adds norm(out(activation(gate(x)) . input)) to x for the first `rows` rows.
void Forward::add_layer_input(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  int64_t const inputs = model_.shape().layer_inputs, all = model_.shape().layers * inputs;
  multiply({.w = &weights.input_gate, .y = work_.input_gates, .ldy = 2 * inputs, .tokens = rows},
           normalise(nullptr, rows, weights.input_gate));
  Operand const gated{work_.gated_inputs, row_stride(model_.dtype(), inputs), model_.dtype()};
  share_rows(rows, inputs, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
      std::memcpy(work_.input_gates + row * 2 * inputs + inputs,
                  work_.layer_inputs + row * all + layer * inputs, size_t(inputs) * sizeof(float));
    kernels_.gate(gated, work_.input_gates, 2 * inputs, inputs, Activation(model_.shape().activation), begin,
                  end);
  });
  multiply({.w = &weights.input_out, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows}, gated);
  if (model_.streams() == 1) return add_normed(work_.x, work_.delta, weights.input_post_norm, 1, rows);
  for (int32_t i = 1; i < model_.streams(); i++)
    add_normed(stream(i), work_.delta, weights.input_post_norm, 1, rows);
}

void Forward::finish_layer(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  bunting_layer_shape const& has = model_.layer_shape(layer);
  bool const is_parallel = has.parallel;
  bool const norms_attention_sum = has.norms & BUNTING_NORM_ATTN_SUM;
  bool const norms_mlp_sum = has.norms & BUNTING_NORM_MLP_SUM;
  if (has.gated_output) gate_attended(layer, rows);
  if (has.laurel_rank > 0) make_laurel(layer, rows);
  if (is_parallel)  // keeps x unchanged until the MLP has read it
    multiply(
        {.w = &weights.o, .bias = weights.o_bias, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows},
        mixed(layer, rows));
  else if (model_.has_attention(layer))
    add(weights.o, weights.o_bias, norms_attention_sum ? nullptr : weights.attention_post_norm,
        mixed(layer, rows), rows);
  if (model_.has_state(layer))
    add(weights.state_o, nullptr, norms_attention_sum ? nullptr : weights.attention_post_norm,
        state_output(weights.state_o, rows), rows);
  if (norms_attention_sum) norm_sum(weights.attention_post_norm, rows);
  if (has.laurel_rank > 0) add_laurel(rows);
  if (!model_.has_mlp(layer)) {
    // The layer has a mixer only.
  } else if (model_.has_both(layer)) {
    add_both(layer, rows);
  } else if (model_.has_shared(layer)) {
    add_shared(layer, rows);
  } else if (model_.has_experts(layer)) {
    add_mixture(layer, rows);
  } else {
    Operand const normed = normalise(weights.mlp_norm, rows, weights.gate_up);
    Operand const activated =
        has.sparse_gate ? multiply_sparse(normed, layer, rows)
                        : multiply_gated(normed, weights.gate_up, weights.gate_up_bias, weights.down, rows,
                                         has.mlp == BUNTING_MLP_PLAIN, weights.xielu);
    if (is_parallel) add_delta(nullptr, rows);
    add(weights.down, weights.down_bias, norms_mlp_sum ? nullptr : weights.mlp_post_norm, activated, rows);
    if (norms_mlp_sum) norm_sum(weights.mlp_post_norm, rows);
  }
  if (model_.streams() > 1) correct_streams(layer, rows);
  if (model_.shape().layer_inputs > 0) add_layer_input(layer, rows);
  if (weights.scale)
    share_rows(rows, model_.shape().hidden, [&](int64_t begin, int64_t end) {
      kernels_.scale_and_cap(work_.x, hidden_stride_, model_.shape().hidden, *weights.scale, 0, begin, end);
    });
}

// Adds residual_scale * norm(norm(MLP output) + norm(experts' output)) to x for the first `rows` rows.
void Forward::add_both(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  Operand const activated = multiply_gated(normalise(weights.mlp_norm, rows, weights.beside_gate_up),
                                           weights.beside_gate_up, nullptr, weights.beside_down, rows);
  multiply({.w = &weights.beside_down, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows}, activated);
  size_t const bytes = size_t(rows * hidden_stride_) * sizeof(float);
  std::memset(work_.both, 0, bytes);
  add_normed(work_.both, work_.delta, weights.beside_post_norm, 1, rows);
  std::memset(work_.delta, 0, bytes);
  add_experts(layer, rows, weights.experts_norm, work_.delta, 1);
  add_normed(work_.both, work_.delta, weights.experts_post_norm, 1, rows);
  add_normed(work_.x, work_.both, weights.mlp_post_norm, model_.shape().residual_scale, rows);
}

// Adds residual_scale * norm(experts' output) to x for the first `rows` rows.
void Forward::add_mixture(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  if (!weights.mlp_post_norm)
    return add_experts(layer, rows, weights.mlp_norm, work_.x, model_.shape().residual_scale);
  std::memset(work_.delta, 0, size_t(rows * hidden_stride_) * sizeof(float));
  add_experts(layer, rows, weights.mlp_norm, work_.delta, 1);
  add_delta(weights.mlp_post_norm, rows);
}

// Adds residual_scale * norm(experts' output + shared experts' output, maybe gated) to x for the first `rows`
// rows.
void Forward::add_shared(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  int64_t const hidden = model_.shape().hidden;
  Operand const activated =
      multiply_gated(normalise(weights.mlp_norm, rows, weights.beside_gate_up), weights.beside_gate_up,
                     nullptr, weights.beside_down, rows, !model_.has_gate(layer));
  multiply({.w = &weights.beside_down, .y = work_.both, .ldy = hidden_stride_, .tokens = rows}, activated);
  std::memset(work_.delta, 0, size_t(rows * hidden_stride_) * sizeof(float));
  add_experts(layer, rows, weights.mlp_norm, work_.delta, 1);
  if (model_.has_shared_gate(layer)) {
    multiply({.w = &weights.shared_gate, .y = work_.shared_gates, .ldy = 1, .tokens = rows},
             {work_.router_input, row_stride(Dtype::f32, hidden), Dtype::f32});
    share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++)
        kernels_.scale_and_cap(work_.both, hidden_stride_, hidden,
                               1 / (1 + std::exp(-work_.shared_gates[row])), 0, row, row + 1);
    });
  }
  add_normed(work_.delta, work_.both, nullptr, 1, rows);
  add_delta(weights.mlp_post_norm, rows);
}

// Adds scale * the experts' output of the first `rows` rows to `to`; the experts read x through `norm`.
void Forward::add_experts(int32_t layer, int64_t rows, float const* norm, float* to, float scale) {
  LayerWeights const& weights = model_.layer(layer);
  int64_t const hidden = model_.shape().hidden, experts = model_.shape().experts;
  Operand const input{work_.router_input, row_stride(Dtype::f32, hidden), Dtype::f32};
  share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(input, work_.x, hidden_stride_, norm_by(weights.router_norm ? weights.router_norm : norm),
                  hidden, begin, end);
  });
  multiply({.w = &weights.router,
            .bias = weights.router_bias,
            .y = work_.router_logits,
            .ldy = experts,
            .tokens = rows},
           input);
  share_rows(rows, kChoiceElements * experts, [&](int64_t begin, int64_t end) {
    expert_plan_.choose(work_.router_logits, experts, weights.choice_bias, weights.expert_scales, begin, end);
  });
  expert_plan_.group(rows);
  Operand const x = normalise(norm, rows, weights.gate_up);
  Operand gathered = x;
  gathered.rows = work_.expert_input;
  parallel_experts(pool_, kernels_,
                   {.plan = &expert_plan_,
                    .x = x,
                    .gate_up = &weights.gate_up,
                    .down = &weights.down,
                    .gate_up_bias = weights.gate_up_bias,
                    .down_bias = weights.down_bias,
                    .gathered = gathered,
                    .activated = expert_rows(weights.down, work_.expert_activated, activated_has_outliers_),
                    .y = to,
                    .ldy = hidden_stride_,
                    .hidden = hidden,
                    .activation = Activation(model_.shape().activation),
                    .has_gate = model_.has_gate(layer),
                    .residual_scale = scale,
                    .scratch = work_.expert_scratch});
}

// Adds residual_scale * norm(x * w + bias) to x for the first `rows` rows.
void Forward::add(PackedMatrix const& w, float const* bias, float const* post_norm, Operand const& x,
                  int64_t rows) {
  bool const is_plain = !post_norm && model_.shape().residual_scale == 1;
  multiply({.w = &w,
            .bias = bias,
            .y = is_plain ? work_.x : work_.delta,
            .ldy = hidden_stride_,
            .tokens = rows,
            .accumulate = is_plain},
           x);
  if (!is_plain) add_delta(post_norm, rows);
}

void Forward::add_delta(float const* post_norm, int64_t rows) {
  add_normed(work_.x, work_.delta, post_norm, model_.shape().residual_scale, rows);
}

// Adds scale * norm(from) to `to` for the first `rows` rows.
void Forward::add_normed(float* to, float const* from, float const* norm, float scale, int64_t rows) {
  int64_t const hidden = model_.shape().hidden;
  share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
    kernels_.add_normed(to, hidden_stride_, from, hidden_stride_, norm_by(norm), scale, hidden, begin, end);
  });
}

Norm Forward::norm_by(float const* weight) const {
  bunting_model_shape const& shape = model_.shape();
  float const* const bias = weight && shape.norm_biases ? weight + shape.hidden : nullptr;
  return {weight ? NormKind(shape.norm) : NormKind::none, weight, shape.norm_epsilon, bias};
}

// Returns the operand for a matrix: groups, or `plain` numbers of the model's type.
Operand Forward::operand(PackedMatrix const& w, char* plain, int64_t stride) {
  if (!w.grouped()) return {plain, stride, model_.dtype()};
  has_outliers_ = false;
  return {work_.groups, w.kp() / kGroup, w.dtype, &has_outliers_};
}

// Returns norm(x) of the first `rows` rows in the input type of `next`; without weights, x itself.
Operand Forward::normalise(float const* weight, int64_t rows, PackedMatrix const& next) {
  Operand const to = operand(next, work_.normed, normed_stride_);
  share_rows(rows, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(to, work_.x, hidden_stride_, norm_by(weight), model_.shape().hidden, begin, end);
  });
  return to;
}

// Returns the mixer's output of the first `rows` rows in the input type of the layer's o.
Operand Forward::mixed(int32_t layer, int64_t rows) {
  PackedMatrix const& o = model_.layer(layer).o;
  if (!model_.is_latent(layer)) return attended(o, rows);
  turn_from_latents(layer, rows);
  int64_t const width = model_.mixed_width(layer);
  Operand const to = operand(o, work_.mixed, row_stride(model_.dtype(), width));
  share_rows(rows, width, [&](int64_t begin, int64_t end) {
    kernels_.norm(to, work_.heads, width, norm_by(nullptr), width, begin, end);
  });
  return to;
}

// Returns the attention's output of the first `rows` rows in the input type of `next`.
Operand Forward::attended(PackedMatrix const& next, int64_t rows) {
  Operand const to = operand(next, work_.attended, attended_stride_);
  if (next.grouped())
    share_rows(rows, next.k, [&](int64_t begin, int64_t end) {
      kernels_.quantise(to, work_.attended, model_.dtype(), attended_stride_, next.k, begin, end);
    });
  return to;
}

// Returns the memory of the activated rows of an MLP, in the input type of `down`.
Operand Forward::activated_rows(PackedMatrix const& down) {
  if (!down.grouped()) return {work_.activated, activated_stride_, model_.dtype()};
  // Groups apart, because the rows that the MLP reads may occupy the others.
  activated_has_outliers_ = false;
  return {work_.activated_groups, down.kp() / kGroup, down.dtype, &activated_has_outliers_};
}

// Returns activation(gate) . up of the first `rows` rows of `normed` in the input type of `down`.
Operand Forward::multiply_gated(Operand const& normed, PackedMatrix const& gate_up, float const* bias,
                                PackedMatrix const& down, int64_t rows, bool is_plain, float const* xielu) {
  Operand const to = activated_rows(down);
  bool const changes = low_rank_.changes(gate_up);
  if (changes) low_rank_.reduce(gate_up, normed);
  GatedGemm const gemm{.x = normed.rows,
                       .ldx = normed.ld,
                       .may_have_outliers = normed.may_have_outliers(),
                       .w = &gate_up,
                       .bias = bias,
                       .is_plain = is_plain,
                       .activation = Activation(model_.shape().activation),
                       .xielu = xielu ? xielu_of(xielu) : Xielu{},
                       .out = to,
                       .tokens = rows,
                       .scratch = work_.gate_up,
                       .low_rank = changes ? &low_rank_ : nullptr};
  parallel_gated(pool_, kernels_, gemm, gemm_pieces(gate_up, rows));
  return to;
}

}  // namespace bunting
