// gemm.cpp: y[t, n] (= or +=) sum_k x[t, k] * w[n, k] + bias[n], and which micro-kernel computes it.
//
//   x [T, ldx] bf16 or f32     w packed panels of 16 columns (kernels.h)     y [T, ldy] f32
//   Weights in groups are multiplied in gemm_grouped.cpp.
//
// Order of a sum, the same for every T, slice and thread: bias (or y) first, then k rising; for AVX512-BF16
// in pairs as VDPBF16PS adds them, for AMX in groups of 32 as TDPBF16PS adds them. Partial sums are f32.
//
// Work:     panels [begin, end) for all rows; gemm_block.h has the blocking, gemm_vector.h and gemm_tile.h
//           have the micro-kernels.
// Roofline: few rows: memory, the packed weights once; many: 2*T*N*K operations at the level's peak.
//           One Zen 5 core, N=8192 K=2048: AVX512-BF16 T=1 and T=8 as fast as a plain read, T=256 484 of
//           493 GFLOP/s; in f32 AVX-512 249 of 271; N=K=1024 AVX2 112 of 128.
// Checked:  against reference::gemm in f64, |diff| <= 2^-24 * sqrt(K) * 4 * (|y0| + sum |x||w|), and bit
//           for bit between a row alone and the same row in company.
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
