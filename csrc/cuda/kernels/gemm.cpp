// gemm.cpp - which kernel multiplies, and into how many parts K is cut.
#include <algorithm>

#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

constexpr int32_t kFewColumns = 16, kManyColumns = 128, kManyTokens = 128;  // of a block
constexpr int32_t kBlocksPerMultiprocessor = 2;
constexpr int32_t kSplitMin = 1024;  // a part of K that is worth a block's start and the sum of one more part

}  // namespace

int32_t gemm_splits(int32_t tokens, int32_t n, int32_t k, int32_t multiprocessors, int32_t splits_max) {
  bool const few = tokens <= kGemmFewTokens;
  int64_t const columns = few ? kFewColumns : kManyColumns;
  int64_t const blocks = (n + columns - 1) / columns * (few ? 1 : (tokens + kManyTokens - 1) / kManyTokens);
  int64_t const wanted = int64_t(multiprocessors) * kBlocksPerMultiprocessor / blocks;
  return int32_t(std::clamp<int64_t>(std::min<int64_t>(wanted, k / kSplitMin), 1, splits_max));
}

void gemm(Stream& stream, Gemm const& g) {
  (g.tokens <= kGemmFewTokens ? gemm_few : gemm_many)(stream, g);
}

}  // namespace bunting::cuda
