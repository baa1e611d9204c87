// gemm.cpp: y[t, n] (= or +=) sum_k x[t, k] * w[n, k] + bias[n]; selects the micro-kernel.
//
//   x [T, ldx] bf16 or f32     w packed panels of 16 columns (kernels.h)     y [T, ldy] f32
//   Grouped weights: gemm_grouped.cpp.
//
// Order of a sum, the same for every T, slice and thread: bias (or y) first, then rising k. AVX512-BF16 adds
// in pairs as VDPBF16PS does; AMX adds in groups of 32 as TDPBF16PS does. Partial sums are f32.
//
// Work:     panels [begin, end) for all rows; gemm_block.h has the blocking, gemm_vector.h and gemm_tile.h
//           have the micro-kernels.
// Roofline: few rows: memory, the packed weights once; many rows: 2*T*N*K operations at the level's peak.
// Checked:  against reference::gemm in f64, |diff| <= 2^-24 * sqrt(K) * 4 * (|y0| + sum |x||w|), and bit for
//           bit between a row alone and the same row in a batch.
#include "cpu/kernels/gemm_tile.h"
#include "cpu/kernels/gemm_vector.h"

namespace bunting::BUNTING_ISA {

#if defined(__AMX_BF16__) || defined(BUNTING_AMX_EMULATED)
using Bf16Micro = TileBf16;
#elif defined(__AVX512BF16__)
using Bf16Micro = VectorMicro<PairBf16>;
#else
using Bf16Micro = VectorMicro<WidenedBf16>;
#endif

void gemm_grouped(Gemm const& g, int64_t panel_begin, int64_t panel_end);

void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  if (g.tokens <= 0 || panel_begin >= panel_end) return;
  if (g.w->grouped())
    gemm_grouped(g, panel_begin, panel_end);
  else if (g.w->dtype == Dtype::bf16)
    gemm_blocks<Bf16Micro>(g, panel_begin, panel_end);
  else
    gemm_blocks<VectorMicro<PlainF32>>(g, panel_begin, panel_end);
}

}  // namespace bunting::BUNTING_ISA
