// gemm_outliers.h - products of activation outliers (kernels.h, InputGroup) with grouped weights, in f32.
//
//   y[t, n] += x[t, k] * w[n, k] for the outliers of each row, by rising k, after all other products
//
// A row without outliers is not changed, so its bits do not depend on the rows beside it. For each outlier
// the kernel unpacks one k of the sixteen columns of a panel at once. Their lines are still in the cache from
// the main product.
//
// Work:     panels [begin, end) for all rows.
// Checked:  with gemm (test_gemm.cpp), whose inputs have outliers in every third row.
#pragma once

#include "cpu/kernels/gemm_grouped.h"

namespace bunting::BUNTING_ISA {

// Returns w[n, k] of a panel's columns.
template <Dtype W>
BUNTING_INLINE f32x16 weights_of(PackedMatrix const& w, int64_t panel, int64_t k) {
  using D = Dot<W>;
  using Header = BlockHeader<W>;
  int64_t const in_block = k % Header::kBlock;
  char const* const block = w.panel(panel) + w.depth_bytes(k - in_block);
  char const* const values = block + Header::kBytes + in_block / kGroup * D::kBytes;
  auto const weight = D::load(values, int(k % kGroup / 4));
  int const shift = int(k % 4) * 8;
  f32x16 y;
  for (int i = 0; i < kRegisters; ++i) {
    vi const q = (vi)(weight.r[i] >> shift & 255) - product_zero(W);
    y.r[i] = __builtin_convertvector(q, vf);
  }
  int64_t const group = in_block / weight_group(W);
  y = y * Header::scales(block, group);
  if constexpr (has_minimum(W)) y = y - Header::minimums(block, group);
  return y;
}

template <Dtype W>
__attribute__((noinline)) void add_outliers(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  PackedMatrix const& w = *g.w;
  int64_t const groups = w.kp() / kGroup, together = input_group(W) / kGroup;
  for (int64_t t = 0; t < g.tokens; ++t) {
    InputGroup const* const x = static_cast<InputGroup const*>(g.x) + t * g.ldx;
    for (int64_t first = 0; first < groups; first += together) {
      if (x[first].outliers == 0) continue;
      for (int64_t i = first; i < std::min(first + together, groups); ++i) {
        if (x[i].outlier == 0) continue;
        f32x16 const outlier = set1(x[i].outlier);
        for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
          float* const y = g.y + t * g.ldy + panel * kPanel;
          int64_t const columns = std::min<int64_t>(kPanel, w.n - panel * kPanel);
          f32x16 const weights = weights_of<W>(w, panel, i * kGroup + x[i].outlier_at);
          store_first(y, fma(weights, outlier, load_first(y, columns)), columns);
        }
      }
    }
  }
}

}  // namespace bunting::BUNTING_ISA
