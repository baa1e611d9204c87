// swiglu.cpp: y[t, f] = silu(gu[t, f]) * gu[t, F + f], silu(g) = g / (1 + e^-g), one row per token.
//
//   gu [T, ldgu] f32: F gates, then F ups
//   y  [T, ld]   f32 or bf16, columns F .. ld-1 left as they are; or q8: InputGroup, round_up(F, 64) / 32 of
//                them written
//
// Work:     token rows [begin, end).
// Roofline: T*F*(8 + 4 or 2) bytes, in L2 when the rows follow their GEMM; 25 operations per 16 values.
// Checked:  against reference::swiglu; e^x is good to 2 units in the last place, so 1e-6 relative in f32.
// Groups
//           bit for bit against those of the f32 output.
#include "cpu/kernels/group.h"

namespace bunting::BUNTING_ISA {

void swiglu(Operand const& y, float const* gu, int64_t ldgu, int64_t f, int64_t begin, int64_t end) {
  f32x16 const one = set1(1.0f);
  for (int64_t t = begin; t < end; ++t) {
    float const* gate = gu + t * ldgu;
    float const* up = gate + f;
    auto const activated = [&](int64_t i) __attribute__((always_inline)) {
      f32x16 const g = load_first(gate + i, f - i);
      return g / (one + exp(zero() - g)) * load_first(up + i, f - i);
    };
    if (is_grouped(y.dtype)) {
      quantise_row(y, t, f, activated);
    } else if (y.dtype == Dtype::f32) {
      float* const to = reinterpret_cast<float*>(y.row(t));
      for (int64_t i = 0; i < f; i += 16) store_first(to + i, activated(i), f - i);
    } else {
      bf16* const to = reinterpret_cast<bf16*>(y.row(t));
      for (int64_t i = 0; i < f; i += 16) store_bf16_first(to + i, activated(i), f - i);
    }
  }
}

}  // namespace bunting::BUNTING_ISA
