// rmsnorm.cpp: y[t, h] = x[t, h] / sqrt(mean_h(x[t, h]^2) + eps) * w[h], one row per token.
//
//   x [T, ldx] f32      w [H] f32
//   y [T, ld] f32 or bf16, columns H .. ld-1 zeroed (the GEMM reads them); may alias x if f32 and
//              ldx == ld == H; or q8: InputGroup, round_up(H, 64) / 32 of them written
//
// Work:     token rows [begin, end); a row twice through L1.
// Roofline: memory bound, T*H*(4 + 4 or 2) bytes.
// Checked:  against reference::rmsnorm; bf16 rounding is the whole difference (2^-8 relative). Groups bit for
//           bit against those of the f32 output.
#include <cmath>

#include "cpu/kernels/group.h"

namespace bunting::BUNTING_ISA {

void rmsnorm(Operand const& y, float const* x, int64_t ldx, float const* w, int64_t h, float eps,
             int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float const* row = x + t * ldx;
    f32x16 squares = zero();
    for (int64_t i = 0; i < h; i += 16) {
      f32x16 const v = load_first(row + i, h - i);
      squares = fma(v, v, squares);
    }
    f32x16 const scale = set1(1.0f / std::sqrt(sum(squares) / float(h) + eps));
    auto const normed = [&](int64_t i) __attribute__((always_inline)) {
      return load_first(row + i, h - i) * scale * load_first(w + i, h - i);
    };
    if (is_grouped(y.dtype)) {
      quantise_row(y, t, h, normed);
    } else if (y.dtype == Dtype::f32) {
      float* to = reinterpret_cast<float*>(y.row(t));
      for (int64_t i = 0; i < h; i += 16) store_first(to + i, normed(i), h - i);
      for (int64_t i = h; i < y.ld; ++i) to[i] = 0;
    } else {
      bf16* to = reinterpret_cast<bf16*>(y.row(t));
      for (int64_t i = 0; i < h; i += 16) store_bf16_first(to + i, normed(i), h - i);
      for (int64_t i = h; i < y.ld; ++i) to[i] = 0;
    }
  }
}

}  // namespace bunting::BUNTING_ISA
