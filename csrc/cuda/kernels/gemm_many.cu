// gemm_many.cu - y[t, n] = sum_k x[t, k] * w[n, k] for many tokens, on mma.m16n8k16.
//
//   x  [T, K] bf16     w  [N, K] bf16     y  [splits, T, N] f32
//
// A block computes 128 columns of y for 128 tokens. Tiles of 64 k of both matrices pass through a ring of
// kStages stages in shared memory. A row of a tile is eight chunks of sixteen bytes; chunk c of row r lies
// at c ^ (r % 8), so that the eight rows that one ldmatrix reads lie in different banks.
//
// Work:     eight warps of 64 columns x 32 tokens. Blocks beside each other share weights: tokens vary
//           fastest.
// Roofline: arithmetic, 2*T*N*K flops; per instruction of 4096 flops a warp reads 192 bytes of shared
//           memory.
// Checked:  against sums in double, f32 rounding over K terms.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;
constexpr int kRows = 128;  // of each matrix in a block's tile
constexpr int kChunks = 8;  // of sixteen bytes in a row of a tile
constexpr int kTileK = 8 * kChunks;
constexpr int kStages = 3;
constexpr int kTile = kRows * kChunks;  // vectors of one matrix in one stage
constexpr size_t kSharedBytes = size_t(kStages) * 2 * kTile * sizeof(Vec);
constexpr int kWarpColumns = 64, kWarpTokens = 32;

GPU_DEVICE int chunk_at(int row, int chunk) {
  return row * kChunks + (chunk ^ row % 8);
}

struct Task {
  Gemm g;
  int32_t token_tiles, column_tiles;
};

GPU_KERNEL(kThreads, 2) gemm_many_kernel(Task const task) {
  Gemm const& g = task.g;
  int const tiles = task.token_tiles * task.column_tiles;
  int const split = block_index() / tiles, tile = block_index() % tiles;
  int const first_token = tile % task.token_tiles * kRows, first_column = tile / task.token_tiles * kRows;
  int const steps = (g.k + kTileK - 1) / kTileK;
  int const step_begin = int(int64_t(steps) * split / g.splits);
  int const step_end = int(int64_t(steps) * (split + 1) / g.splits);

  auto const stage = [](int step, int matrix) {
    return Shared<Vec>{0} + (step % kStages * 2 + matrix) * kTile;
  };
  // A thread copies the same chunk of every 32nd row.
  constexpr int kRowsApart = kThreads / kChunks;
  int const row = thread_index() / kChunks, chunk = thread_index() % kChunks, at = chunk_at(row, chunk);
  auto const fetch_matrix = [&](Shared<Vec> to, bf16 const* first, int rows, int k) {
    GPU_UNROLL
    for (int i = 0; i < kRows / kRowsApart; ++i) {
      bool const inside = row + i * kRowsApart < rows && k < g.k;
      bf16 const* const from = inside ? first + i * kRowsApart * int64_t(g.k) + k : first;
      copy_async(to + at + i * kRowsApart * kChunks, reinterpret_cast<Vec const*>(from), inside);
    }
  };
  bf16 const* const w_rows = g.w + int64_t(first_column + row) * g.k;
  bf16 const* const x_rows = g.x + int64_t(first_token + row) * g.k;
  auto const fetch = [&](int step) {
    if (step < step_end) {
      int const k = step * kTileK + 8 * chunk;
      fetch_matrix(stage(step - step_begin, 0), w_rows, g.n - first_column, k);
      fetch_matrix(stage(step - step_begin, 1), x_rows, g.tokens - first_token, k);
    }
    copy_commit();
  };

  float sums[kWarpColumns / 16][kWarpTokens / 8][4] = {};
  int const warp_column = warp() % 2 * kWarpColumns, warp_token = warp() / 2 * kWarpTokens;
  GPU_UNROLL
  for (int i = 0; i < kStages - 1; ++i) fetch(step_begin + i);
  for (int step = step_begin; step < step_end; ++step) {
    copy_wait<kStages - 2>();
    block_sync();  // the step's tiles are there for all, and nobody reads the stage that is filled next
    fetch(step + kStages - 1);
    Shared<Vec> const w = stage(step - step_begin, 0), x = stage(step - step_begin, 1);
    GPU_UNROLL
    for (int k = 0; k < kTileK / 16; ++k) {
      // Four matrices each: rows 0-7 and 8-15 at the first eight k, then at the second. Tokens the other
      // way round: both halves of k for tokens 0-7, then for tokens 8-15.
      Vec left[kWarpColumns / 16], right[kWarpTokens / 16];
      GPU_UNROLL
      for (int m = 0; m < kWarpColumns / 16; ++m)
        left[m] = load_matrices<false>(w + chunk_at(warp_column + 16 * m + lane() % 16, 2 * k + lane() / 16));
      GPU_UNROLL
      for (int n = 0; n < kWarpTokens / 16; ++n)
        right[n] = load_matrices<false>(
            x + chunk_at(warp_token + 16 * n + lane() / 16 * 8 + lane() % 8, 2 * k + lane() / 8 % 2));
      GPU_UNROLL
      for (int m = 0; m < kWarpColumns / 16; ++m) {
        GPU_UNROLL
        for (int n = 0; n < kWarpTokens / 8; ++n)
          multiply_add(sums[m][n], left[m], right[n / 2].word[n % 2 * 2], right[n / 2].word[n % 2 * 2 + 1]);
      }
    }
  }

  GPU_UNROLL
  for (int m = 0; m < kWarpColumns / 16; ++m) {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      int const column = first_column + warp_column + 16 * m + lane() / 4 + 8 * i;
      if (column >= g.n) continue;
      float const bias = g.bias && split == 0 ? load(g.bias + column) : 0;
      GPU_UNROLL
      for (int n = 0; n < kWarpTokens / 8; ++n) {
        GPU_UNROLL
        for (int j = 0; j < 2; ++j) {
          int const token = first_token + warp_token + 8 * n + 2 * (lane() % 4) + j;
          if (token < g.tokens)
            store(g.y + (int64_t(split) * g.tokens + token) * g.n + column, sums[m][n][2 * i + j] + bias);
        }
      }
    }
  }
}

}  // namespace

void gemm_many(Stream& stream, Gemm const& g) {
  if (g.tokens <= 0) return;
  Task const task{g, (g.tokens + kRows - 1) / kRows, (g.n + kRows - 1) / kRows};
  stream.launch("gemm_many", gemm_many_kernel,
                {task.token_tiles * task.column_tiles * g.splits, kThreads, kSharedBytes}, task);
}

}  // namespace bunting::cuda
