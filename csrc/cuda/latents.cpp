// latents.cpp - the parts of latent layers around their attention, as in csrc/cpu/latents.cpp.
#include "cuda/forward.h"

namespace bunting::cuda {

void Forward::project_and_append_latents(int32_t index, int32_t tokens) {
  bunting_model_shape const& s = model_.shape();
  DeviceLayer const& layer = weights_.layer(index);
  int32_t const rope_index = model_.layer_shape(index).rope, query_width = int32_t(model_.q_rows(index));
  RopeTable const& rope = weights_.rope(rope_index);
  Activations::Angles const angles = act_.angles[size_t(rope_index)];
  StepArrays const& in = inputs_.on_device();
  multiply({act_.normed, layer.key, nullptr, act_.key, tokens, s.head_size, s.hidden});
  if (s.query_rank > 0) {
    multiply({act_.normed, layer.query_latent, nullptr, act_.query_latents, tokens, s.query_rank, s.hidden});
    add_norm(stream_, {.x = act_.query_latents,
                       .delta = nullptr,
                       .weight = layer.q_norm,
                       .y = act_.normed_latents,
                       .epsilon = s.latent_norm_epsilon,
                       .tokens = tokens,
                       .hidden = s.query_rank,
                       .kind = BUNTING_NORM_RMS});
    multiply({act_.normed_latents, layer.qkv, nullptr, act_.qkv, tokens, query_width, s.query_rank});
  } else {
    multiply({act_.normed, layer.qkv, nullptr, act_.qkv, tokens, query_width, s.hidden});
  }
  latent_append(stream_, {.queries = act_.qkv,
                          .key = act_.key,
                          .nope = act_.nope,
                          .q = act_.q,
                          .query_heads = s.query_heads,
                          .nope_size = s.key_size,
                          .latent = s.latent_rank,
                          .norm = layer.k_norm,
                          .norm_epsilon = s.latent_norm_epsilon,
                          .rotated = rope.dimensions,
                          .cos = angles.cos,
                          .sin = angles.sin,
                          .query_scale = rope.query_scale,
                          .positions = in.positions,
                          .slots = in.slots,
                          .kv = pages_.layer(index),
                          .tokens = tokens});
}

void Forward::attend_to_latents(int32_t index, int32_t tokens) {
  bunting_model_shape const& s = model_.shape();
  StepArrays const& in = inputs_.on_device();
  head_product(stream_, {.x = act_.nope,
                         .w = weights_.layer(index).latent_keys,
                         .y = act_.q,
                         .x_token = int64_t(s.query_heads) * s.key_size,
                         .x_head = s.key_size,
                         .y_token = int64_t(s.query_heads) * s.head_size,
                         .y_head = s.head_size,
                         .tokens = tokens,
                         .heads = s.query_heads,
                         .n = s.latent_rank,
                         .k = s.key_size});
  latent_attention(stream_, {.q = act_.q,
                             .out = act_.attended,
                             .kv = pages_.layer(index),
                             .query_heads = s.query_heads,
                             .latent = s.latent_rank,
                             .scale = s.attention_scale,
                             .pages = in.pages,
                             .pages_at = in.pages_at,
                             .positions = in.positions,
                             .slots = in.slots,
                             .tokens = tokens});
}

bf16 const* Forward::turn_from_latents(int32_t index, bf16 const* attended, int32_t tokens) {
  bunting_model_shape const& s = model_.shape();
  head_product(stream_, {.x = attended,
                         .w = weights_.layer(index).latent_values,
                         .y = act_.head_outputs,
                         .x_token = int64_t(s.query_heads) * s.latent_rank,
                         .x_head = s.latent_rank,
                         .y_token = int64_t(s.query_heads) * s.value_size,
                         .y_head = s.value_size,
                         .tokens = tokens,
                         .heads = s.query_heads,
                         .n = s.value_size,
                         .k = s.latent_rank});
  return act_.head_outputs;
}

}  // namespace bunting::cuda
