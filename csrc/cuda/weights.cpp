#include "cuda/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "boundary/error.h"
#include "cpu/kernels/integer_layout.h"
#include "cuda/attention_plan.h"
#include "host/thread_pool.h"

namespace bunting::cuda {
namespace {

constexpr size_t kStagingBytes = size_t(16) << 20;
constexpr double kUploadDeadlineMs = 60'000;  // per staging buffer
constexpr int64_t kRowsPerPiece = 16;         // rows that one thread reorders at a time

constexpr char const* kWidths = "the GPU engine wants widths that are multiples of 8; %s is %d";

void check_heads(bunting_model_shape const& s, bunting_layer_shape const& layer) {
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
  if (s.norm_biases || s.no_final_norm || s.embedding_norm || s.positions > 0 || s.token_types > 0)
    fail(BUNTING_INVALID,
         "the GPU engine computes no biases of norms, no norm of the embedding, no learned positions and no "
         "token types, and needs a final norm");
  if (s.activation == BUNTING_ACTIVATION_GELU)
    fail(BUNTING_INVALID, "the GPU engine approximates GELU by tanh, and this model wants the exact one");
  for (int32_t i = 0; i < s.layers; ++i) {
    if (model.layer_shape(i).mlp == BUNTING_MLP_PLAIN)
      fail(BUNTING_INVALID, "the GPU engine computes no MLP without a gate, and layer %d has one", i);
    if (model.layer_shape(i).norms & (BUNTING_NORM_ATTN_SUM | BUNTING_NORM_MLP_SUM))
      fail(BUNTING_INVALID, "the GPU engine computes no norm of a layer's sum, and layer %d has one", i);
  }
  if (s.hidden % 8 != 0) fail(BUNTING_INVALID, kWidths, "hidden", s.hidden);
  for (int32_t i = 0; i < s.layers; ++i)
    if (int64_t const width = model.feed_forward(i); width % 8 != 0)
      fail(BUNTING_INVALID, kWidths, model.has_experts(i) ? "expert_feed_forward" : "feed_forward",
           int32_t(width));
  if (model.has_experts() && s.experts_used > kExpertsUsedMax)
    fail(BUNTING_INVALID, "the GPU engine computes a token by at most %d experts, not by %d", kExpertsUsedMax,
         s.experts_used);
  for (int32_t i = 0; i < s.layers; ++i)
    if (RopeTable const* const rope = model.rope(i); rope && rope->dimensions % 4 != 0)
      fail(BUNTING_INVALID, "the GPU engine rotates a multiple of 4 numbers of each head, not %d",
           rope->dimensions);
  for (int32_t i = 0; i < s.layers; ++i) check_heads(s, model.layer_shape(i));
}

namespace {

// Returns the device format of a packed matrix.
Format format_of(Dtype dtype, bool as_fp8) {
  switch (dtype) {
    case Dtype::q8_128:
    case Dtype::q6:
      return Format::int8_128;
    case Dtype::q8:
      return Format::int8_32;
    case Dtype::q4:
      return Format::int4_32;
    case Dtype::mxfp4:
      return Format::mxfp4;
    default:
      return as_fp8 ? Format::fp8 : Format::plain;
  }
}

// Rounds to nearest even; x must be finite.
bf16 bf16_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bf16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

// Allocates and fills device memory, or without memory only adds up sizes. `threads` threads bring rows into
// the kernels' order.
class DeviceWeights::Uploader {
 public:
  Uploader(char* base, int threads) : carver_(base), uploads_(base != nullptr) {
    if (!uploads_) return;
    staging_.emplace(kStagingBytes, "the upload of weights");
    stream_.emplace();
    pool_.emplace(threads);
    scratch_.resize(size_t(threads));
  }
  size_t used() const { return carver_.used(); }

  float const* vector(float const* from, int64_t size, float scale = 1) {
    return vectors({from}, size, scale);
  }

  // Uploads vectors of `size` numbers, one after the other, times `scale`.
  float const* vectors(std::vector<float const*> const& from, int64_t size, float scale = 1) {
    float* const whole = carver_.take<float>(from.size() * size_t(size));
    float* to = whole;
    for (float const* part : from) {
      for (int64_t done = 0; uploads_ && done < size;) {
        int64_t const count = std::min<int64_t>(size - done, int64_t(kStagingBytes / sizeof(float)));
        float* const staged = reinterpret_cast<float*>(staging_->data());
        for (int64_t i = 0; i < count; ++i) staged[i] = scale * part[done + i];
        send(to + done, staged, size_t(count) * sizeof(float));
        done += count;
      }
      to += size;
    }
    return whole;
  }

  template <class T>
  T* array(T const* from, int64_t size) {
    constexpr int64_t kMost = int64_t(kStagingBytes / sizeof(T));
    T* const to = carver_.take<T>(size_t(size));
    for (int64_t done = 0; uploads_ && done < size; done += kMost) {
      size_t const bytes = size_t(std::min(kMost, size - done)) * sizeof(T);
      std::memcpy(staging_->data(), from + done, bytes);
      send(to + done, staging_->data(), bytes);
    }
    return to;
  }

  float number(float const* from) const { return uploads_ ? *from : 1; }

  // Uploads ranges of rows of a packed matrix, one after the other, in the host's format, or from bf16 to
  // fp8.
  struct Rows {
    int64_t first, count;
  };
  WeightMatrix matrix(PackedMatrix const& from, bool as_fp8, std::vector<Rows> const& ranges) {
    Format const format = format_of(from.dtype, as_fp8);
    size_t const row = row_bytes(format, int32_t(from.k)),
                 row_scales = row_scale_bytes(format, int32_t(from.k));
    int64_t rows = 0;
    for (Rows const& range : ranges) rows += range.count;
    char* to = carver_.take<char>(size_t(rows) * row);
    char* to_scales = carver_.take<char>(size_t(rows) * row_scales);
    WeightMatrix const matrix(format, to, to_scales);
    int64_t const rows_max = int64_t(kStagingBytes / (row + row_scales));
    for (Rows const& range : ranges)
      for (int64_t done = 0; uploads_ && done < range.count;) {
        int64_t const count = std::min(range.count - done, rows_max);
        char* const staged_scales = staging_->data() + size_t(count) * row;
        each_row(count, [&](int64_t r, Scratch& scratch) {
          scratch.write_row(from, range.first + done + r, format, staging_->data() + size_t(r) * row,
                            staged_scales + size_t(r) * row_scales);
        });
        send(to, staging_->data(), size_t(count) * row);
        if (row_scales > 0) send(to_scales, staged_scales, size_t(count) * row_scales);
        to += size_t(count) * row;
        to_scales += size_t(count) * row_scales;
        done += count;
      }
    return matrix;
  }

  // Uploads the first `rows` rows of an f32 matrix unchanged.
  float const* exact(PackedMatrix const& from, int64_t rows) {
    float* const whole = carver_.take<float>(size_t(rows * from.k));
    for (int64_t r = 0; uploads_ && r < rows; ++r) {
      float const* const panel = static_cast<float const*>(from.data) + r / kPanel * kPanel * from.kp();
      float* const staged = reinterpret_cast<float*>(staging_->data());
      for (int64_t k = 0; k < from.k; ++k) staged[k] = panel[k * kPanel + r % kPanel];
      send(whole + r * from.k, staged, size_t(from.k) * sizeof(float));
    }
    return whole;
  }

  // Uploads all rows in bf16, from any host format.
  bf16 const* table(PackedMatrix const& from) {
    bf16* const table = carver_.take<bf16>(size_t(from.n * from.k));
    int64_t const rows_max = int64_t(kStagingBytes / sizeof(bf16)) / from.k;
    for (int64_t done = 0; uploads_ && done < from.n;) {
      int64_t const count = std::min(from.n - done, rows_max);
      bf16* const staged = reinterpret_cast<bf16*>(staging_->data());
      each_row(count, [&](int64_t r, Scratch& scratch) {
        scratch.write_row(from, done + r, Format::plain, staged + r * from.k, nullptr);
      });
      send(table + done * from.k, staged, size_t(count * from.k) * sizeof(bf16));
      done += count;
    }
    return table;
  }

 private:
  // Buffers of a thread for one row of a packed matrix; csrc/cpu/kernels/kernels.h describes the packed
  // order.
  class Scratch {
   public:
    void write_row(PackedMatrix const& from, int64_t row, Format format, void* to, void* to_scales) {
      if (from.grouped()) {
        read_groups(from, row);
        if (format == Format::plain)
          for (int64_t k = 0; k < from.k; ++k) static_cast<bf16*>(to)[k] = bf16_of(value_of(from, k));
        else
          pack_row(format, q_, scales_, to, to_scales);
        return;
      }
      bf16 const* const panel =
          static_cast<bf16 const*>(from.data) + row / kPanel * kPanel * from.kp() + row % kPanel * 2;
      auto const at = [&](int64_t k) { return panel[k / 2 * (2 * kPanel) + k % 2]; };
      if (format == Format::plain) {
        for (int64_t k = 0; k < from.k; ++k) static_cast<bf16*>(to)[k] = at(k);
        return;
      }
      values_.resize(size_t(from.k));
      for (int64_t k = 0; k < from.k; ++k) {
        uint32_t const bits = uint32_t(at(k)) << 16;
        std::memcpy(&values_[size_t(k)], &bits, sizeof bits);
      }
      is_finite &= std::all_of(values_.begin(), values_.end(), [](float x) { return std::isfinite(x); });
      if (is_finite) round_row_to_fp8(values_, to, to_scales);
    }

    bool is_finite = true;  // true while all rounded numbers were finite

   private:
    void read_groups(PackedMatrix const& from, int64_t row) {
      q_.resize(size_t(round_up(from.k, kGroup)));
      scales_.clear();
      for (int64_t k = 0; k < from.k; k += from.group())
        scales_.push_back(from.dtype == Dtype::mxfp4 ? mxfp4_scale(read_scales(from, row, k).bytes[0])
                                                     : read_scales(from, row, k).halves[0]);
      for (int64_t k = 0; k < from.k; k += kGroup) read_integers(from, row, k, q_.data() + k);
      q_.resize(size_t(from.k));
    }

    // Returns a value of the row that was read last.
    float value_of(PackedMatrix const& from, int64_t k) const {
      uint16_t const scale = scales_[size_t(k / from.group())];
      int8_t const q = q_[size_t(k)];
      if (from.dtype != Dtype::mxfp4) return half_value(scale) * float(q);
      uint32_t const bits = uint32_t(scale) << 16;
      float power;
      std::memcpy(&power, &bits, sizeof power);
      return power * 0.5f * float(kTwiceE2m1.of[q]);
    }

    std::vector<int8_t> q_;
    std::vector<uint16_t> scales_;  // one per group
    std::vector<float> values_;
  };

  template <class Body>
  void each_row(int64_t count, Body const& body) {
    pool_->run(count, kRowsPerPiece, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t r = begin; r < end; ++r) body(r, scratch_[size_t(thread)]);
    });
    for (Scratch const& scratch : scratch_)
      if (!scratch.is_finite) fail(BUNTING_INVALID, "a weight is not finite: fp8 has no code for it");
  }

  void send(void* to, void const* from, size_t bytes) {
    stream_->copy(to, from, bytes);
    stream_->finish(kUploadDeadlineMs, "has not taken weights");
  }

  Carver carver_;
  bool uploads_;
  std::optional<MappedMemory> staging_;
  std::optional<Stream> stream_;
  std::optional<ThreadPool> pool_;
  std::vector<Scratch> scratch_;  // indexed by thread
};

DeviceWeights::DeviceWeights(Model const& model) : memory_(bytes(model), "the model's weights") {
  Uploader uploader(memory_.data(), model.shape().threads);
  place(model, uploader);
}

size_t DeviceWeights::bytes(Model const& model) {
  check_shape(model);
  Uploader measures(nullptr, 1);
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
  final_norm_ = uploader.vector(model.final_norm(), s.hidden, s.logit_scale);
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
    int32_t const first = Model::first_format(i);
    DeviceLayer& to = layers_[size_t(i)];
    // The shape decides which vectors exist, because a model that is only measured has none yet.
    auto const norm = [&](int32_t which, float const* weights) {
      return has.norms & which ? uploader.vector(weights, s.hidden) : nullptr;
    };
    to.attention_norm = norm(BUNTING_NORM_ATTN, from.attention_norm);
    to.qkv = uploader.matrix(from.qkv, model.is_fp8(first), {{0, from.qkv.n}});
    if (has.biases & BUNTING_BIAS_QKV) to.qkv_bias = uploader.vector(from.qkv_bias, model.qkv_width(i));
    bool const is_wide = has.qk_norm == BUNTING_QK_NORM_WIDE;
    if (has.qk_norm) to.q_norm = uploader.vector(from.q_norm, is_wide ? model.query_width(i) : has.head_size);
    if (has.qk_norm && model.has_keys(i))
      to.k_norm = uploader.vector(from.k_norm, is_wide ? model.kv_width(i) : has.head_size);
    if (has.sinks) to.sinks = uploader.vector(from.sinks, s.query_heads);
    to.o = uploader.matrix(from.o, model.is_fp8(first + 2), {{0, s.hidden}});
    if (has.biases & BUNTING_BIAS_O) to.o_bias = uploader.vector(from.o_bias, s.hidden);
    to.attention_post_norm = norm(BUNTING_NORM_ATTN_POST, from.attention_post_norm);
    // A parallel MLP reads the attention's norm.
    to.mlp_norm = norm(has.parallel ? BUNTING_NORM_ATTN : BUNTING_NORM_MLP, from.mlp_norm);
    place_mlp(model, i, uploader);
    to.mlp_post_norm = norm(BUNTING_NORM_MLP_POST, from.mlp_post_norm);
    if (model.has_both(i)) place_beside(model, i, uploader);
    if (s.layer_inputs > 0) {
      to.input_gate = uploader.matrix(from.input_gate, false, {{0, s.layer_inputs}});
      to.input_out = uploader.matrix(from.input_out, false, {{0, s.hidden}});
      to.input_post_norm = uploader.vector(from.input_post_norm, s.hidden);
    }
    if (has.scaled) to.scale = uploader.number(from.scale);
  }
}

// Uploads the matrices of a layer's MLP, or of each of its experts. On the host they begin on whole panels.
void DeviceWeights::place_mlp(Model const& model, int32_t layer, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  bunting_layer_shape const& has = model.layer_shape(layer);
  LayerWeights const& from = model.layer(layer);
  DeviceLayer& to = layers_[size_t(layer)];
  bool const has_experts = model.has_experts(layer);
  if (has_experts) {
    to.router = uploader.exact(from.router, s.experts);
    if (has.biases & BUNTING_BIAS_ROUTER) to.router_bias = uploader.vector(from.router_bias, s.experts);
  }
  int64_t const width = model.feed_forward(layer), padded = model.padded_feed_forward(layer);
  std::vector<Uploader::Rows> of_gate_up, of_down;
  std::vector<float const*> gate_up_biases, down_biases;
  auto const at = [](float const* bias, int64_t row) { return bias ? bias + row : nullptr; };
  for (int64_t e = 0; e < (has_experts ? s.experts : 1); ++e) {
    for (int64_t row : {2 * e * padded, (2 * e + 1) * padded}) {
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
