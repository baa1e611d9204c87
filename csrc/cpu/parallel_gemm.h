// parallel_gemm.h - GEMMs over all threads of a pool.
#pragma once

#include "cpu/kernels/kernels.h"
#include "cpu/low_rank.h"
#include "host/thread_pool.h"

namespace bunting {

// Partition of a GEMM into pieces of `panels` panels by `rows` rows.
struct GemmCut {
  int64_t panels, rows;
};

// Cuts a GEMM into about `pieces` pieces. Few rows are never cut, so that the weights are read once. Many
// rows are cut too if cutting panels alone would give too few pieces or too narrow ones.
GemmCut cut_gemm(int64_t panels, int64_t tokens, int64_t pieces);

// Computes all of g in about `pieces` pieces. The result has the same bits for every cut.
void parallel_gemm(ThreadPool& pool, Kernels const& kernels, Gemm const& g, int64_t pieces);

// Gate and up projections with their activation: out[t, f] = activation(gate[t, f]) * up[t, f], or, plain,
// out[t, f] = activation(up[t, f]). Both are computed for a block of rows and columns that stays in the L2
// cache, so their outputs never go to memory.
struct GatedGemm {
  void const* x = nullptr;  // as Gemm::x
  int64_t ldx = 0;
  bool may_have_outliers = true;    // as Gemm::may_have_outliers
  PackedMatrix const* w = nullptr;  // [2 F, K], F a multiple of kPanel: gates, then ups; plain: [F, K]
  float const* bias = nullptr;      // [2 F] or [F], or null
  bool is_plain = false;
  Activation activation = Activation::silu;
  Xielu xielu = {};
  Operand out;  // [T, ld]; columns from F on are unchanged
  int64_t tokens = 0;
  float* scratch = nullptr;           // kGateScratch floats per thread
  LowRank const* low_rank = nullptr;  // has reduced this product and adds to it; null: adds nothing
};
inline constexpr int64_t kGateScratch = 64 * 1024;

// Computes all of g in about `pieces` pieces, with the same bits for every number of pieces.
void parallel_gated(ThreadPool& pool, Kernels const& kernels, GatedGemm const& g, int64_t pieces);

}  // namespace bunting
