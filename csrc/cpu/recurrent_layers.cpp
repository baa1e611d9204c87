// recurrent_layers.cpp - the recurrent mixers of a step, and the gate of attention's output.
#include <cmath>

#include "cpu/forward.h"
#include "cpu/kernels/row_stride.h"

namespace bunting {
namespace {

// Estimated time of work on one thread, in ns, as those in forward.cpp.
constexpr double kConvNs = 1.0;    // one channel of a token
constexpr double kScanNs = 0.06;   // one number of S and token
constexpr double kOutputNs = 1.5;  // one number of a token's output

}  // namespace

// Returns the recurrent mixer of a layer for the tokens of the step.
StateMixer Forward::state_mixer(StepPlan const& plan, int32_t layer) const {
  bunting_model_shape const& shape = model_.shape();
  return {.in = work_.state_in,
          .ldin = model_.state_in_width(),
          .v_column = model_.state_v_column(),
          .key_heads = shape.state_key_heads,
          .heads = shape.state_heads,
          .key_size = shape.state_key_size,
          .value_size = shape.state_value_size,
          .is_delta = model_.is_delta(layer),
          .has_tiled_heads = (shape.state_options & BUNTING_STATE_TILED_HEADS) != 0,
          .chunks = plan.chunk.data(),
          .states = plan.state.data(),
          .memory = states_.layer(layer),
          .taps = shape.state_conv,
          .channels = model_.conv_channels(),
          .conv = work_.state_conv[size_t(layer)],
          .conv_bias = model_.layer(layer).state_conv_bias,
          .skip = model_.layer(layer).state_skip,
          .decay = work_.state_decay,
          .write = work_.state_write,
          .products = work_.state_products,
          .out = work_.state_out,
          .ldout = model_.state_out_width()};
}

// Runs all tokens of the step through a layer's recurrence. Leaves its ungated output in state_out.
void Forward::run_states(StepPlan const& plan, int32_t layer) {
  LayerWeights const& weights = model_.layer(layer);
  bunting_model_shape const& shape = model_.shape();
  auto const project = [&](PackedMatrix const& w, int64_t column) {
    multiply({.w = &w, .y = work_.state_in + column, .ldy = model_.state_in_width(), .tokens = plan.tokens},
             normalise(weights.attention_norm, plan.tokens, w));
  };
  project(weights.state_in, 0);
  if (weights.state_z.n > 0) project(weights.state_z, model_.state_z_column());
  StateMixer const mixer = state_mixer(plan, layer);
  auto const run = [&](int64_t items, double item_token_ns, auto kernel) {
    int64_t const count = plan.chunks * items;
    pool_.run(count, grain(count, double(plan.tokens) * double(items) * item_token_ns),
              [&](int64_t begin, int64_t end) { kernel(mixer, begin, end); });
  };
  run(mixer.conv_items(), kConvNs * double(mixer.channels) / double(mixer.conv_items()), kernels_.state_conv);
  if (!model_.has_state_heads()) return;

  int64_t const hidden = shape.hidden, gates_width = 2 * model_.state_b_row();
  Operand const input{work_.router_input, row_stride(Dtype::f32, hidden), Dtype::f32};
  share_rows(plan.tokens, hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(input, work_.x, hidden_stride_, norm_by(weights.attention_norm), hidden, begin, end);
  });
  multiply({.w = &weights.state_gates, .y = work_.state_gates, .ldy = gates_width, .tokens = plan.tokens},
           input);
  StateGates const gates{work_.state_gates,   gates_width,        model_.state_b_row(), weights.state_dt_bias,
                         weights.state_decay, shape.state_dt_min, shape.state_dt_max};
  share_rows(plan.tokens, model_.state_key_width(),
             [&](int64_t begin, int64_t end) { kernels_.state_gates(mixer, gates, begin, end); });
  double const numbers = double(shape.state_key_size) * double(state_columns(shape.state_value_size));
  run(mixer.scan_items(), kScanNs * numbers, kernels_.state_scan);

  StateOutput const output{.y = work_.state_out,
                           .ldy = mixer.ldout,
                           .z = work_.state_in + model_.state_z_column(),
                           .ldz = mixer.ldin,
                           .width = model_.state_value_width(),
                           .norm_width = shape.state_options & BUNTING_STATE_NORM_GROUPS
                                             ? model_.state_value_width() / shape.state_key_heads
                                             : model_.state_norm_width(),
                           .norm = weights.state_norm,
                           .norm_repeats = (shape.state_options & BUNTING_STATE_NORM_HEADS) != 0,
                           .is_gate_first = (shape.state_options & BUNTING_STATE_GATE_FIRST) != 0,
                           .epsilon = shape.norm_epsilon};
  double const output_ns = kOutputNs * double(plan.tokens) * double(output.width);
  pool_.run(plan.tokens, grain(plan.tokens, output_ns),
            [&](int64_t begin, int64_t end) { kernels_.state_output(output, begin, end); });
}

// Returns the recurrent mixer's output of the first `rows` rows in the input type of `next`.
Operand Forward::state_output(PackedMatrix const& next, int64_t rows) {
  Operand const to = operand(next, work_.state_mixed, row_stride(model_.dtype(), next.k));
  int64_t const ld = model_.state_out_width();
  share_rows(rows, next.k, [&](int64_t begin, int64_t end) {
    kernels_.norm(to, work_.state_out, ld, norm_by(nullptr), next.k, begin, end);
  });
  return to;
}

// Multiplies the attention's output of the first `rows` rows by the sigmoid of its gate, which reads x.
void Forward::gate_attended(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  int64_t const width = weights.q_gate.n;
  multiply({.w = &weights.q_gate, .y = work_.q_gates, .ldy = width, .tokens = rows},
           normalise(weights.attention_norm, rows, weights.q_gate));
  share_rows(rows, width, [&](int64_t begin, int64_t end) {
    kernels_.gate_output(work_.attended, model_.dtype(), attended_stride_, work_.q_gates, width, width, begin,
                         end);
  });
}

// Lays out the convolution's weights of each recurrent layer as the kernels read them.
void Forward::transpose_convolutions() {
  int64_t const taps = model_.shape().state_conv, channels = model_.conv_channels();
  for (int32_t layer = 0; layer < model_.shape().layers; layer++) {
    float const* const from = model_.layer(layer).state_conv;
    for (int64_t i = 0; from && i < taps * channels; i++)
      work_.state_conv[size_t(layer)][i % taps * channels + i / taps] = from[i];
  }
}

}  // namespace bunting
