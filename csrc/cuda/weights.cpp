#include "cuda/weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "cuda/attention_plan.h"
#include "error.h"

namespace bunting::cuda {
namespace {

constexpr size_t kStagingBytes = size_t(16) << 20;
constexpr double kUploadDeadlineMs = 60'000;  // for one staging buffer

void check_shape(Model const& model) {
  bunting_model_shape const& s = model.shape();
  if (s.compute != BUNTING_BF16) fail(BUNTING_INVALID, "the GPU engine computes in bf16, not in f32");
  if (model.grouped_width() > 0) fail(BUNTING_INVALID, "the GPU engine has no weights in int8 or int4");
  if (s.hidden % 8 != 0 || s.feed_forward % 8 != 0)
    fail(BUNTING_INVALID,
         "the GPU engine wants widths that are multiples of 8; hidden is %d, feed_forward %d", s.hidden,
         s.feed_forward);
  if (s.head_size % 32 != 0 || s.head_size > 128)
    fail(BUNTING_INVALID, "the GPU engine has heads of 32, 64, 96 and 128, not of %d", s.head_size);
  if (s.query_heads / s.kv_heads > kManyRows)
    fail(BUNTING_INVALID, "the GPU engine shares a key-value head among at most %d query heads, not %d",
         kManyRows, s.query_heads / s.kv_heads);
}

}  // namespace

// Hands out device memory and fills it, or, without memory, only adds up.
class DeviceWeights::Uploader {
 public:
  explicit Uploader(char* base) : carver_(base), uploads_(base != nullptr) {
    if (uploads_) staging_.emplace(kStagingBytes, "the upload of weights");
    if (uploads_) stream_.emplace();
  }
  size_t used() const { return carver_.used(); }

  float const* vector(float const* from, int64_t size) {
    float* const to = carver_.take<float>(size_t(size));
    for (int64_t done = 0; uploads_ && done < size;) {
      int64_t const count = std::min<int64_t>(size - done, int64_t(kStagingBytes / sizeof(float)));
      std::memcpy(staging_->data(), from + done, size_t(count) * sizeof(float));
      send(to + done, size_t(count) * sizeof(float));
      done += count;
    }
    return to;
  }

  // The given ranges of rows of a packed matrix, one after the other.
  struct Rows {
    int64_t first, count;
  };
  bf16 const* matrix(PackedMatrix const& from, std::initializer_list<Rows> ranges) {
    int64_t rows = 0;
    for (Rows const& range : ranges) rows += range.count;
    bf16* const start = carver_.take<bf16>(size_t(rows * from.k));
    bf16* to = start;
    int64_t const rows_max = int64_t(kStagingBytes / sizeof(bf16)) / from.k;
    for (Rows const& range : ranges)
      for (int64_t done = 0; uploads_ && done < range.count;) {
        int64_t const count = std::min(range.count - done, rows_max);
        bf16* const staged = reinterpret_cast<bf16*>(staging_->data());
        for (int64_t r = 0; r < count; ++r) unpack_row(from, range.first + done + r, staged + r * from.k);
        send(to, size_t(count * from.k) * sizeof(bf16));
        to += count * from.k;
        done += count;
      }
    return start;
  }

 private:
  // The order of a packed matrix is told in kernels/kernels.h.
  static void unpack_row(PackedMatrix const& from, int64_t row, bf16* to) {
    bf16 const* const panel =
        static_cast<bf16 const*>(from.data) + row / kPanel * kPanel * from.kp() + row % kPanel * 2;
    for (int64_t k = 0; k < from.k; ++k) to[k] = panel[k / 2 * (2 * kPanel) + k % 2];
  }
  void send(void* to, size_t bytes) {
    stream_->copy(to, staging_->data(), bytes);
    if (!stream_->wait(kUploadDeadlineMs)) fail(BUNTING_LOST, "the device does not take weights");
  }

  Carver carver_;
  bool uploads_;
  std::optional<MappedMemory> staging_;
  std::optional<Stream> stream_;
};

DeviceWeights::DeviceWeights(Model const& model) : memory_(bytes(model), "the model's weights") {
  Uploader uploader(memory_.data());
  place(model, uploader);
}

size_t DeviceWeights::bytes(Model const& model) {
  check_shape(model);
  Uploader measures(nullptr);
  DeviceWeights().place(model, measures);
  return measures.used();
}

void DeviceWeights::place(Model const& model, Uploader& uploader) {
  bunting_model_shape const& s = model.shape();
  int64_t const angles = int64_t(s.context_max) * (s.head_size / 2);
  embedding_ = uploader.matrix(model.embedding(), {{0, s.vocab}});
  vocabulary_projection_ =
      s.tied_embeddings ? embedding_ : uploader.matrix(model.vocabulary_projection(), {{0, s.vocab}});
  final_norm_ = uploader.vector(model.final_norm(), s.hidden);
  rope_cos_ = uploader.vector(model.rope_cos(), angles);
  rope_sin_ = uploader.vector(model.rope_sin(), angles);
  layers_.resize(size_t(s.layers));
  for (int32_t i = 0; i < s.layers; ++i) {
    LayerWeights const& from = model.layer(i);
    DeviceLayer& to = layers_[size_t(i)];
    to.attention_norm = uploader.vector(from.attention_norm, s.hidden);
    to.qkv = uploader.matrix(from.qkv, {{0, model.qkv_width()}});
    if (s.qkv_bias) to.qkv_bias = uploader.vector(from.qkv_bias, model.qkv_width());
    if (s.qk_norm) to.q_norm = uploader.vector(from.q_norm, s.head_size);
    if (s.qk_norm) to.k_norm = uploader.vector(from.k_norm, s.head_size);
    to.o = uploader.matrix(from.o, {{0, s.hidden}});
    to.mlp_norm = uploader.vector(from.mlp_norm, s.hidden);
    to.gate_up =
        uploader.matrix(from.gate_up, {{0, s.feed_forward}, {model.padded_feed_forward(), s.feed_forward}});
    to.down = uploader.matrix(from.down, {{0, s.hidden}});
  }
}

}  // namespace bunting::cuda
