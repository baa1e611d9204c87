// pack.cpp - converts weights from a file's order to the order of PackedMatrix.
//
//   src [N, K] row-major, bf16, f16 or f32; may be unaligned in a mapped file
//   w   [ceil(N/16)] panels, see kernels.h; columns >= N and rows >= K become zero. pack_grouped.cpp makes
//       grouped weights.
//
// Work:     one panel after another: 16 rows of the source, 64 values of each at a time, transposed in L1.
// Roofline: memory bound, reads N*K*sizeof(src) and writes w.bytes() once.
// Checked:  bit for bit against reference::pack.
#include <algorithm>

#include "cpu/kernels/half.h"

namespace bunting::BUNTING_ISA {

void pack_grouped(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end);

namespace {

constexpr int kBlock = 64;  // values of k transposed at a time

template <class Source>
BUNTING_INLINE Source read(char const* p, int64_t index) {
  Source value;
  std::memcpy(&value, p + index * int64_t(sizeof(Source)), sizeof(Source));
  return value;
}

template <Dtype S>
BUNTING_INLINE float read_f32(char const* row, int64_t k) {
  if constexpr (S == Dtype::f32) return read<float>(row, k);
  if constexpr (S == Dtype::f16) return f16_to_f32(read<uint16_t>(row, k));
  if constexpr (S == Dtype::bf16) return to_f32(read<uint16_t>(row, k));
}

template <Dtype S>
BUNTING_INLINE bf16 read_bf16(char const* row, int64_t k) {
  if constexpr (S == Dtype::bf16) return read<uint16_t>(row, k);
  return to_bf16(read_f32<S>(row, k));
}

template <Dtype S>
void pack_panels(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  int64_t const element = S == Dtype::f32 ? 4 : 2;
  int64_t const kp = w.kp();
  for (int64_t panel = begin; panel < end; ++panel) {
    int64_t const columns = std::min<int64_t>(kPanel, w.n - panel * kPanel);
    char const* rows = src + panel * kPanel * w.k * element;
    char* out = static_cast<char*>(w.data) + panel * w.panel_bytes();
    for (int64_t k0 = 0; k0 < kp; k0 += kBlock) {
      // Width in the padded matrix; a multiple of 32.
      int64_t const width = std::min<int64_t>(kBlock, kp - k0);
      int64_t const valid = std::max<int64_t>(0, std::min(width, w.k - k0));
      if (w.dtype == Dtype::f32) {
        float* block = reinterpret_cast<float*>(out) + k0 * kPanel;
        if (valid < width || columns < kPanel) std::fill_n(block, width * kPanel, 0.0f);
        for (int64_t c = 0; c < columns; ++c) {
          char const* row = rows + (c * w.k + k0) * element;
          for (int64_t k = 0; k < valid; ++k) block[k * kPanel + c] = read_f32<S>(row, k);
        }
      } else {
        bf16* block = reinterpret_cast<bf16*>(out) + k0 * kPanel;
        if (valid < width || columns < kPanel) std::fill_n(block, width * kPanel, bf16{0});
        for (int64_t c = 0; c < columns; ++c) {
          char const* row = rows + (c * w.k + k0) * element;
          int64_t k = 0;
          for (; k + 2 <= valid; k += 2) {
            uint32_t const pair = read_bf16<S>(row, k) | uint32_t(read_bf16<S>(row, k + 1)) << 16;
            std::memcpy(block + k * kPanel + 2 * c, &pair, 4);  // little-endian: the even k comes first
          }
          if (k < valid) block[k * kPanel + 2 * c] = read_bf16<S>(row, k);
        }
      }
    }
  }
}

}  // namespace

void pack(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end) {
  if (w.grouped()) return pack_grouped(w, src, src_dtype, begin, end);
  char const* bytes = static_cast<char const*>(src);
  switch (src_dtype) {
    case Dtype::f32:
      return pack_panels<Dtype::f32>(w, bytes, begin, end);
    case Dtype::f16:
      return pack_panels<Dtype::f16>(w, bytes, begin, end);
    case Dtype::bf16:
      return pack_panels<Dtype::bf16>(w, bytes, begin, end);
    default:
      return;  // only grouped weights come from blocks
  }
}

}  // namespace bunting::BUNTING_ISA
