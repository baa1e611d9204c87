// gemm.cpp - selects the GEMM kernel and the number of parts of K (split-K).
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

constexpr int32_t kPartsMax = 8;   // number of warps per block of gemm_few
constexpr int32_t kPartMin = 256;  // least k of a part; for shorter parts one more sum does not pay
// Warps, of 16 columns and one part: eight per multiprocessor of a large GPU.
constexpr int32_t kWarpsWanted = 1024;

}  // namespace

int32_t gemm_parts(int32_t n, int32_t k) {
  int32_t const column_tiles = (n + 15) / 16;
  int32_t parts = 1;
  while (parts < kPartsMax && parts * column_tiles < kWarpsWanted && k / (2 * parts) >= kPartMin) parts *= 2;
  return parts;
}

void gemm_experts(Stream& stream, Gemm const& g, Experts const& experts) {
  // A token has one row per expert that it uses, so no expert has more rows than there are tokens.
  (g.tokens <= kGemmFewTokens * experts.used ? gemm_few_experts : gemm_many_experts)(stream, g, experts);
}

void gemm(Stream& stream, Gemm const& g) {
  (g.tokens <= kGemmFewTokens ? gemm_few : gemm_many)(stream, g);
}

}  // namespace bunting::cuda
