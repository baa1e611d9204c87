#include "model/model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "boundary/error.h"
#include "host/machine.h"
#include "model/packed_file.h"
#include "model/rope_table.h"
#include "model/stored_type.h"
#include "model/tensor_file.h"

namespace bunting {

namespace {

constexpr int32_t kFirstLayerTensor = BUNTING_T_ATTN_NORM;
constexpr int64_t kElementsPerPiece = 1 << 18;  // packed at a time by one thread
constexpr int32_t kLayerTensors = BUNTING_T_ROUTER_BIAS - BUNTING_T_ATTN_NORM + 1;
constexpr int32_t kRopesMax = 8;

char const* tensor_name(int32_t tensor) {
  switch (tensor) {
    case BUNTING_T_EMBED:
      return "embedding";
    case BUNTING_T_FINAL_NORM:
      return "final norm";
    case BUNTING_T_LM_HEAD:
      return "vocabulary projection";
    case BUNTING_T_ATTN_NORM:
      return "attention norm";
    case BUNTING_T_Q:
      return "q";
    case BUNTING_T_K:
      return "k";
    case BUNTING_T_V:
      return "v";
    case BUNTING_T_O:
      return "o";
    case BUNTING_T_Q_BIAS:
      return "q bias";
    case BUNTING_T_K_BIAS:
      return "k bias";
    case BUNTING_T_V_BIAS:
      return "v bias";
    case BUNTING_T_Q_NORM:
      return "q norm";
    case BUNTING_T_K_NORM:
      return "k norm";
    case BUNTING_T_MLP_NORM:
      return "MLP norm";
    case BUNTING_T_GATE:
      return "gate";
    case BUNTING_T_UP:
      return "up";
    case BUNTING_T_DOWN:
      return "down";
    case BUNTING_T_O_BIAS:
      return "o bias";
    case BUNTING_T_GATE_BIAS:
      return "gate bias";
    case BUNTING_T_UP_BIAS:
      return "up bias";
    case BUNTING_T_DOWN_BIAS:
      return "down bias";
    case BUNTING_T_ATTN_POST_NORM:
      return "norm after the attention";
    case BUNTING_T_MLP_POST_NORM:
      return "norm after the MLP";
    case BUNTING_T_SINKS:
      return "attention sinks";
    case BUNTING_T_ROUTER:
      return "router";
    case BUNTING_T_ROUTER_BIAS:
      return "router bias";
    default:
      return nullptr;
  }
}

bool is_layer_tensor(int32_t tensor) {
  return tensor >= kFirstLayerTensor;
}

// What each expert of a layer has.
bool is_expert_tensor(int32_t tensor) {
  return tensor == BUNTING_T_GATE || tensor == BUNTING_T_UP || tensor == BUNTING_T_DOWN ||
         tensor == BUNTING_T_GATE_BIAS || tensor == BUNTING_T_UP_BIAS || tensor == BUNTING_T_DOWN_BIAS;
}

void check_range(char const* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail(BUNTING_INVALID, "model shape: %s is %lld, allowed are %lld to %lld", name, (long long)value,
         (long long)low, (long long)high);
}

void check_positive(char const* name, float value) {
  if (!(value > 0 && std::isfinite(value)))
    fail(BUNTING_INVALID, "model shape: %s is %g, must be greater than 0", name, double(value));
}

void check_layer(bunting_layer_shape const& layer, int32_t ropes) {
  check_range("a layer's mixer", layer.mixer, BUNTING_MIXER_ATTENTION, BUNTING_MIXER_ATTENTION);
  check_range("a layer's mlp", layer.mlp, BUNTING_MLP_GATED, BUNTING_MLP_EXPERTS);
  check_range("a layer's norms", layer.norms, 0, 15);
  check_range("a layer's biases", layer.biases, 0, 31);
  check_range("a layer's qk_norm", layer.qk_norm, BUNTING_QK_NORM_NONE, BUNTING_QK_NORM_WIDE);
  check_range("a layer's rope", layer.rope, -1, ropes - 1);
  check_range("a layer's sliding_window", layer.sliding_window, 0, INT32_MAX);
  check_range("a layer's sinks", layer.sinks, 0, 1);
  check_range("a layer's parallel", layer.parallel, 0, 1);
  if (layer.parallel && layer.norms != BUNTING_NORM_ATTN)
    fail(BUNTING_INVALID,
         "model shape: a layer whose MLP is parallel has one norm, before the attention; it has %d",
         layer.norms);
  for (int32_t word : layer.reserved) check_range("a layer's reserved", word, 0, 0);
  if (layer.mlp == BUNTING_MLP_EXPERTS && (layer.parallel || (layer.norms & BUNTING_NORM_MLP_POST)))
    fail(BUNTING_INVALID,
         "model shape: a layer with experts has no norm after its MLP, and the MLP not beside the attention");
  if (layer.mlp != BUNTING_MLP_EXPERTS && (layer.biases & BUNTING_BIAS_ROUTER))
    fail(BUNTING_INVALID, "model shape: a layer without experts has no router");
}

void check_rope(bunting_rope const& rope, int32_t head_size) {
  check_range("a rope's dimensions", rope.dimensions, 2, head_size);
  if (rope.dimensions % 2 != 0)
    fail(BUNTING_INVALID, "model shape: a rope of %d dimensions", rope.dimensions);
  check_positive("a rope's magnitude", rope.magnitude);
  if (!(rope.query_growth >= 0 && std::isfinite(rope.query_growth)))
    fail(BUNTING_INVALID, "model shape: a rope's query_growth is %g", double(rope.query_growth));
  if (rope.query_growth > 0) check_range("a rope's query_span", rope.query_span, 1, INT32_MAX);
  if (!rope.frequencies) fail(BUNTING_INVALID, "model shape: a rope without frequencies");
  for (int32_t i = 0; i < rope.dimensions / 2; i++)
    if (!(rope.frequencies[i] >= 0 && std::isfinite(rope.frequencies[i])))
      fail(BUNTING_INVALID, "model shape: a rope's frequency %d is %g", i, rope.frequencies[i]);
}

// Every dimension is bounded such that no product of three of them leaves 63 bits.
void check_shape(bunting_model_shape const& s) {
  check_range("layers", s.layers, 1, 4096);
  check_range("hidden", s.hidden, 1, 1 << 18);
  check_range("feed_forward", s.feed_forward, 1, 1 << 20);
  check_range("query_heads", s.query_heads, 1, 4096);
  check_range("kv_heads", s.kv_heads, 1, s.query_heads);
  check_range("head_size", s.head_size, 16, 1024);
  check_range("vocab", s.vocab, 1, 1 << 24);
  check_range("context_max", s.context_max, 1, 1 << 26);
  check_range("tied_embeddings", s.tied_embeddings, 0, 1);
  check_range("norm", s.norm, BUNTING_NORM_RMS, BUNTING_NORM_LAYER);
  check_range("activation", s.activation, BUNTING_ACTIVATION_SILU, BUNTING_ACTIVATION_CLAMPED_SWIGLU);
  check_range("ropes", s.ropes, 0, kRopesMax);
  check_range("threads", s.threads, 1, 1024);
  if (s.query_heads % s.kv_heads != 0)
    fail(BUNTING_INVALID, "model shape: %d key-value heads do not divide %d query heads", s.kv_heads,
         s.query_heads);
  if (s.head_size % 16 != 0)
    fail(BUNTING_INVALID, "model shape: head_size %d is not a multiple of 16", s.head_size);
  if (s.compute != BUNTING_BF16 && s.compute != BUNTING_F32)
    fail(BUNTING_INVALID, "model shape: compute type %d is neither bf16 nor f32", s.compute);
  if (s.kv < BUNTING_KV_PLAIN || s.kv > BUNTING_KV_FP8)
    fail(BUNTING_INVALID, "model shape: keys and values of kind %d are neither plain nor int8 nor fp8", s.kv);
  if (s.kv != BUNTING_KV_PLAIN && s.compute != BUNTING_BF16)
    fail(BUNTING_INVALID, "model shape: keys and values in %s go with bf16, not with f32",
         s.kv == BUNTING_KV_INT8 ? "int8" : "fp8");
  check_positive("norm_epsilon", s.norm_epsilon);
  check_positive("attention_scale", s.attention_scale);
  check_positive("embedding_scale", s.embedding_scale);
  check_positive("residual_scale", s.residual_scale);
  check_positive("logit_scale", s.logit_scale);
  for (float const cap : {s.attention_cap, s.logit_cap})
    if (!(cap >= 0 && std::isfinite(cap))) fail(BUNTING_INVALID, "model shape: a cap is %g", double(cap));
  if (!s.layer) fail(BUNTING_INVALID, "model shape: layer must not be null");
  if (s.ropes > 0 && !s.rope) fail(BUNTING_INVALID, "model shape: rope must not be null");
  for (int32_t i = 0; i < s.ropes; i++) check_rope(s.rope[i], s.head_size);
  bool has_experts = false;
  for (int32_t i = 0; i < s.layers; i++) {
    check_layer(s.layer[i], s.ropes);
    has_experts = has_experts || s.layer[i].mlp == BUNTING_MLP_EXPERTS;
  }
  if (!has_experts) return check_range("experts", s.experts, 0, 0);
  check_range("experts", s.experts, 1, 4096);
  check_range("experts_used", s.experts_used, 1, s.experts);
  check_range("expert_feed_forward", s.expert_feed_forward, 1, 1 << 20);
  check_range("router", s.router, BUNTING_ROUTER_CHOSEN, BUNTING_ROUTER_ALL);
}

Kernels const* choose_kernels(int32_t isa) {
  int32_t const best = usable_isa();
  if (isa == BUNTING_ISA_AUTO) isa = best;
  if (isa < BUNTING_ISA_PORTABLE || isa > best)
    fail(BUNTING_INVALID, "instruction set level %d: this machine and library go up to %d", isa, best);
  Kernels const* const kernels = kernels_for(isa);
  if (!kernels) fail(BUNTING_INVALID, "instruction set level %d is not in this library", isa);
  return kernels;
}

// Panels [begin, begin + count) of a matrix, as a matrix of `rows` rows of its own.
PackedMatrix panels_of(PackedMatrix const& whole, int64_t begin, int64_t rows) {
  PackedMatrix part = whole;
  part.n = rows;
  if (whole.data) part.data = static_cast<char*>(whole.data) + begin * whole.panel_bytes();
  return part;
}

// How a file has rows: those of heads, the first `rotated` of each `head_size`, in pairs; 0: in order. Or
// only every second row, the others being another tensor's.
struct StoredRows {
  int64_t head_size = 1, rotated = 0, step = 1;
  // The row of the file that becomes row `row`.
  int64_t source(int64_t row) const {
    int64_t const in_head = row % head_size, half = rotated / 2;
    return (in_head < rotated ? row - in_head + 2 * (in_head % half) + in_head / half : row) * step;
  }
};

bool has_norm_weights(int32_t tensor) {
  return tensor == BUNTING_T_FINAL_NORM || tensor == BUNTING_T_ATTN_NORM || tensor == BUNTING_T_MLP_NORM ||
         tensor == BUNTING_T_Q_NORM || tensor == BUNTING_T_K_NORM || tensor == BUNTING_T_ATTN_POST_NORM ||
         tensor == BUNTING_T_MLP_POST_NORM;
}

bool may_be_paired(int32_t tensor) {
  return tensor == BUNTING_T_Q || tensor == BUNTING_T_K || tensor == BUNTING_T_Q_BIAS ||
         tensor == BUNTING_T_K_BIAS;
}

// Whether a kernel packs stored rows as they are: plain numbers, or blocks of the matrix's own type.
bool is_packable(PackedMatrix const& to, int32_t dtype, StoredType const& type) {
  return type.block == 1 || int32_t(to.dtype) == dtype;
}

// Packs panels [begin, end) of `to` from stored rows of any kind and order, by way of `rows`: kPanel rows as
// they are, Q4_0 as Q8_0 where a matrix has both, or in f32.
void pack_stored(Kernels const& kernels, PackedMatrix const& to, int32_t dtype, StoredType const& type,
                 char const* from, StoredRows const& order, char* rows, int64_t begin, int64_t end) {
  int64_t const stored_bytes = type.bytes_of(to.k);
  bool const as_is = is_packable(to, dtype, type);
  bool const is_widened = to.dtype == Dtype::q8 && dtype == BUNTING_Q4_0;
  Dtype const packed_from = as_is ? Dtype(dtype) : is_widened ? Dtype::q8 : Dtype::f32;
  int64_t const row_bytes = as_is        ? stored_bytes
                            : is_widened ? stored_type(BUNTING_Q8_0)->bytes_of(to.k)
                                         : to.k * int64_t(sizeof(float));
  for (int64_t panel = begin; panel < end; panel++) {
    int64_t const first = panel * kPanel, count = std::min<int64_t>(kPanel, to.n - first);
    for (int64_t i = 0; i < count; i++) {
      char const* const stored = from + order.source(first + i) * stored_bytes;
      char* const at = rows + i * row_bytes;
      if (as_is)
        std::memcpy(at, stored, size_t(row_bytes));
      else if (is_widened)
        widen_q4_0(stored, to.k / type.block, at);
      else
        type.decode(stored, to.k / type.block, reinterpret_cast<float*>(at));
    }
    kernels.pack(panels_of(to, panel, count), rows, packed_from, 0, 1);
  }
}

// The same from a file that has columns where `to` has rows, `step` numbers apart. rows: kPanel rows in f32.
void pack_transposed(Kernels const& kernels, PackedMatrix const& to, StoredType const& type, char const* from,
                     int64_t step, float* rows, int64_t begin, int64_t end) {
  float numbers[2 * kPanel];
  for (int64_t panel = begin; panel < end; panel++) {
    int64_t const first = panel * kPanel, count = std::min<int64_t>(kPanel, to.n - first);
    for (int64_t k = 0; k < to.k; k++) {
      type.decode(from + type.bytes_of((k * to.n + first) * step), (count - 1) * step + 1, numbers);
      for (int64_t i = 0; i < count; i++) rows[i * to.k + k] = numbers[i * step];
    }
    kernels.pack(panels_of(to, panel, count), rows, Dtype::f32, 0, 1);
  }
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
size_t Model::tensor_slot(int32_t tensor, int32_t layer) const {
  if (!is_layer_tensor(tensor)) return size_t(tensor);
  int32_t const kind = tensor % BUNTING_EXPERT, expert = tensor / BUNTING_EXPERT;
  size_t const place = size_t(layer) * size_t(std::max(1, shape_.experts)) + size_t(expert);
  return size_t(kFirstLayerTensor) + place * kLayerTensors + size_t(kind - kFirstLayerTensor);
}

std::string Model::describe(int32_t tensor, int32_t layer) const {
  std::string const name = tensor_name(tensor % BUNTING_EXPERT);
  if (!is_layer_tensor(tensor)) return name;
  bool const is_expert = has_experts(layer) && is_expert_tensor(tensor % BUNTING_EXPERT);
  return name + (is_expert ? " of expert " + std::to_string(tensor / BUNTING_EXPERT) : "") + " of layer " +
         std::to_string(layer);
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
  loaded_.assign(tensor_slot(kFirstLayerTensor, shape_.layers), 0);
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

Model::Target Model::target(int32_t tensor, int32_t layer_index) const {
  int64_t const hidden = shape_.hidden, feed_forward = this->feed_forward(layer_index);
  int64_t const padded = padded_feed_forward(layer_index);
  int64_t const q = query_width(), kv = kv_width();
  auto const vector = [](float* at, int64_t size) { return Target{1, size, {}, at}; };
  auto const matrix = [](PackedMatrix const& whole, int64_t first_row, int64_t rows) {
    return Target{rows, whole.k, panels_of(whole, first_row / kPanel, rows), nullptr};
  };
  LayerWeights const& layer = layers_[size_t(layer_index)];
  bunting_layer_shape const& has = layer_shape(layer_index);
  bool const has_wide_norms = has.qk_norm == BUNTING_QK_NORM_WIDE;
  auto const optional = [&](bool is_there, float* at, int64_t size) {
    return is_there ? vector(at, size) : Target{};
  };
  int32_t const kind = tensor % BUNTING_EXPERT, expert = tensor / BUNTING_EXPERT;
  if (expert >= (is_expert_tensor(kind) && has_experts(layer_index) ? shape_.experts : 1)) return {};
  int64_t const gate = expert * 2 * padded, down = expert * padded_hidden();  // the expert's first rows
  switch (kind) {
    case BUNTING_T_EMBED:
      return matrix(embedding_, 0, shape_.vocab);
    case BUNTING_T_LM_HEAD:
      return shape_.tied_embeddings ? Target{} : matrix(lm_head_, 0, shape_.vocab);
    case BUNTING_T_FINAL_NORM:
      return vector(final_norm_, hidden);
    case BUNTING_T_ATTN_NORM:
      return optional(has.norms & BUNTING_NORM_ATTN, layer.attention_norm, hidden);
    case BUNTING_T_Q:
      return matrix(layer.qkv, 0, q);
    case BUNTING_T_K:
      return matrix(layer.qkv, q, kv);
    case BUNTING_T_V:
      return layer.v.n > 0 ? matrix(layer.v, 0, kv) : matrix(layer.qkv, q + kv, kv);
    case BUNTING_T_O:
      return matrix(layer.o, 0, hidden);
    case BUNTING_T_MLP_NORM:
      return optional(has.norms & BUNTING_NORM_MLP, layer.mlp_norm, hidden);
    case BUNTING_T_GATE:
      return matrix(layer.gate_up, gate, feed_forward);
    case BUNTING_T_UP:
      return matrix(layer.gate_up, gate + padded, feed_forward);
    case BUNTING_T_DOWN:
      return matrix(layer.down, down, hidden);
    case BUNTING_T_Q_NORM:
      return optional(has.qk_norm, layer.q_norm, has_wide_norms ? q : shape_.head_size);
    case BUNTING_T_K_NORM:
      return optional(has.qk_norm, layer.k_norm, has_wide_norms ? kv : shape_.head_size);
    case BUNTING_T_Q_BIAS:
      return optional(has.biases & BUNTING_BIAS_QKV, layer.qkv_bias, q);
    case BUNTING_T_K_BIAS:
      return optional(has.biases & BUNTING_BIAS_QKV, layer.qkv_bias + q, kv);
    case BUNTING_T_V_BIAS:
      return optional(has.biases & BUNTING_BIAS_QKV, layer.qkv_bias + q + kv, kv);
    case BUNTING_T_O_BIAS:
      return optional(has.biases & BUNTING_BIAS_O, layer.o_bias, hidden);
    case BUNTING_T_GATE_BIAS:
      return optional(has.biases & BUNTING_BIAS_GATE_UP, layer.gate_up_bias + gate, feed_forward);
    case BUNTING_T_UP_BIAS:
      return optional(has.biases & BUNTING_BIAS_GATE_UP, layer.gate_up_bias + gate + padded, feed_forward);
    case BUNTING_T_DOWN_BIAS:
      return optional(has.biases & BUNTING_BIAS_DOWN, layer.down_bias + down, hidden);
    case BUNTING_T_ATTN_POST_NORM:
      return optional(has.norms & BUNTING_NORM_ATTN_POST, layer.attention_post_norm, hidden);
    case BUNTING_T_MLP_POST_NORM:
      return optional(has.norms & BUNTING_NORM_MLP_POST, layer.mlp_post_norm, hidden);
    case BUNTING_T_SINKS:
      return optional(has.sinks, layer.sinks, shape_.query_heads);
    case BUNTING_T_ROUTER:
      return has_experts(layer_index) ? matrix(layer.router, 0, shape_.experts) : Target{};
    case BUNTING_T_ROUTER_BIAS:
      return optional(has.biases & BUNTING_BIAS_ROUTER, layer.router_bias, shape_.experts);
    default:
      return Target{};
  }
}

void Model::load(int32_t tensor, int32_t layer, char const* path, uint64_t offset, int32_t dtype,
                 int64_t rows, int64_t cols) {
  std::unique_ptr<TensorFile> file;
  load_from(tensor, layer, path, dtype, rows, cols, [&](Dtype, uint64_t bytes) {
    file = std::make_unique<TensorFile>(path, offset, bytes);
    return file->data();
  });
}

void Model::load_quantised(int32_t tensor, int32_t layer, QuantisedMatrix const& matrix, char const* path,
                           int32_t dtype, int64_t rows, int64_t cols) {
  std::vector<char> stored;  // the whole of it: a few per cent of a model
  load_from(tensor, layer, path, dtype, rows, cols, [&](Dtype blocks, uint64_t bytes) {
    int64_t const row_bytes = int64_t(bytes) / rows;
    if (row_bytes * rows != int64_t(bytes) || !matrix.can_be(blocks))
      fail(BUNTING_INVALID, "%s: %s cannot become blocks of type %d", path, describe(tensor, layer).c_str(),
           dtype);
    stored.resize(size_t(bytes));
    pool_->run((rows + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end, int) {
      int64_t const first = begin * kPanel;
      matrix.read(blocks, first, std::min(end * kPanel, rows), stored.data() + first * row_bytes);
    });
    return static_cast<char const*>(stored.data());
  });
}

void Model::load_from(int32_t tensor, int32_t layer, char const* path, int32_t dtype, int64_t rows,
                      int64_t cols, std::function<char const*(Dtype, uint64_t)> const& source) {
  if (sealed_) fail(BUNTING_INVALID, "%s: the model is sealed", path);
  if (tensor < 0 || !tensor_name(tensor % BUNTING_EXPERT))
    fail(BUNTING_INVALID, "%s: there is no tensor kind %d", path, tensor);
  int32_t const layers = is_layer_tensor(tensor) ? shape_.layers : 1;
  if (layer < 0 || layer >= layers)
    fail(BUNTING_INVALID, "%s: %s: layer %d of %d", path, tensor_name(tensor % BUNTING_EXPERT), layer,
         layers);
  std::string const name = describe(tensor, layer);
  Target const to = target(tensor, layer);
  if (to.rows == 0) fail(BUNTING_INVALID, "%s: a model of this shape has no %s", path, name.c_str());
  if (rows != to.rows || cols != to.cols)
    fail(BUNTING_INVALID, "%s: %s is [%lld, %lld], expected [%lld, %lld]", path, name.c_str(),
         (long long)rows, (long long)cols, (long long)to.rows, (long long)to.cols);
  bool const is_paired = dtype & BUNTING_PAIRED_ROWS, is_less = dtype & BUNTING_ONE_LESS;
  RopeTable const* const rotation = is_paired ? rope(layer) : nullptr;
  bool const is_second = dtype & BUNTING_EVERY_SECOND, is_transposed = dtype & BUNTING_TRANSPOSED;
  StoredRows order = rotation ? StoredRows{shape_.head_size, rotation->dimensions} : StoredRows{};
  if (is_second) order.step = 2;
  dtype &= ~(BUNTING_PAIRED_ROWS | BUNTING_ONE_LESS | BUNTING_EVERY_SECOND | BUNTING_TRANSPOSED);
  StoredType const* const type = stored_type(dtype);
  if (!type || ((is_second || is_transposed) && !is_expert_tensor(tensor % BUNTING_EXPERT)) ||
      (is_transposed && (type->block > 1 || !to.part.data)) || (is_paired && !may_be_paired(tensor)) ||
      (is_less && !has_norm_weights(tensor)))
    fail(BUNTING_INVALID, "%s: %s has unknown element type %d", path, name.c_str(), dtype);
  if (cols % type->block != 0)
    fail(BUNTING_INVALID, "%s: %s has rows of %lld, no whole number of %s blocks of %lld", path, name.c_str(),
         (long long)cols, type->name, (long long)type->block);
  if (to.part.grouped() && !is_rounded_to(to.part.dtype) && int32_t(to.part.dtype) != dtype)
    fail(BUNTING_INVALID, "%s: %s is to stay in %s, but is stored in %s", path, name.c_str(),
         stored_type(int32_t(to.part.dtype))->name, type->name);
  uint8_t& loaded = loaded_[tensor_slot(tensor, layer)];
  if (loaded) fail(BUNTING_INVALID, "%s: %s is loaded already", path, name.c_str());

  // Up to the last number of this tensor.
  int64_t const stored = !is_second      ? rows * cols
                         : is_transposed ? 2 * rows * cols - 1
                         : to.part.data  ? (2 * rows - 1) * cols
                                         : 2 * cols - 1;
  char const* const from = source(Dtype(dtype), uint64_t(type->bytes_of(stored)));
  std::atomic<bool> is_finite{true};
  int64_t const piece = std::max<int64_t>(1, kElementsPerPiece / type->block);
  pool_->run((stored / type->block + piece - 1) / piece, 1, [&](int64_t begin, int64_t end, int) {
    int64_t const first = begin * piece, last = std::min(end * piece, stored / type->block);
    if (!type->is_finite(from + first * type->bytes, last - first)) is_finite = false;
  });
  if (!is_finite) fail(BUNTING_INVALID, "%s: %s has a number that is not finite", path, name.c_str());
  if (to.part.data) {
    bool const as_is = !rotation && !is_second && !is_transposed && is_packable(to.part, dtype, *type);
    int64_t const grain = std::max<int64_t>(1, kElementsPerPiece / (to.part.kp() * kPanel));
    int64_t const rows_bytes = kPanel * cols * int64_t(sizeof(float));  // no stored type takes more
    std::vector<char> buffer(as_is ? 0 : size_t(rows_bytes * pool_->threads()));
    pool_->run(to.part.panels(), grain, [&](int64_t begin, int64_t end, int thread) {
      if (as_is)
        kernels_->pack(to.part, from, Dtype(dtype), begin, end);
      else if (is_transposed)
        pack_transposed(*kernels_, to.part, *type, from, order.step,
                        reinterpret_cast<float*>(buffer.data() + thread * rows_bytes), begin, end);
      else
        pack_stored(*kernels_, to.part, dtype, *type, from, order, buffer.data() + thread * rows_bytes, begin,
                    end);
    });
  } else {
    std::vector<float> numbers(static_cast<size_t>(stored));
    type->decode(from, stored / type->block, numbers.data());
    for (int64_t i = 0; i < cols; i++)
      to.vector[i] = numbers[size_t(order.source(i))] + (is_less ? 1.0f : 0.0f);
  }
  loaded = 1;
}

void Model::seal() {
  auto const require = [&](int32_t tensor, int32_t layer) {
    if (tensor_name(tensor % BUNTING_EXPERT) && target(tensor, layer).rows > 0 &&
        !loaded_[tensor_slot(tensor, layer)])
      fail(BUNTING_INVALID, "the model is not complete: %s is missing", describe(tensor, layer).c_str());
  };
  for (int32_t tensor = 0; tensor < kFirstLayerTensor; tensor++) require(tensor, 0);
  for (int32_t layer = 0; layer < shape_.layers; layer++)
    for (int32_t expert = 0; expert < (has_experts(layer) ? shape_.experts : 1); expert++)
      for (int32_t i = 0; i < kLayerTensors; i++)
        require(kFirstLayerTensor + i + expert * BUNTING_EXPERT, layer);
  pool_.reset();
  sealed_ = true;
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
