// model.cpp - the weights of a model, their formats and their places in memory.
#include "model/model.h"

#include <algorithm>

#include "boundary/error.h"
#include "host/machine.h"
#include "model/model_shape.h"
#include "model/packed_file.h"
#include "model/panel_reader.h"
#include "model/stored_type.h"

namespace bunting {

namespace {

Kernels const* choose_kernels(int32_t isa) {
  int32_t const best = usable_isa();
  if (!kernels_for(best))
    fail(BUNTING_INVALID,
         "this library was built for another processor only: build it again on this machine");
  if (isa == BUNTING_ISA_AUTO) isa = best;
  if (isa < BUNTING_ISA_PORTABLE || isa > best)
    fail(BUNTING_INVALID, "instruction set level %d: this machine and library go up to %d", isa, best);
  Kernels const* const kernels = kernels_for(isa);
  if (!kernels) fail(BUNTING_INVALID, "instruction set level %d is not in this library", isa);
  return kernels;
}

}  // namespace

Model::Model(bunting_model_shape const& shape) : shape_(shape) {
  check_shape(shape);
  kernels_ = choose_kernels(shape.isa);
  dtype_ = shape.compute == BUNTING_F32 ? Dtype::f32 : Dtype::bf16;
  layers_.resize(size_t(shape.layers));
  layer_shapes_.assign(shape.layer, shape.layer + shape.layers);
  for (bunting_layer_shape& layer : layer_shapes_) {
    if (layer.head_size == 0) layer.head_size = shape.head_size;
    if (layer.kv_heads == 0) layer.kv_heads = shape.kv_heads;
    if (layer.feed_forward == 0) layer.feed_forward = shape.feed_forward;
  }
  read_ropes();
  read_formats();
  shape_.layer = nullptr, shape_.rope = nullptr, shape_.formats = nullptr;  // pointers of the caller
  weight_bytes_ = place(nullptr);
}

std::optional<Dtype> matrix_type(int32_t format, Dtype plain) {
  switch (format) {
    case BUNTING_FORMAT_PLAIN:
    case BUNTING_FORMAT_FP8:
      return plain;
    case BUNTING_FORMAT_INT8:
      return Dtype::q8_128;
    case BUNTING_FORMAT_Q8_0:
      return Dtype::q8;
    case BUNTING_FORMAT_INT6:
      return Dtype::q6;
    case BUNTING_FORMAT_INT4:
      return Dtype::q4;
    default:
      if (stored_type(format) && is_grouped(Dtype(format))) return Dtype(format);
      return std::nullopt;
  }
}

void Model::read_format(uint8_t format, char const* name, PackedMatrix& matrix) const {
  std::optional<Dtype> const type = matrix_type(format, dtype_);
  if (!type)
    fail(BUNTING_INVALID,
         "model shape: the format of %s is %d, which is none of BUNTING_FORMAT_* and no stored type", name,
         format);
  matrix.dtype = *type;
}

bool Model::has_experts() const {
  for (int32_t layer = 0; layer < shape_.layers; layer++)
    if (has_experts(layer)) return true;
  return false;
}

bool Model::has_experts(int32_t layer) const {
  return mixes_experts(layer_shape(layer).mlp);
}

bool Model::has_beside() const {
  for (int32_t layer = 0; layer < shape_.layers; layer++)
    if (has_beside(layer)) return true;
  return false;
}

bool Model::is_latent() const {
  for (int32_t layer = 0; layer < shape_.layers; layer++)
    if (is_latent(layer)) return true;
  return false;
}

int64_t Model::q_rows(int32_t layer) const {
  if (!is_latent(layer)) return query_width(layer);
  return int64_t(shape_.query_heads) * (shape_.key_size + layer_shape(layer).head_size - shape_.latent_rank);
}

int64_t Model::mixed_width(int32_t layer) const {
  return is_latent(layer) ? int64_t(shape_.query_heads) * shape_.value_size : query_width(layer);
}

int64_t Model::qkv_width() const {
  int64_t widest = 0;
  for (int32_t layer = 0; layer < shape_.layers; layer++) widest = std::max(widest, qkv_width(layer));
  return widest;
}

int32_t Model::last_layer_with_memory() const {
  int32_t layer = body_layers() - 1;
  while (!has_keys(layer) && !has_state(layer)) layer--;
  return layer;
}

bool Model::has_fp8() const {
  return std::find(formats_.begin(), formats_.end(), BUNTING_FORMAT_FP8) != formats_.end();
}

bool Model::is_for_cpus() const {
  return std::any_of(formats_.begin(), formats_.end(), [](uint8_t format) {
    return is_grouped(Dtype(format)) && Dtype(format) != Dtype::mxfp4;
  });
}

bool Model::has_apart_v() const {
  for (int32_t layer = 0; layer < shape_.layers; layer++) {
    size_t const qk = size_t(first_format(layer));
    if (has_v(layer) && formats_[qk + 1] != formats_[qk]) return true;
  }
  return false;
}

void Model::read_ropes() {
  for (int32_t i = 0; i < shape_.ropes; i++) {
    bunting_rope const& rope = shape_.rope[i];
    ropes_.push_back({.dimensions = rope.dimensions, .magnitude = rope.magnitude});
    rope_shapes_.push_back(rope);
    rope_frequencies_.emplace_back(rope.frequencies, rope.frequencies + rope.dimensions / 2);
  }
}

void Model::read_formats() {
  formats_.assign(3 + (has_states() ? 10 : 7) * layers_.size(), BUNTING_FORMAT_PLAIN);
  if (shape_.formats) std::copy_n(shape_.formats, formats_.size(), formats_.begin());
  read_format(formats_[0], "the embedding", embedding_);
  read_format(formats_[1], "the vocabulary projection", lm_head_);
  uint8_t const* next = formats_.data() + 2;
  for (LayerWeights& layer : layers_) {
    read_format(*next++, "q and k", layer.qkv);
    read_format(*next++, "v", layer.v);
    layer.keys.dtype = layer.values.dtype = dtype_;
    read_format(*next++, "o", layer.o);
    read_format(*next++, "gate and up", layer.gate_up);
    read_format(*next++, "down", layer.down);
    read_format(*next++, "gate and up beside experts", layer.beside_gate_up);
    read_format(*next++, "down beside experts", layer.beside_down);
    layer.input_gate.dtype = layer.input_out.dtype = dtype_;
    layer.stream_in.dtype = layer.stream_out.dtype = layer.laurel_in.dtype = layer.laurel_out.dtype = dtype_;
    layer.head_projection.dtype = dtype_;
  }
  read_format(*next, "the embedding of layers' inputs", layer_inputs_.embedding);
  layer_inputs_.projection.dtype = dtype_;
  if (!has_states()) return;
  next++;
  for (LayerWeights& layer : layers_) {
    read_format(*next++, "q, k and v of a state", layer.state_in);
    read_format(*next++, "z of a state", layer.state_z);
    read_format(*next++, "o of a state", layer.state_o);
    layer.state_gates.dtype = Dtype::f32;
  }
}

Model::~Model() = default;

void Model::allocate(Loading loading) {
  is_deferred_ = loading == Loading::deferred;
  region_ = is_deferred_ ? MemoryRegion::of_addresses(weight_bytes_, "the model's weights")
                         : MemoryRegion(weight_bytes_, "the model's weights");
  if (is_deferred_) region_.back_by_memory(packed_bytes_, table_bytes());
  place(region_.data());
  loaded_.assign(tensor_slot(BUNTING_T_ATTN_NORM, shape_.layers), 0);
  pool_ = std::make_unique<ThreadPool>(shape_.threads, ThreadPool::Cores::any, ThreadPool::Manner::yielding);
  for (size_t i = 0; i < ropes_.size(); i++) {
    bunting_rope const& rope = rope_shapes_[i];
    rope_turns(rope_frequencies_[i], (shape_.context_max + kRopeStride - 1) / kRopeStride, kRopeStride,
               ropes_[i].far);
    rope_turns(rope_frequencies_[i], kRopeStride, 1, ropes_[i].near);
    if (ropes_[i].query_scale)
      query_scales(rope.query_growth, rope.query_span, rope.query_offset, shape_.context_max,
                   ropes_[i].query_scale);
  }
}

// Lays out all weights from `base` on and returns their bytes; with a null base it only measures.
size_t Model::place(char* base) {
  Carver carver(base);
  auto const vector = [&](int64_t size) { return carver.take<float>(size_t(size)); };
  auto const matrix = [&](PackedMatrix& m, int64_t n, int64_t k) {
    m.n = n;
    m.k = k;
    m.data = carver.take<char>(m.bytes());
    width_max_ = std::max(width_max_, m.kp());
    if (m.grouped()) grouped_width_ = std::max(grouped_width_, m.kp());
  };
  int64_t const hidden = shape_.hidden, inputs = shape_.layer_inputs;
  int64_t const norm = shape_.norm_biases ? 2 * hidden : hidden;
  matrix(embedding_, shape_.vocab, hidden);
  if (!shape_.tied_embeddings) matrix(lm_head_, shape_.vocab, hidden);
  auto const optional = [&](bool is_there, int64_t size) { return is_there ? vector(size) : nullptr; };
  final_norm_ = optional(!shape_.no_final_norm, norm);
  embedding_norm_ = optional(shape_.embedding_norm, norm);
  positions_ = optional(shape_.positions > 0, shape_.positions * hidden);
  token_types_ = optional(shape_.token_types > 0, shape_.token_types * hidden);
  if (inputs > 0) {
    matrix(layer_inputs_.embedding, shape_.vocab, shape_.layers * inputs);
    matrix(layer_inputs_.projection, shape_.layers * inputs, hidden);
    layer_inputs_.norm = vector(inputs);
  }
  for (int32_t i = 0; i < shape_.layers; i++) {
    bunting_layer_shape const& has = layer_shape(i);
    LayerWeights& layer = layers_[size_t(i)];
    bool const is_wide = has.qk_norm == BUNTING_QK_NORM_WIDE;
    layer.attention_norm = optional(has.norms & BUNTING_NORM_ATTN, norm);
    int64_t const query = query_width(i), kv = kv_width(i);
    bool const is_apart = has_v(i) && layer.v.dtype != layer.qkv.dtype;
    if (is_latent(i)) {
      int64_t const heads = shape_.query_heads, rank = shape_.latent_rank;
      matrix(layer.qkv, q_rows(i), shape_.query_rank > 0 ? shape_.query_rank : hidden);
      matrix(layer.v, shape_.query_rank + kv, hidden);
      matrix(layer.keys, heads * rank, shape_.key_size);
      matrix(layer.values, heads * shape_.value_size, rank);
    } else if (has_attention(i)) {
      matrix(layer.qkv, projected_width(i) - (is_apart ? kv : 0), hidden);
      if (is_apart) matrix(layer.v, kv, hidden);
    }
    if (has.gated_output) {
      layer.q_gate.dtype = layer.qkv.dtype;
      matrix(layer.q_gate, query, hidden);
    }
    layer.qkv_bias = optional(has.biases & BUNTING_BIAS_QKV, qkv_width(i));
    layer.q_norm = is_latent(i) ? optional(shape_.query_rank > 0, shape_.query_rank)
                                : optional(has_qk_weights(i), is_wide ? query : has.head_size);
    layer.k_norm = is_latent(i) ? vector(shape_.latent_rank)
                                : optional(has_qk_weights(i) && has_keys(i), is_wide ? kv : has.head_size);
    layer.sinks = optional(has.sinks, shape_.query_heads);
    if (has_attention(i)) matrix(layer.o, hidden, mixed_width(i));
    if (has_state(i)) place_state(i, matrix, vector);
    layer.o_bias = optional(has.biases & BUNTING_BIAS_O, hidden);
    layer.attention_post_norm = optional(has.norms & (BUNTING_NORM_ATTN_POST | BUNTING_NORM_ATTN_SUM), norm);
    layer.mlp_norm = has.parallel ? layer.attention_norm : optional(has.norms & BUNTING_NORM_MLP, norm);
    int64_t const experts = has_experts(i) ? shape_.experts : 1;
    int64_t const gate_up = experts * (has_gate(i) ? 2 : 1) * padded_feed_forward(i),
                  down = has_experts(i) ? experts * padded_hidden() : hidden;
    if (has_experts(i)) {
      layer.router.dtype = Dtype::f32;
      matrix(layer.router, experts, hidden);
    }
    layer.router_bias = optional(has.biases & BUNTING_BIAS_ROUTER, experts);
    layer.choice_bias =
        optional(has_experts(i) && (shape_.router_options & BUNTING_ROUTER_BIASED), shape_.experts);
    if (has_mlp(i)) matrix(layer.gate_up, gate_up, hidden);
    layer.gate_up_bias = optional(has.biases & BUNTING_BIAS_GATE_UP, gate_up);
    if (has_mlp(i)) matrix(layer.down, down, feed_forward(i));
    layer.down_bias = optional(has.biases & BUNTING_BIAS_DOWN, down);
    layer.mlp_post_norm = optional(has.norms & (BUNTING_NORM_MLP_POST | BUNTING_NORM_MLP_SUM), norm);
    layer.xielu = optional(shape_.activation == BUNTING_ACTIVATION_XIELU, 4);
    if (has_beside(i)) {
      matrix(layer.beside_gate_up, (has_gate(i) ? 2 : 1) * round_up(has.feed_forward, kPanel), hidden);
      matrix(layer.beside_down, hidden, has.feed_forward);
    }
    if (has_shared_gate(i)) {
      layer.shared_gate.dtype = Dtype::f32;
      matrix(layer.shared_gate, 1, hidden);
    }
    if (has_both(i)) {
      for (float** norm :
           {&layer.beside_post_norm, &layer.experts_norm, &layer.experts_post_norm, &layer.router_norm})
        *norm = vector(hidden);
      layer.expert_scales = vector(shape_.experts);
    }
    if (inputs > 0) {
      matrix(layer.input_gate, inputs, hidden);
      matrix(layer.input_out, hidden, inputs);
      layer.input_post_norm = vector(hidden);
    }
    layer.scale = optional(has.scaled, 1);
    if (has_stream(i)) {
      matrix(layer.stream_in, hidden, hidden);
      matrix(layer.stream_out, hidden, hidden);
    }
    int64_t const streams = this->streams();
    layer.stream_router = optional(streams > 1, streams * hidden);
    layer.stream_norm = optional(streams > 1, hidden);
    layer.stream_predict = optional(streams > 1, streams * streams * streams);
    layer.stream_correct = optional(streams > 1, streams * streams);
    layer.stream_scale = optional(streams > 1, hidden);
    if (has.laurel_rank > 0) {
      matrix(layer.laurel_in, has.laurel_rank, hidden);
      matrix(layer.laurel_out, hidden, has.laurel_rank);
      layer.laurel_norm = vector(hidden);
    }
    if (is_head(i)) {
      matrix(layer.head_projection, hidden, 2 * hidden);
      for (float** norm : {&layer.head_embed_norm, &layer.head_hidden_norm, &layer.head_norm})
        *norm = vector(hidden);
    }
  }
  packed_bytes_ = carver.used();
  for (size_t i = 0; i < ropes_.size(); i++) {
    RopeTable& rope = ropes_[i];
    rope.far = carver.take<Turn>(size_t(rope.far_turns(shape_.context_max)));
    rope.near = carver.take<Turn>(size_t(rope.near_turns()));
    if (has_query_scale(i)) rope.query_scale = vector(shape_.context_max);
  }
  return carver.used();
}

// Lays out the weights of a recurrent mixer.
template <class Matrix, class Vector>
void Model::place_state(int32_t index, Matrix const& matrix, Vector const& vector) {
  LayerWeights& layer = layers_[size_t(index)];
  int64_t const hidden = shape_.hidden, heads = shape_.state_heads;
  bool const has_heads = has_state_heads(),
             has_apart_z = has_heads && layer.state_z.dtype != layer.state_in.dtype;
  auto const optional = [&](bool is_there, int64_t size) { return is_there ? vector(size) : nullptr; };
  int64_t const z_column = has_heads && !has_apart_z ? state_z_column() : state_v_column();
  matrix(layer.state_in, z_column + state_value_width(), hidden);
  if (has_apart_z) matrix(layer.state_z, state_value_width(), hidden);
  layer.state_conv = vector(conv_channels() * shape_.state_conv);
  layer.state_conv_bias = optional(shape_.state_options & BUNTING_STATE_CONV_BIAS, conv_channels());
  if (has_heads) {
    matrix(layer.state_gates, is_delta(index) ? state_b_row() + heads : heads, hidden);
    layer.state_dt_bias = vector(heads);
    layer.state_decay = vector(heads);
    layer.state_skip = optional(shape_.state_options & BUNTING_STATE_SKIP, heads);
    layer.state_norm = optional(state_norm_width() > 0, state_norm_width());
  }
  matrix(layer.state_o, hidden, state_value_width());
}

uint64_t Model::page_bytes() const {
  uint64_t bytes = 0;
  for (int32_t layer = 0; layer < shape_.layers; layer++) {
    if (!has_keys(layer)) continue;
    bytes = is_bidirectional() ? std::max(bytes, page_bytes(layer)) : bytes + page_bytes(layer);
  }
  return bytes;
}

uint64_t Model::page_bytes(int32_t layer) const {
  bunting_layer_shape const& has = layer_shape(layer);
  if (is_latent(layer)) return latent_page_bytes(kv_dtype(), has.head_size);
  // Per token and head: one byte per number, and a two-byte multiplier for its keys and one for its values.
  if (shape_.kv == BUNTING_KV_FP8)
    return uint64_t(has.kv_heads) * 2 * kPageTokens * uint64_t(has.head_size + 2);
  return kv_page_bytes(kv_dtype(), has.kv_heads, has.head_size);
}

int64_t Model::state_norm_width() const {
  if (shape_.state_options & BUNTING_STATE_NORM_HEADS) return shape_.state_value_size;
  bool const is_wide = shape_.state_options & (BUNTING_STATE_NORM_GROUPS | BUNTING_STATE_NORM_WIDE);
  return is_wide ? state_value_width() : 0;
}

bool Model::has_gated_output() const {
  return std::any_of(layer_shapes_.begin(), layer_shapes_.end(),
                     [](bunting_layer_shape const& layer) { return layer.gated_output != 0; });
}

int64_t Model::layer_state_numbers() const {
  return conv_state_numbers() + (has_state_heads() ? state_value_width() * shape_.state_key_size : 0);
}

uint64_t Model::state_bytes() const {
  uint64_t layers = 0;
  for (int32_t layer = 0; layer < shape_.layers; layer++) layers += has_state(layer);
  return layers == 0 ? 0 : layers * uint64_t(layer_state_numbers()) * sizeof(float);
}

void Model::let_go(char const* from, size_t bytes) const {
  region_.let_go(size_t(from - region_.data()), bytes);
}

void Model::save(char const* path, uint8_t const* key, bunting_progress progress) {
  if (!sealed_) fail(BUNTING_INVALID, "%s: the model is not sealed", path);
  if (!is_in_files()) {
    save_packed(path, key, packed_bytes_, [&](size_t at, size_t) { return region_.data() + at; }, progress);
    return;
  }
  ThreadPool pool(shape_.threads, ThreadPool::Cores::any, ThreadPool::Manner::yielding);
  PackedImage image(*this, region_.data(), pool);
  save_packed(
      path, key, packed_bytes_, [&](size_t at, size_t bytes) { return image.read(at, bytes); }, progress);
  region_.back_by_memory(0, packed_bytes_);
  restore_packed(path, key, region_, packed_bytes_, pool, nullptr, true);
  stored_.clear();
}

void Model::restore(char const* path, uint8_t const* key, bunting_progress progress) {
  if (sealed_) fail(BUNTING_INVALID, "%s: the model is sealed", path);
  if (std::any_of(loaded_.begin(), loaded_.end(), [](uint8_t loaded) { return loaded; }))
    fail(BUNTING_INVALID, "%s: tensors are loaded already", path);
  if (is_deferred_) region_.back_by_memory(0, packed_bytes_);
  restore_packed(path, key, region_, packed_bytes_, *pool_, progress, is_deferred_);
  std::fill(loaded_.begin(), loaded_.end(), uint8_t{1});
}

}  // namespace bunting
