// gemm_grouped.cpp: y[t, n] (= or +=) sum_k x[t, k] * w[n, k] + bias[n] for weights in groups, and which
// micro-kernel computes it.
//
//   x [T, ldx] InputGroup     w packed panels of integers (kernels.h)     y [T, ldy] f32
//
// Order of a sum, the same for every T, slice, thread and micro-kernel: bias (or y) first, then for rising k
// each group of inputs: the sum over its groups of weights of an exact integer times their scale, times the
// row's scale; on levels with few registers each group of weights by itself.
//
// Work:     panels [begin, end) for all rows; gemm_block.h has the blocking. Weights with a scale for each 16
//           numbers meet many rows unpacked (gemm_widened.h): for one Zen 5 core and 512 rows of Q6_K that is
//           1.7 times as fast, while larger groups hide the unpacking behind their products.
// Roofline: few rows: memory, the packed weights once (8.125 bits each for q8 in groups of 128, 4.5 for q4 in
//           groups of 32); many: the level's multiply-add
//           of bytes, less what finishing takes: with VNNI two multiplications, and a conversion beside them,
//           for every eight dot products in groups of 32 and for every 32 in groups of 128. One Zen 5 core
//           comes to 70 and to 80 % of VPDPBUSD's rate.
// Checked:  against reference::gemm in f64 over the same integers, |diff| <= 2^-24 * sqrt(K) * 4 * (|y0| +
//           sum |x||w|), and bit for bit between a row alone and the same row in company.
#include "cpu/kernels/gemm_grouped.h"

#include "cpu/kernels/gemm_grouped_tile.h"
#include "cpu/kernels/gemm_widened.h"

namespace bunting::BUNTING_ISA {

namespace {

template <Dtype W>
void multiply(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
#if defined(BUNTING_HAS_INT8_TILES)
  if constexpr (!is_super(W))
    if (g.tokens > kTileRowsLeast) return gemm_blocks<GroupedTiles<W>>(g, panel_begin, panel_end);
#endif
  if constexpr (kHasWideBlocks && weight_group(W) == kGroupMax)
    if (kWideRowsLeast <= g.tokens && g.tokens <= kWideRows)
      return gemm_blocks<GroupedMicro<W, kWideRows>>(g, panel_begin, panel_end);
  if constexpr (weight_group(W) < kGroup)
    if (g.tokens >= kWidenedRowsLeast) return WidenedMicro<W>::multiply(g, panel_begin, panel_end);
  gemm_blocks<GroupedMicro<W, kGroupedRows>>(g, panel_begin, panel_end);
}

}  // namespace

void gemm_grouped(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  switch (g.w->dtype) {
    case Dtype::q8:
      return multiply<Dtype::q8>(g, panel_begin, panel_end);
    case Dtype::q8_128:
      return multiply<Dtype::q8_128>(g, panel_begin, panel_end);
    case Dtype::q6:
      return multiply<Dtype::q6>(g, panel_begin, panel_end);
    case Dtype::q5_0:
      return multiply<Dtype::q5_0>(g, panel_begin, panel_end);
    case Dtype::q4_k:
      return multiply<Dtype::q4_k>(g, panel_begin, panel_end);
    case Dtype::q5_k:
      return multiply<Dtype::q5_k>(g, panel_begin, panel_end);
    case Dtype::q6_k:
      return multiply<Dtype::q6_k>(g, panel_begin, panel_end);
    default:
      return multiply<Dtype::q4>(g, panel_begin, panel_end);
  }
}

}  // namespace bunting::BUNTING_ISA
