// model.cpp - which weights a model has, in which formats, and where they lie.
#include "model/model.h"

#include <algorithm>

#include "boundary/error.h"
#include "host/machine.h"
#include "model/model_shape.h"
#include "model/packed_file.h"
#include "model/rope_table.h"
#include "model/stored_type.h"

namespace bunting {

namespace {

Kernels const* choose_kernels(int32_t isa) {
  int32_t const best = usable_isa();
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
  read_ropes();
  read_formats();
  shape_.layer = nullptr, shape_.rope = nullptr, shape_.formats = nullptr;  // the caller's
  weight_bytes_ = place(nullptr);
}

void Model::read_format(uint8_t format, char const* name, PackedMatrix& matrix) const {
  switch (format) {
    case BUNTING_FORMAT_PLAIN:
    case BUNTING_FORMAT_FP8:
      matrix.dtype = dtype_;
      return;
    case BUNTING_FORMAT_INT8:
      matrix.dtype = Dtype::q8_128;
      return;
    case BUNTING_FORMAT_Q8_0:
      matrix.dtype = Dtype::q8;
      return;
    case BUNTING_FORMAT_INT6:
      matrix.dtype = Dtype::q6;
      return;
    case BUNTING_FORMAT_INT4:
      matrix.dtype = Dtype::q4;
      return;
    default:
      matrix.dtype = Dtype(format);
      if (stored_type(format) && is_grouped(matrix.dtype)) return;
      fail(BUNTING_INVALID,
           "model shape: the format of %s is %d, which is none of BUNTING_FORMAT_* and no stored type", name,
           format);
  }
}

bool Model::has_experts() const {
  return std::any_of(layer_shapes_.begin(), layer_shapes_.end(),
                     [](bunting_layer_shape const& layer) { return layer.mlp == BUNTING_MLP_EXPERTS; });
}

// Index into loaded_: the tensors outside the layers, then those of each layer and expert.
bool Model::has_fp8() const {
  return std::find(formats_.begin(), formats_.end(), BUNTING_FORMAT_FP8) != formats_.end();
}

bool Model::is_for_cpus() const {
  return std::any_of(formats_.begin(), formats_.end(), [](uint8_t format) {
    return is_grouped(Dtype(format)) && Dtype(format) != Dtype::mxfp4;
  });
}

bool Model::has_apart_v() const {
  for (size_t v = 3; v < formats_.size(); v += 5)
    if (formats_[v] != formats_[v - 1]) return true;
  return false;
}

void Model::read_ropes() {
  for (int32_t i = 0; i < shape_.ropes; i++) {
    bunting_rope const& rope = shape_.rope[i];
    ropes_.push_back({.dimensions = rope.dimensions});
    rope_shapes_.push_back(rope);
    rope_frequencies_.emplace_back(rope.frequencies, rope.frequencies + rope.dimensions / 2);
  }
}

void Model::read_formats() {
  formats_.assign(2 + 5 * layers_.size(), BUNTING_FORMAT_PLAIN);
  if (shape_.formats) std::copy_n(shape_.formats, formats_.size(), formats_.begin());
  read_format(formats_[0], "the embedding", embedding_);
  read_format(formats_[1], "the vocabulary projection", lm_head_);
  uint8_t const* next = formats_.data() + 2;
  for (LayerWeights& layer : layers_) {
    read_format(*next++, "q and k", layer.qkv);
    read_format(*next++, "v", layer.v);
    read_format(*next++, "o", layer.o);
    read_format(*next++, "gate and up", layer.gate_up);
    read_format(*next++, "down", layer.down);
  }
}

void Model::allocate() {
  region_ = MemoryRegion(weight_bytes_, "the model's weights");
  place(region_.data());
  loaded_.assign(tensor_slot(BUNTING_T_ATTN_NORM, shape_.layers), 0);
  pool_ = std::make_unique<ThreadPool>(shape_.threads);
  for (size_t i = 0; i < ropes_.size(); i++) {
    bunting_rope const& rope = rope_shapes_[i];
    rope_table(rope_frequencies_[i], rope.magnitude, shape_.context_max, ropes_[i].cos, ropes_[i].sin);
    if (ropes_[i].query_scale)
      query_scales(rope.query_growth, rope.query_span, shape_.context_max, ropes_[i].query_scale);
  }
}

// Lays everything out from `base` on and returns the bytes; with a null base it only measures.
size_t Model::place(char* base) {
  Carver carver(base);
  auto const vector = [&](int64_t size) { return carver.take<float>(size_t(size)); };
  auto const matrix = [&](PackedMatrix& m, int64_t n, int64_t k) {
    m.n = n;
    m.k = k;
    m.data = carver.take<char>(m.bytes());
    if (m.grouped()) grouped_width_ = std::max(grouped_width_, m.kp());
  };
  int64_t const hidden = shape_.hidden, head_size = shape_.head_size;
  matrix(embedding_, shape_.vocab, hidden);
  if (!shape_.tied_embeddings) matrix(lm_head_, shape_.vocab, hidden);
  final_norm_ = vector(hidden);
  for (int32_t i = 0; i < shape_.layers; i++) {
    bunting_layer_shape const& has = layer_shape(i);
    LayerWeights& layer = layers_[size_t(i)];
    auto const optional = [&](bool is_there, int64_t size) { return is_there ? vector(size) : nullptr; };
    bool const is_wide = has.qk_norm == BUNTING_QK_NORM_WIDE;
    layer.attention_norm = optional(has.norms & BUNTING_NORM_ATTN, hidden);
    bool const is_apart = layer.v.dtype != layer.qkv.dtype;
    matrix(layer.qkv, is_apart ? query_width() + kv_width() : qkv_width(), hidden);
    if (is_apart) matrix(layer.v, kv_width(), hidden);
    layer.qkv_bias = optional(has.biases & BUNTING_BIAS_QKV, qkv_width());
    layer.q_norm = optional(has.qk_norm, is_wide ? query_width() : head_size);
    layer.k_norm = optional(has.qk_norm, is_wide ? kv_width() : head_size);
    layer.sinks = optional(has.sinks, shape_.query_heads);
    matrix(layer.o, hidden, query_width());
    layer.o_bias = optional(has.biases & BUNTING_BIAS_O, hidden);
    layer.attention_post_norm = optional(has.norms & BUNTING_NORM_ATTN_POST, hidden);
    layer.mlp_norm = has.parallel ? layer.attention_norm : optional(has.norms & BUNTING_NORM_MLP, hidden);
    int64_t const experts = has_experts(i) ? shape_.experts : 1;
    int64_t const gate_up = experts * 2 * padded_feed_forward(i),
                  down = has_experts(i) ? experts * padded_hidden() : hidden;
    if (has_experts(i)) {
      layer.router.dtype = Dtype::f32;
      matrix(layer.router, experts, hidden);
    }
    layer.router_bias = optional(has.biases & BUNTING_BIAS_ROUTER, experts);
    matrix(layer.gate_up, gate_up, hidden);
    layer.gate_up_bias = optional(has.biases & BUNTING_BIAS_GATE_UP, gate_up);
    matrix(layer.down, down, feed_forward(i));
    layer.down_bias = optional(has.biases & BUNTING_BIAS_DOWN, down);
    layer.mlp_post_norm = optional(has.norms & BUNTING_NORM_MLP_POST, hidden);
  }
  packed_bytes_ = carver.used();
  for (RopeTable& rope : ropes_) {
    rope.cos = vector(int64_t(shape_.context_max) * (rope.dimensions / 2));
    rope.sin = vector(int64_t(shape_.context_max) * (rope.dimensions / 2));
    if (rope_shapes_[size_t(&rope - ropes_.data())].query_growth > 0)
      rope.query_scale = vector(shape_.context_max);
  }
  return carver.used();
}

uint64_t Model::page_bytes() const {
  // Of each token and head one byte per number, and a multiplier of two bytes for its keys and for its
  // values.
  if (shape_.kv == BUNTING_KV_FP8)
    return uint64_t(shape_.layers) * uint64_t(shape_.kv_heads) * 2 * kPageTokens *
           uint64_t(shape_.head_size + 2);
  return uint64_t(shape_.layers) * kv_page_bytes(kv_dtype(), shape_.kv_heads, shape_.head_size);
}

void Model::release() {
  if (!sealed_) fail(BUNTING_INVALID, "the model is not sealed");
  region_ = MemoryRegion();
}

void Model::save(char const* path, uint8_t const* key, bunting_progress progress) const {
  if (!sealed_) fail(BUNTING_INVALID, "%s: the model is not sealed", path);
  if (released()) fail(BUNTING_INVALID, "%s: the model's weights were given back", path);
  save_packed(path, key, region_.data(), packed_bytes_, progress);
}

void Model::restore(char const* path, uint8_t const* key, bunting_progress progress) {
  if (sealed_) fail(BUNTING_INVALID, "%s: the model is sealed", path);
  if (std::any_of(loaded_.begin(), loaded_.end(), [](uint8_t loaded) { return loaded; }))
    fail(BUNTING_INVALID, "%s: tensors are loaded already", path);
  restore_packed(path, key, region_, packed_bytes_, *pool_, progress);
  std::fill(loaded_.begin(), loaded_.end(), uint8_t{1});
}

}  // namespace bunting
