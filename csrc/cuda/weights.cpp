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

// To nearest even; x is finite.
bf16 bf16_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bf16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
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
      send(to + done, staging_->data(), size_t(count) * sizeof(float));
      done += count;
    }
    return to;
  }

  // The given ranges of rows of a packed matrix, one after the other, in the format that the host has.
  struct Rows {
    int64_t first, count;
  };
  WeightMatrix matrix(PackedMatrix const& from, std::initializer_list<Rows> ranges) {
    Format const format = from.dtype == Dtype::q8   ? Format::int8
                          : from.dtype == Dtype::q4 ? Format::int4
                                                    : Format::plain;
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
        for (int64_t r = 0; r < count; ++r) {
          char* const staged = staging_->data() + size_t(r) * row;
          if (format == Format::plain)
            unpack_row(from, range.first + done + r, reinterpret_cast<bf16*>(staged));
          else
            pack_row(format, from, range.first + done + r, staged, staged_scales + size_t(r) * row_scales);
        }
        send(to, staging_->data(), size_t(count) * row);
        if (row_scales > 0) send(to_scales, staged_scales, size_t(count) * row_scales);
        to += size_t(count) * row;
        to_scales += size_t(count) * row_scales;
        done += count;
      }
    return matrix;
  }

  // All rows in bf16, whatever the host has.
  bf16 const* table(PackedMatrix const& from) {
    bf16* const table = carver_.take<bf16>(size_t(from.n * from.k));
    int64_t const rows_max = int64_t(kStagingBytes / sizeof(bf16)) / from.k;
    for (int64_t done = 0; uploads_ && done < from.n;) {
      int64_t const count = std::min(from.n - done, rows_max);
      for (int64_t r = 0; r < count; ++r)
        unpack_row(from, done + r, reinterpret_cast<bf16*>(staging_->data()) + r * from.k);
      send(table + done * from.k, staging_->data(), size_t(count * from.k) * sizeof(bf16));
      done += count;
    }
    return table;
  }

 private:
  // The orders of a packed matrix are told in csrc/kernels/kernels.h.
  void unpack_row(PackedMatrix const& from, int64_t row, bf16* to) {
    if (from.grouped()) {
      read_groups(from, row);
      for (int64_t k = 0; k < from.k; ++k)
        to[k] = bf16_of(half_value(scales_[size_t(k / kGroup)]) * float(q_[size_t(k)]));
      return;
    }
    bf16 const* const panel =
        static_cast<bf16 const*>(from.data) + row / kPanel * kPanel * from.kp() + row % kPanel * 2;
    for (int64_t k = 0; k < from.k; ++k) to[k] = panel[k / 2 * (2 * kPanel) + k % 2];
  }

  void pack_row(Format format, PackedMatrix const& from, int64_t row, void* to, void* to_scales) {
    read_groups(from, row);
    cuda::pack_row(format, q_, scales_, to, to_scales);
  }

  // Fills q_ and scales_ with a row.
  void read_groups(PackedMatrix const& from, int64_t row) {
    q_.resize(size_t(from.k));
    scales_.resize(size_t(from.k / kGroup));
    uint8_t const* const panel = static_cast<uint8_t const*>(from.data) + row / kPanel * from.panel_bytes();
    int64_t const column = row % kPanel, halves = from.dtype == Dtype::q4 ? 2 : 1;
    for (int64_t k = 0; k < from.k; ++k) {
      int64_t const group = k / kGroup % 2, step = k % (kGroup / halves) / 4;
      uint8_t const* const block = panel + k / (2 * kGroup) * from.block_bytes();
      uint8_t const* const values = block + 2 * kPanel * 2 + group * kGroup * kPanel / halves;
      uint8_t const byte = values[(step * kPanel + column) * 4 + k % 4];
      std::memcpy(&scales_[size_t(k / kGroup)], block + (group * kPanel + column) * 2, sizeof(uint16_t));
      q_[size_t(k)] = halves == 1 ? int8_t(int(byte) - 128)
                                  : int8_t(int(k % kGroup < kGroup / 2 ? byte & 15 : byte >> 4) - 8);
    }
  }

  void send(void* to, void const* from, size_t bytes) {
    stream_->copy(to, from, bytes);
    if (!stream_->wait(kUploadDeadlineMs)) fail(BUNTING_LOST, "the device does not take weights");
  }

  Carver carver_;
  bool uploads_;
  std::optional<MappedMemory> staging_;
  std::optional<Stream> stream_;
  std::vector<int8_t> q_;  // of one row
  std::vector<uint16_t> scales_;
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
  PackedMatrix const& last = s.tied_embeddings ? model.embedding() : model.vocabulary_projection();
  embedding_ = uploader.table(model.embedding());
  vocabulary_projection_ =
      s.tied_embeddings && !last.grouped() ? WeightMatrix(embedding_) : uploader.matrix(last, {{0, s.vocab}});
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
