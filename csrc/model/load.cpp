// load.cpp - a model's tensors from files, one by one, into the places that model.cpp gives them.
//
// Work:    every number read once and packed once, by panels on all threads.
// Checked: against matrices packed from the same numbers by themselves (tests/test_model.cpp).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "boundary/error.h"
#include "model/model.h"
#include "model/stored_type.h"
#include "model/tensor_file.h"

namespace bunting {

namespace {

constexpr int32_t kFirstLayerTensor = BUNTING_T_ATTN_NORM;
constexpr int64_t kElementsPerPiece = 1 << 18;  // packed at a time by one thread
constexpr int32_t kLayerTensors = BUNTING_T_INPUT_POST_NORM - BUNTING_T_ATTN_NORM + 1;

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
    case BUNTING_T_LAYER_EMBED:
      return "embedding of layers' inputs";
    case BUNTING_T_LAYER_PROJECTION:
      return "projection to layers' inputs";
    case BUNTING_T_LAYER_INPUT_NORM:
      return "norm of layers' inputs";
    case BUNTING_T_ROUTER_NORM:
      return "router norm";
    case BUNTING_T_EXPERT_SCALES:
      return "scales of experts";
    case BUNTING_T_EXPERTS_NORM:
      return "norm before the experts";
    case BUNTING_T_EXPERTS_POST_NORM:
      return "norm after the experts";
    case BUNTING_T_BESIDE_POST_NORM:
      return "norm after the MLP beside experts";
    case BUNTING_T_BESIDE_GATE:
      return "gate beside experts";
    case BUNTING_T_BESIDE_UP:
      return "up beside experts";
    case BUNTING_T_BESIDE_DOWN:
      return "down beside experts";
    case BUNTING_T_LAYER_SCALE:
      return "scale";
    case BUNTING_T_INPUT_GATE:
      return "gate of the layer's input";
    case BUNTING_T_INPUT_OUT:
      return "projection of the layer's input";
    case BUNTING_T_INPUT_POST_NORM:
      return "norm of the layer's input";
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

// Panels [begin, begin + count) of a matrix, as a matrix of `rows` rows of its own.
PackedMatrix panels_of(PackedMatrix const& whole, int64_t begin, int64_t rows) {
  PackedMatrix part = whole;
  part.n = rows;
  if (whole.data) part.data = static_cast<char*>(whole.data) + begin * whole.panel_bytes();
  return part;
}

// How a file has rows: those of heads, the first `rotated` of each `head_size`, in pairs; 0: in order. Or
// only every second row, the others being another tensor's, or runs of them.
struct StoredRows {
  int64_t head_size = 1, rotated = 0, step = 1;
  int64_t run = 0, run_step = 0;  // run > 0: so many rows of it in each run_step of the file
  // The row of the file that becomes row `row`.
  int64_t source(int64_t row) const {
    if (run > 0) return row / run * run_step + row % run;
    int64_t const in_head = row % head_size, half = rotated / 2;
    return (in_head < rotated ? row - in_head + 2 * (in_head % half) + in_head / half : row) * step;
  }
};

bool has_norm_weights(int32_t tensor) {
  return tensor == BUNTING_T_FINAL_NORM || tensor == BUNTING_T_ATTN_NORM || tensor == BUNTING_T_MLP_NORM ||
         tensor == BUNTING_T_Q_NORM || tensor == BUNTING_T_K_NORM || tensor == BUNTING_T_ATTN_POST_NORM ||
         tensor == BUNTING_T_MLP_POST_NORM;
}

bool may_be_grouped(int32_t tensor) {
  return tensor == BUNTING_T_Q || tensor == BUNTING_T_K || tensor == BUNTING_T_V ||
         tensor == BUNTING_T_Q_BIAS || tensor == BUNTING_T_K_BIAS || tensor == BUNTING_T_V_BIAS;
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

Model::Target Model::target(int32_t tensor, int32_t layer_index) const {
  int64_t const hidden = shape_.hidden, feed_forward = this->feed_forward(layer_index);
  int64_t const padded = padded_feed_forward(layer_index);
  int64_t const q = query_width(layer_index), kv = kv_width(layer_index), inputs = shape_.layer_inputs;
  auto const vector = [](float* at, int64_t size) { return Target{1, size, {}, at}; };
  auto const matrix = [](PackedMatrix const& whole, int64_t first_row, int64_t rows) {
    return Target{rows, whole.k, panels_of(whole, first_row / kPanel, rows), nullptr};
  };
  LayerWeights const& layer = layers_[size_t(layer_index)];
  bunting_layer_shape const& has = layer_shape(layer_index);
  bool const has_wide_norms = has.qk_norm == BUNTING_QK_NORM_WIDE;
  bool const has_both = this->has_both(layer_index), has_keys = this->has_keys(layer_index);
  int64_t const beside = has.feed_forward, beside_padded = round_up(beside, kPanel);
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
      return has_keys ? matrix(layer.qkv, q, kv) : Target{};
    case BUNTING_T_V:
      if (!has_v(layer_index)) return {};
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
      return optional(has.qk_norm, layer.q_norm, has_wide_norms ? q : has.head_size);
    case BUNTING_T_K_NORM:
      return optional(has.qk_norm && has_keys, layer.k_norm, has_wide_norms ? kv : has.head_size);
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
    case BUNTING_T_LAYER_EMBED:
      return inputs > 0 ? matrix(layer_inputs_.embedding, 0, shape_.vocab) : Target{};
    case BUNTING_T_LAYER_PROJECTION:
      return inputs > 0 ? matrix(layer_inputs_.projection, 0, shape_.layers * inputs) : Target{};
    case BUNTING_T_LAYER_INPUT_NORM:
      return optional(inputs > 0, layer_inputs_.norm, inputs);
    case BUNTING_T_ROUTER_NORM:
      return optional(has_both, layer.router_norm, hidden);
    case BUNTING_T_EXPERT_SCALES:
      return optional(has_both, layer.expert_scales, shape_.experts);
    case BUNTING_T_EXPERTS_NORM:
      return optional(has_both, layer.experts_norm, hidden);
    case BUNTING_T_EXPERTS_POST_NORM:
      return optional(has_both, layer.experts_post_norm, hidden);
    case BUNTING_T_BESIDE_POST_NORM:
      return optional(has_both, layer.beside_post_norm, hidden);
    case BUNTING_T_BESIDE_GATE:
      return has_both ? matrix(layer.beside_gate_up, 0, beside) : Target{};
    case BUNTING_T_BESIDE_UP:
      return has_both ? matrix(layer.beside_gate_up, beside_padded, beside) : Target{};
    case BUNTING_T_BESIDE_DOWN:
      return has_both ? matrix(layer.beside_down, 0, hidden) : Target{};
    case BUNTING_T_LAYER_SCALE:
      return optional(has.scaled, layer.scale, 1);
    case BUNTING_T_INPUT_GATE:
      return inputs > 0 ? matrix(layer.input_gate, 0, inputs) : Target{};
    case BUNTING_T_INPUT_OUT:
      return inputs > 0 ? matrix(layer.input_out, 0, hidden) : Target{};
    case BUNTING_T_INPUT_POST_NORM:
      return optional(inputs > 0, layer.input_post_norm, hidden);
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
  StoredRows order = rotation ? StoredRows{layer_shape(layer).head_size, rotation->dimensions} : StoredRows{};
  if (is_second) order.step = 2;
  bool const is_grouped = dtype & BUNTING_GROUPED_HEADS;
  int64_t const heads = is_layer_tensor(tensor) ? layer_shape(layer).kv_heads : 1;
  if (is_grouped) {
    order.run = (to.part.data ? rows : cols) / heads;
    order.run_step = (shape_.query_heads / heads + 2) * layer_shape(layer).head_size;
  }
  dtype &= ~(BUNTING_PAIRED_ROWS | BUNTING_ONE_LESS | BUNTING_EVERY_SECOND | BUNTING_TRANSPOSED |
             BUNTING_GROUPED_HEADS);
  StoredType const* const type = stored_type(dtype);
  if (!type || ((is_second || is_transposed) && !is_expert_tensor(tensor % BUNTING_EXPERT)) ||
      (is_transposed && (type->block > 1 || !to.part.data)) || (is_paired && !may_be_paired(tensor)) ||
      (is_less && !has_norm_weights(tensor)) ||
      (is_grouped && (is_paired || is_second || !may_be_grouped(tensor))))
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
  int64_t const grouped_rows = (heads - 1) * order.run_step + order.run;
  int64_t const stored = is_grouped      ? grouped_rows * (to.part.data ? cols : 1)
                         : !is_second    ? rows * cols
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
    bool const as_is =
        !rotation && !is_second && !is_transposed && !is_grouped && is_packable(to.part, dtype, *type);
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
    if (tensor == BUNTING_T_ROUTER_NORM)  // the router reads norm(x) / sqrt(H)
      for (int64_t i = 0; i < cols; i++) to.vector[i] /= std::sqrt(float(shape_.hidden));
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

}  // namespace bunting
