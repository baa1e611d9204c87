// parallel_gemm.h - a GEMM over all threads of a pool.
#pragma once

#include "cpu/kernels/kernels.h"
#include "host/thread_pool.h"

namespace bunting {

// How a GEMM is cut: into pieces of `panels` panels by `rows` rows.
struct GemmCut {
  int64_t panels, rows;
};

// Into about `pieces` pieces. Few rows are never cut: the weights are to be read once. Many rows are cut too
// where the panels alone would give too few pieces or too narrow ones.
GemmCut cut_gemm(int64_t panels, int64_t tokens, int64_t pieces);

// Computes all of g in about `pieces` pieces; the result is the same bits however it is cut.
void parallel_gemm(ThreadPool& pool, Kernels const& kernels, Gemm const& g, int64_t pieces);

// The gate and up projections with what follows them: out[t, f] = activation(gate[t, f]) * up[t, f]. Both are
// computed for a block of rows and columns that stays in the L2 cache, so that they never go to memory.
struct GatedGemm {
  void const* x = nullptr;  // as Gemm::x
  int64_t ldx = 0;
  bool may_have_outliers = true;    // as Gemm's
  PackedMatrix const* w = nullptr;  // [2 F, K], F a multiple of kPanel: gates, then ups
  float const* bias = nullptr;      // [2 F] or null
  Activation activation = Activation::silu;
  Operand out;  // [T, ld]; columns from F on are left as they are
  int64_t tokens = 0;
  float* scratch = nullptr;  // kGateScratch floats for each thread
};
inline constexpr int64_t kGateScratch = 64 * 1024;

// The same bits however many pieces.
void parallel_gated(ThreadPool& pool, Kernels const& kernels, GatedGemm const& g, int64_t pieces);

}  // namespace bunting
