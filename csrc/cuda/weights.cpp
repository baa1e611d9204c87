#include "cuda/weights.h"

#include <algorithm>

#include "boundary/error.h"
#include "cuda/attention_plan.h"
#include "cuda/uploader.h"

namespace bunting::cuda {
namespace {

constexpr char const* kWidths = "the GPU engine wants widths that are multiples of 8; %s is %d";

void check_latent(bunting_model_shape const& s, bunting_layer_shape const& layer) {
  if (s.latent_rank > kLatentMax)
    fail(BUNTING_INVALID, "the GPU engine has latents of at most %d, not of %d", kLatentMax, s.latent_rank);
  if (layer.sliding_window > 0 || s.attention_cap > 0)
    fail(BUNTING_INVALID, "the GPU engine computes latent attention without windows and caps");
}

void check_heads(bunting_model_shape const& s, bunting_layer_shape const& layer) {
  if (layer.mixer == BUNTING_MIXER_LATENT) return check_latent(s, layer);
  int32_t const d = layer.head_size, group = s.query_heads / layer.kv_heads;
  if ((d % 32 != 0 || d > 128) && d != 256 && d != 512)
    fail(BUNTING_INVALID, "the GPU engine has heads of 32, 64, 96, 128, 256 and 512, not of %d", d);
  if (group > kManyRows)
    fail(BUNTING_INVALID, "the GPU engine shares a key-value head among at most %d query heads, not %d",
         kManyRows, group);
  if (s.kv == BUNTING_KV_FP8 && (d < 64 || d > 128))
    fail(BUNTING_INVALID,
         "the GPU engine keeps keys and values in fp8 for heads of 64, 96 and 128, not of %d", d);
}

}  // namespace

void check_shape(Model const& model) {
  bunting_model_shape const& s = model.shape();
  if (s.compute != BUNTING_BF16) fail(BUNTING_INVALID, "the GPU engine computes in bf16, not in f32");
  if (model.is_bidirectional())
    fail(BUNTING_INVALID, "the GPU engine computes no encoders, whose tokens see those behind them");
  if (s.no_final_norm || s.embedding_norm || s.positions > 0 || s.token_types > 0)
    fail(BUNTING_INVALID,
         "the GPU engine computes no norm of the embedding, no learned positions and no token types, and "
         "needs "
         "a final norm");
  if (s.activation == BUNTING_ACTIVATION_GELU)
    fail(BUNTING_INVALID, "the GPU engine approximates GELU by tanh, and this model wants the exact one");
  if (model.has_head()) fail(BUNTING_INVALID, "the GPU engine computes no head that drafts");
  if (model.streams() > 1)
    fail(BUNTING_INVALID, "the GPU engine computes one residual stream, and this model has %d (AltUp)",
         model.streams());
  for (int32_t i = 0; i < s.layers; ++i) {
    if (model.layer_shape(i).laurel_rank > 0 || model.layer_shape(i).sparse_gate)
      fail(BUNTING_INVALID, "the GPU engine computes no LAuReL and no sparse gates, and layer %d has some",
           i);
    if (model.has_experts(i) && !model.has_gate(i))
      fail(BUNTING_INVALID, "the GPU engine computes no experts without gates, and layer %d has some", i);
    if (model.layer_shape(i).norms & (BUNTING_NORM_ATTN_SUM | BUNTING_NORM_MLP_SUM))
      fail(BUNTING_INVALID, "the GPU engine computes no norm of a layer's sum, and layer %d has one", i);
  }
  if (s.hidden % 8 != 0) fail(BUNTING_INVALID, kWidths, "hidden", s.hidden);
  for (int32_t i = 0; i < s.layers; ++i)
    if (int64_t const width = model.feed_forward(i); model.has_mlp(i) && width % 8 != 0)
      fail(BUNTING_INVALID, kWidths, model.has_experts(i) ? "expert_feed_forward" : "feed_forward",
           int32_t(width));
  for (int32_t i = 0; i < s.layers; ++i)
    if (int32_t const width = model.layer_shape(i).feed_forward; model.has_beside(i) && width % 8 != 0)
      fail(BUNTING_INVALID, kWidths, "feed_forward", width);
  if (model.has_experts() && s.experts_used > kExpertsUsedMax)
    fail(BUNTING_INVALID, "the GPU engine computes a token by at most %d experts, not by %d", kExpertsUsedMax,
         s.experts_used);
  for (int32_t i = 0; i < s.layers; ++i)
    if (RopeTable const* const rope = model.rope(i); rope && rope->dimensions % 4 != 0)
      fail(BUNTING_INVALID, "the GPU engine rotates a multiple of 4 numbers of each head, not %d",
           rope->dimensions);
  for (int32_t i = 0; i < s.layers; ++i)
    if (model.has_attention(i)) check_heads(s, model.layer_shape(i));
}

DeviceWeights::DeviceWeights(Model const& model, bunting_progress progress)
    : memory_(bytes(model), "the model's weights") {
  Uploader uploader(memory_, model, progress);
  place(model, uploader);
  host_bytes_used_ = uploader.finish();
}

size_t DeviceWeights::host_bytes(Model const& model) {
  return Uploader::host_bytes(model);
}

size_t DeviceWeights::bytes(Model const& model) {
  check_shape(model);
  Uploader measures;
  DeviceWeights().place(model, measures);
  return measures.used();
}

void DeviceWeights::place(Model const& model, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  PackedMatrix const& last = s.tied_embeddings ? model.embedding() : model.vocabulary_projection();
  embedding_ = uploader.table(model.embedding());
  bool const last_is_fp8 = model.is_fp8(s.tied_embeddings ? 0 : 1);
  vocabulary_projection_ = s.tied_embeddings && !last.grouped() && !last_is_fp8
                               ? WeightMatrix(embedding_)
                               : uploader.matrix(last, last_is_fp8, {{0, s.vocab}});
  int64_t const norm_size = s.norm_biases ? 2 * s.hidden : s.hidden;
  final_norm_ = uploader.vector(model.final_norm(), norm_size, s.logit_scale);
  if (s.layer_inputs > 0) {
    LayerInputWeights const& from = model.layer_inputs();
    layer_embedding_ = uploader.table(from.embedding);
    layer_projection_ = uploader.matrix(from.projection, false, {{0, from.projection.n}});
    layer_input_norm_ = uploader.vector(from.norm, s.layer_inputs);
  }
  place_ropes(model, uploader);
  layers_.resize(size_t(s.layers));
  for (int32_t i = 0; i < s.layers; ++i) {
    LayerWeights const& from = model.layer(i);
    bunting_layer_shape const& has = model.layer_shape(i);
    DeviceLayer& to = layers_[size_t(i)];
    // The shape decides which vectors exist, because a model that is only measured has none yet.
    auto const norm = [&](int32_t which, float const* weights) {
      return has.norms & which ? uploader.vector(weights, norm_size) : nullptr;
    };
    to.attention_norm = norm(BUNTING_NORM_ATTN, from.attention_norm);
    if (model.has_attention(i)) place_attention(model, i, uploader);
    if (model.has_state(i)) place_state(model, i, uploader);
    to.attention_post_norm = norm(BUNTING_NORM_ATTN_POST, from.attention_post_norm);
    // A parallel MLP reads the attention's norm.
    to.mlp_norm = norm(has.parallel ? BUNTING_NORM_ATTN : BUNTING_NORM_MLP, from.mlp_norm);
    if (model.has_mlp(i)) place_mlp(model, i, uploader);
    to.mlp_post_norm = norm(BUNTING_NORM_MLP_POST, from.mlp_post_norm);
    if (model.has_beside(i)) place_beside(model, i, uploader);
    if (s.layer_inputs > 0) {
      to.input_gate = uploader.matrix(from.input_gate, false, {{0, s.layer_inputs}});
      to.input_out = uploader.matrix(from.input_out, false, {{0, s.hidden}});
      to.input_post_norm = uploader.vector(from.input_post_norm, s.hidden);
    }
    if (has.scaled) to.scale = uploader.number(from.scale);
    if (s.activation == BUNTING_ACTIVATION_XIELU) {
      float numbers[4] = {};
      uploader.numbers(from.xielu, 4, numbers);
      to.xielu = xielu_of(numbers);
    }
  }
}

void DeviceWeights::place_attention(Model const& model, int32_t layer, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  bunting_layer_shape const& has = model.layer_shape(layer);
  LayerWeights const& from = model.layer(layer);
  DeviceLayer& to = layers_[size_t(layer)];
  int32_t const first = Model::first_format(layer);
  to.qkv = uploader.matrix(from.qkv, model.is_fp8(first), {{0, from.qkv.n}});
  if (model.is_latent(layer)) place_latents(model, layer, uploader);
  if (has.biases & BUNTING_BIAS_QKV) to.qkv_bias = uploader.vector(from.qkv_bias, model.qkv_width(layer));
  bool const is_wide = has.qk_norm == BUNTING_QK_NORM_WIDE;
  bool const has_qk = model.has_qk_weights(layer);
  if (has_qk) to.q_norm = uploader.vector(from.q_norm, is_wide ? model.query_width(layer) : has.head_size);
  if (has_qk && model.has_keys(layer))
    to.k_norm = uploader.vector(from.k_norm, is_wide ? model.kv_width(layer) : has.head_size);
  if (has.sinks) to.sinks = uploader.vector(from.sinks, s.query_heads);
  to.o = uploader.matrix(from.o, model.is_fp8(first + 2), {{0, s.hidden}});
  if (has.biases & BUNTING_BIAS_O) to.o_bias = uploader.vector(from.o_bias, s.hidden);
  if (has.gated_output) to.q_gate = uploader.matrix(from.q_gate, model.is_fp8(first), {{0, from.q_gate.n}});
}

// Uploads a recurrent mixer. On the host each part of a matrix begins on a panel.
void DeviceWeights::place_state(Model const& model, int32_t layer, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  LayerWeights const& from = model.layer(layer);
  StateWeights& to = layers_[size_t(layer)].state;
  int64_t const keys = model.state_key_width(), values = model.state_value_width(),
                channels = model.conv_channels(), heads = s.state_heads;
  int32_t const first = model.first_state_format(layer);
  std::vector<Uploader::Rows> of_in{
      {0, keys}, {round_up(keys, kPanel), keys}, {model.state_v_column(), values}};
  Uploader::Rows const of_z{model.state_z_column(), values};
  bool const is_apart = from.state_z.n > 0, is_fp8 = model.is_fp8(first), z_is_fp8 = model.is_fp8(first + 1);
  // All rows of one matrix have one format; bf16 and fp8 share one on the host.
  bool const is_split = model.has_state_heads() && !is_apart && is_fp8 != z_is_fp8;
  if (model.has_state_heads() && !is_apart && !is_split) of_in.push_back(of_z);
  to.in = uploader.matrix(from.state_in, is_fp8, of_in);
  if (is_apart)
    to.z = uploader.matrix(from.state_z, z_is_fp8, {{0, values}});
  else if (is_split)
    to.z = uploader.matrix(from.state_in, z_is_fp8, {of_z});
  to.o = uploader.matrix(from.state_o, model.is_fp8(first + 2), {{0, s.hidden}});
  to.conv = uploader.transposed(from.state_conv, channels, s.state_conv);
  if (s.state_options & BUNTING_STATE_CONV_BIAS)
    to.conv_bias = uploader.vector(from.state_conv_bias, channels);
  if (!model.has_state_heads()) return;
  std::vector<Uploader::Rows> of_gates{{0, heads}};
  if (model.is_delta(layer)) of_gates.push_back({model.state_b_row(), heads});
  to.gates = uploader.exact(from.state_gates, of_gates);
  to.dt_bias = uploader.vector(from.state_dt_bias, heads);
  to.rates = uploader.vector(from.state_decay, heads);
  if (s.state_options & BUNTING_STATE_SKIP) to.skip = uploader.vector(from.state_skip, heads);
  if (model.state_norm_width() > 0) to.norm = uploader.vector(from.state_norm, model.state_norm_width());
}

// Uploads the matrices and norms of a latent layer beside its Q and O.
void DeviceWeights::place_latents(Model const& model, int32_t layer, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  LayerWeights const& from = model.layer(layer);
  DeviceLayer& to = layers_[size_t(layer)];
  bool const is_fp8 = model.is_fp8(Model::first_format(layer) + 1);
  if (s.query_rank > 0) {
    to.query_latent = uploader.matrix(from.v, is_fp8, {{0, s.query_rank}});
    to.q_norm = uploader.vector(from.q_norm, s.query_rank);
  }
  to.key = uploader.matrix(from.v, is_fp8, {{s.query_rank, s.head_size}});
  to.k_norm = uploader.vector(from.k_norm, s.latent_rank);
  to.latent_keys = static_cast<bf16 const*>(uploader.matrix(from.keys, false, {{0, from.keys.n}}).data);
  to.latent_values = static_cast<bf16 const*>(uploader.matrix(from.values, false, {{0, from.values.n}}).data);
}

// Uploads the matrices of a layer's MLP, or of each of its experts. On the host they begin on whole panels.
void DeviceWeights::place_mlp(Model const& model, int32_t layer, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  bunting_layer_shape const& has = model.layer_shape(layer);
  LayerWeights const& from = model.layer(layer);
  DeviceLayer& to = layers_[size_t(layer)];
  bool const has_experts = model.has_experts(layer);
  if (has_experts) {
    to.router = uploader.exact(from.router, {{0, s.experts}});
    if (has.biases & BUNTING_BIAS_ROUTER) to.router_bias = uploader.vector(from.router_bias, s.experts);
    if (s.router_options & BUNTING_ROUTER_BIASED)
      to.choice_bias = uploader.vector(from.choice_bias, s.experts);
  }
  int64_t const width = model.feed_forward(layer), padded = model.padded_feed_forward(layer),
                parts = model.has_gate(layer) ? 2 : 1;
  std::vector<Uploader::Rows> of_gate_up, of_down;
  std::vector<float const*> gate_up_biases, down_biases;
  auto const at = [](float const* bias, int64_t row) { return bias ? bias + row : nullptr; };
  for (int64_t e = 0; e < (has_experts ? s.experts : 1); ++e) {
    for (int64_t part = 0; part < parts; ++part) {
      int64_t const row = (parts * e + part) * padded;
      of_gate_up.push_back({row, width});
      gate_up_biases.push_back(at(from.gate_up_bias, row));
    }
    of_down.push_back({e * model.padded_hidden(), s.hidden});
    down_biases.push_back(at(from.down_bias, e * model.padded_hidden()));
  }
  int32_t const first = Model::first_format(layer);
  to.mlp.gate_up = uploader.matrix(from.gate_up, model.is_fp8(first + 3), of_gate_up);
  if (has.biases & BUNTING_BIAS_GATE_UP) to.mlp.gate_up_bias = uploader.vectors(gate_up_biases, width);
  to.mlp.down = uploader.matrix(from.down, model.is_fp8(first + 4), of_down);
  if (has.biases & BUNTING_BIAS_DOWN) to.mlp.down_bias = uploader.vectors(down_biases, s.hidden);
}

// Uploads the parts of an MLP beside experts.
void DeviceWeights::place_beside(Model const& model, int32_t layer, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  LayerWeights const& from = model.layer(layer);
  DeviceLayer& to = layers_[size_t(layer)];
  int64_t const width = model.layer_shape(layer).feed_forward, padded = round_up(width, kPanel);
  int32_t const first = Model::first_format(layer);
  to.beside.gate_up =
      uploader.matrix(from.beside_gate_up, model.is_fp8(first + 5), {{0, width}, {padded, width}});
  to.beside.down = uploader.matrix(from.beside_down, model.is_fp8(first + 6), {{0, s.hidden}});
  if (model.has_shared_gate(layer)) to.shared_gate = uploader.exact(from.shared_gate, {{0, 1}});
  if (!model.has_both(layer)) return;
  to.beside_post_norm = uploader.vector(from.beside_post_norm, s.hidden);
  to.experts_norm = uploader.vector(from.experts_norm, s.hidden);
  to.experts_post_norm = uploader.vector(from.experts_post_norm, s.hidden);
  to.router_norm = uploader.vector(from.router_norm, s.hidden);
  to.expert_scales = uploader.vector(from.expert_scales, s.experts);
}

void DeviceWeights::place_ropes(Model const& model, Uploader& uploader) {
  for (size_t i = 0; i < model.ropes().size(); ++i) {
    RopeTable rope = model.ropes()[i];
    rope.far = uploader.array(rope.far, rope.far_turns(model.shape().context_max));
    rope.near = uploader.array(rope.near, rope.near_turns());
    if (model.has_query_scale(i))
      rope.query_scale = uploader.array(rope.query_scale, model.shape().context_max);
    ropes_.push_back(rope);
  }
}

}  // namespace bunting::cuda
