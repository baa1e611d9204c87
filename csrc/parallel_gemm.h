// parallel_gemm.h - a GEMM over all threads of a pool.
#pragma once

#include "kernels/kernels.h"
#include "thread_pool.h"

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

}  // namespace bunting
