// gemm_grouped.cpp: y[t, n] (= or +=) sum_k x[t, k] * w[n, k] + bias[n] for grouped weights; selects the
// micro-kernel.
//
//   x [T, ldx] InputGroup     w packed panels of integers (kernels.h)     y [T, ldy] f32
//
// Order of a sum, the same for every T, slice, thread and micro-kernel: bias (or y) first, then each group of
// inputs by rising k. A group of inputs adds the sum over its groups of weights of an exact integer times
// their scale, times the row's scale. On levels with few registers each group of weights is added by itself.
// In superblocks the integer scales of groups are part of the exact integer (gemm_super.h). Outliers of the
// row come last.
//
// Work:     panels [begin, end) for all rows; gemm_block.h has the blocking. Weights are unpacked for many
//           rows where that is faster (gemm_widened.h). With tiles scales are folded in
//           (gemm_folded_tile.h).
// Roofline: few rows: memory, the packed weights once (8.125 bits each for q8 in groups of 128, 4.5 for q4 in
//           groups of 32); many rows: the level's byte multiply-add, less the cost of finishing. With VNNI
//           finishing is two multiplications and a conversion, per eight dot products in groups of 32 and per
//           32 in groups of 128.
// Checked:  against reference::gemm in f64 over the same integers, |diff| <= 2^-24 * sqrt(K) * 4 * (|y0| +
//           sum |x||w|), and bit for bit between a row alone and the same row in a batch.
#include "cpu/kernels/gemm_grouped.h"

#include "cpu/kernels/gemm_folded_tile.h"
#include "cpu/kernels/gemm_grouped_tile.h"
#include "cpu/kernels/gemm_outliers.h"
#include "cpu/kernels/gemm_widened.h"

namespace bunting::BUNTING_ISA {

namespace {

// True if few rows have their own kernels: for the formats of most files. Weights in other formats are
// unpacked from two rows on.
template <Dtype W>
inline constexpr bool kIsCommon = weight_format(W).is_common;

// Least number of rows at which tiles gain more than folding scales into the weights costs.
inline constexpr int64_t kFoldedRowsLeast = 13;

template <Dtype W>
void multiply(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
#if defined(BUNTING_HAS_INT8_TILES)
  if constexpr (weight_format(W).scales == Scales::half)
    if (g.tokens > kTileRowsLeast<W>) return gemm_blocks<GroupedTiles<W>>(g, panel_begin, panel_end);
  if constexpr (is_super(W))
    if (g.tokens >= kFoldedRowsLeast && g.w->k > 0)
      return FoldedTiles<W>::multiply(g, panel_begin, panel_end);
#endif
  if constexpr (kHasWideBlocks && weight_group(W) == kGroupMax)
    if (kWideRowsLeast <= g.tokens && g.tokens <= kWideRows)
      return gemm_blocks<GroupedMicro<W, kWideRows>>(g, panel_begin, panel_end);
  if constexpr (!kIsCommon<W>) {
    if (g.tokens > 1) return WidenedMicro<W>::multiply(g, panel_begin, panel_end);
    return gemm_blocks<GroupedMicro<W, 1>>(g, panel_begin, panel_end);
  }
  if constexpr (kIsCommon<W> && (is_super(W) || kProduct<W> != Product::bytes))
    if (g.tokens >= kWidenedRowsLeast<W>) return WidenedMicro<W>::multiply(g, panel_begin, panel_end);
  if constexpr (kIsCommon<W>) gemm_blocks<GroupedMicro<W, kGroupedRows>>(g, panel_begin, panel_end);
}

template <Dtype W>
void multiply_all(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  multiply<W>(g, panel_begin, panel_end);
  if (g.may_have_outliers) add_outliers<W>(g, panel_begin, panel_end);
}

}  // namespace

void gemm_grouped(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  with_grouped_format(g.w->dtype, [&]<Dtype W>() __attribute__((always_inline)) {
    multiply_all<W>(g, panel_begin, panel_end);
  });
}

}  // namespace bunting::BUNTING_ISA
