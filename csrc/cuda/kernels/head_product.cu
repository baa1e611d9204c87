// head_product.cu - products of each query head with a matrix of its own, as latent layers have them.
//
//   x [T, heads, K] bf16     w [heads * N, K] bf16     y [T, heads, N] bf16, sums in f32
//
// Work:     one warp per head, 16 tokens and 32 columns. Its operands go from global memory to registers.
// Roofline: few tokens: memory, the weights once. Many: every 16 tokens read the weights again, from L2.
// Checked:  against sums in double, one rounding to bf16.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4;
constexpr int kRows = 16, kTiles = 4, kColumns = 8 * kTiles;

GPU_DEVICE uint32_t word_at(bf16 const* row, int column, bool is_there) {
  return is_there ? load(reinterpret_cast<uint32_t const*>(row + column)) : 0;
}

GPU_KERNEL(kWarps* kWarp, 4) head_product_kernel(HeadProduct const p) {
  int const columns = (p.n + kColumns - 1) / kColumns;
  int64_t const task = int64_t(block_index()) * kWarps + warp(), of_head = task / columns;
  if (of_head >= int64_t(p.heads) * ((p.tokens + kRows - 1) / kRows)) return;
  int const first_column = int(task % columns) * kColumns, head = int(of_head % p.heads),
            token = int(of_head / p.heads) * kRows + lane() / 4, pair = 2 * (lane() % 4);
  bf16 const* const low = p.x + token * p.x_token + head * p.x_head + pair;
  bf16 const* const high = low + 8 * p.x_token;
  bf16 const* const w = p.w + (int64_t(head) * p.n + first_column + lane() / 4) * p.k + pair;
  bool const has_low = token < p.tokens, has_high = token + 8 < p.tokens;
  float sums[kTiles][4] = {};
  for (int k = 0; k < p.k; k += 16) {
    Vec const left{{word_at(low, k, has_low), word_at(high, k, has_high), word_at(low, k + 8, has_low),
                    word_at(high, k + 8, has_high)}};
    GPU_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      bool const is_there = first_column + 8 * n < p.n;
      bf16 const* const row = w + int64_t(8 * n) * p.k;
      multiply_add(sums[n], left, word_at(row, k, is_there), word_at(row, k + 8, is_there));
    }
  }
  bf16* const out = p.y + token * p.y_token + head * p.y_head + first_column + pair;
  GPU_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    if (first_column + 8 * n >= p.n) continue;
    if (has_low) store(reinterpret_cast<uint32_t*>(out + 8 * n), narrow(sums[n][0], sums[n][1]));
    if (has_high)
      store(reinterpret_cast<uint32_t*>(out + 8 * p.y_token + 8 * n), narrow(sums[n][2], sums[n][3]));
  }
}

}  // namespace

void head_product(Stream& stream, HeadProduct const& p) {
  int64_t const tasks =
      int64_t(p.heads) * ((p.tokens + kRows - 1) / kRows) * ((p.n + kColumns - 1) / kColumns);
  int32_t const blocks = int32_t((tasks + kWarps - 1) / kWarps);
  if (blocks > 0) stream.launch("head_product", head_product_kernel, {blocks, kWarps * kWarp, 0}, p);
}

}  // namespace bunting::cuda
