#include "kernels/simd.h"

namespace bunting::BUNTING_ISA {

void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  PackedMatrix const& w = *g.w;
  int64_t const kp = w.kp();
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    int64_t const columns = w.n - panel * kPanel;
    for (int64_t t = 0; t < g.tokens; ++t) {
      float* y = g.y + t * g.ldy + panel * kPanel;
      f32x16 acc = g.accumulate ? load_first(y, columns) : zero();
      if (g.bias) acc = acc + load_first(g.bias + panel * kPanel, columns);
      if (w.dtype == Dtype::f32) {
        float const* b = static_cast<float const*>(w.data) + panel * kp * kPanel;
        float const* x = static_cast<float const*>(g.x) + t * g.ldx;
        for (int64_t k = 0; k < kp; ++k) acc = fma(set1(x[k]), load(b + k * kPanel), acc);
      } else {
        bf16 const* b = static_cast<bf16 const*>(w.data) + panel * kp * kPanel;
        bf16 const* x = static_cast<bf16 const*>(g.x) + t * g.ldx;
        for (int64_t k = 0; k < kp; k += 2) {
          f32x16_pair const pair = load_bf16_pairs(b + k * kPanel);
          acc = fma(set1(to_f32(x[k])), pair.even, acc);
          acc = fma(set1(to_f32(x[k + 1])), pair.odd, acc);
        }
      }
      store_first(y, acc, columns);
    }
  }
}

}  // namespace bunting::BUNTING_ISA
