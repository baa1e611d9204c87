// recurrent_layers.cpp - the kernels of a recurrent mixer.
#include "cuda/forward.h"

namespace bunting::cuda {
namespace {

StateSizes sizes_of(Model const& model, int32_t layer) {
  bunting_model_shape const& s = model.shape();
  return {.key_heads = s.state_key_heads,
          .heads = s.state_heads,
          .key_size = s.state_key_size,
          .value_size = s.state_value_size,
          .taps = s.state_conv,
          .channels = int32_t(model.conv_channels()),
          .is_delta = model.is_delta(layer),
          .has_tiled_heads = (s.state_options & BUNTING_STATE_TILED_HEADS) != 0};
}

}  // namespace

void Forward::mix_states(int32_t index, int32_t tokens, int32_t chunks) {
  bunting_model_shape const& s = model_.shape();
  StateWeights const& weights = weights_.layer(index).state;
  StateStep const step = inputs_.states(chunks, tokens);
  if (!model_.has_state_heads()) return mix_short(index, step);
  StateSizes const sizes = sizes_of(model_, index);
  StateLayer const memory = states_.layer(index);
  int32_t const values = int32_t(model_.state_value_width()), heads = s.state_heads;
  int32_t const in_width = sizes.channels + (weights.z.data ? 0 : values);
  multiply({act_.normed, weights.in, nullptr, act_.state_in, tokens, in_width, s.hidden});
  if (weights.z.data) multiply({act_.normed, weights.z, nullptr, act_.state_z, tokens, values, s.hidden});
  router(stream_, {act_.router_input, weights.gates, nullptr, act_.state_gates, tokens,
                   (sizes.is_delta ? 2 : 1) * heads, s.hidden});
  state_conv(stream_, {.in = act_.state_in,
                       .in_stride = in_width,
                       .out = act_.state_conv,
                       .weights = weights.conv,
                       .bias = weights.conv_bias,
                       .sizes = sizes,
                       .memory = memory,
                       .step = step,
                       .gates = act_.state_gates,
                       .dt_bias = weights.dt_bias,
                       .rates = weights.rates,
                       .dt_min = s.state_dt_min,
                       .dt_max = s.state_dt_max,
                       .decay = act_.state_decay,
                       .factor = act_.state_factor});
  state_history(stream_, {act_.state_in, in_width, false, sizes, memory, step});
  state_scan(stream_, {act_.state_conv, act_.state_decay, act_.state_factor, weights.skip, act_.state_out,
                       sizes, memory, step});
  int32_t const norm_width = int32_t(model_.state_norm_width());
  int32_t const groups = s.state_options & BUNTING_STATE_NORM_GROUPS  ? s.state_key_heads
                         : s.state_options & BUNTING_STATE_NORM_HEADS ? heads
                                                                      : 1;
  state_output(stream_, {.x = act_.state_out,
                         .z = weights.z.data ? act_.state_z : act_.state_in + sizes.channels,
                         .z_stride = weights.z.data ? values : in_width,
                         .y = act_.mixed,
                         .norm = weights.norm,
                         .tokens = tokens,
                         .width = values,
                         .part = values / groups,
                         .norm_repeats = norm_width < values,
                         .gate_first = (s.state_options & BUNTING_STATE_GATE_FIRST) != 0,
                         .epsilon = s.norm_epsilon});
}

void Forward::mix_short(int32_t index, StateStep const& step) {
  StateWeights const& weights = weights_.layer(index).state;
  StateSizes const sizes = sizes_of(model_, index);
  StateLayer const memory = states_.layer(index);
  int32_t const in_width = 3 * sizes.channels;
  multiply({act_.normed, weights.in, nullptr, act_.state_in, step.tokens, in_width, model_.shape().hidden});
  short_conv(stream_, {act_.state_in, act_.mixed, weights.conv, weights.conv_bias, sizes, memory, step});
  state_history(stream_, {act_.state_in, in_width, true, sizes, memory, step});
}

}  // namespace bunting::cuda
