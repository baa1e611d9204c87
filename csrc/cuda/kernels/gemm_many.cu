// gemm_many.cu - y[t, n] = sum_k x[t, k] * w[n, k] for many tokens, on mma.m16n8k16.
//
//   x  [T, K] bf16     w  [N, K] in a format of quantise.h     y  [T, N] f32
//
// A block computes 128 columns of y for 128 tokens, or for 64. K passes in steps through a ring of stages in
// shared memory. A step is as many k as fill whole sixteen-byte chunks of weights for each of four lanes.
// Four lanes read four adjacent chunks of a row and assign their k to instructions as gemm_few does. So the
// sums are equal bit for bit (kernels.h). Weights are widened to bf16 before the instruction (formats.h). In
// rows of more than four chunks every other row has its halves exchanged, so that the eight lanes served
// together read different banks.
//
// Work:     eight warps of 32 columns x half of the tokens. Adjacent blocks share weights: tokens vary
//           fastest. The parts of K are computed one after the other and added in registers.
// Roofline: arithmetic, 2*T*N*K flops; per instruction of 4096 flops a warp reads at most 192 bytes of
//           shared memory.
// Checked:  against sums in double, f32 rounding over K terms; against gemm_few, bit for bit.
#include <algorithm>

#include "cuda/kernels/device.h"
#include "cuda/kernels/expert_rows.h"
#include "cuda/kernels/formats.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;
constexpr int kColumns = 128;  // columns per block
constexpr int kSlab = 32;      // k per slab: four chunks of tokens
constexpr int kWarpColumns = 32;

// Swizzle of rows of kChunks chunks, four or a multiple of eight.
template <int kChunks>
GPU_DEVICE int chunk_at(int row, int chunk) {
  return row * kChunks + (kChunks == 4 ? chunk : chunk ^ row % 2 * 4);
}

// Shared memory layout of a stage, in vectors: weights, then tokens.
template <Format kFormat>
struct Layout {
  static constexpr int kSlabs = gemm_step(kFormat) / kSlab;  // slabs per step
  static constexpr int kWeightChunks = 4 * kSlabs / Weights<kFormat>::kSlabs, kTokenChunks = 4 * kSlabs;
  // Tokens per block. With scales a slab's product needs registers too, until it is scaled.
  static constexpr int kTokens = Weights<kFormat>::kGrouped ? 64 : 128;
  static constexpr int kTokensAt = kColumns * kWeightChunks;
  static constexpr int kStage = kTokensAt + kTokens * kTokenChunks;
  static constexpr int kStages = 3;
  static constexpr size_t kBytes = size_t(kStages) * kStage * sizeof(Vec);
};

struct Task {
  Gemm g;
  int32_t token_tiles, parts;
  Experts experts;
};

// Starts to copy kRows rows of kChunks chunks, of which `rows` rows and `chunks` chunks per row exist. `from`
// is the first row; rows are `stride` chunks apart.
template <int kRows, int kChunks>
GPU_DEVICE void fetch_rows(Shared<Vec> to, Vec const* from, int stride, int rows, int chunks) {
  GPU_UNROLL
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    int const at = thread_index() + i * kThreads, row = at / kChunks, chunk = at % kChunks;
    bool const inside = row < rows && chunk < chunks;
    copy_async(to + chunk_at<kChunks>(row, chunk), from + (inside ? row * stride + chunk : 0), inside);
  }
}

// Multiplies tiles of tokens. kExperts: each tile belongs to one expert.
template <Format kFormat, bool kExperts>
GPU_KERNEL(kThreads, 1)
gemm_many_kernel(Task const task) {
  using L = Layout<kFormat>;
  using W = Weights<kFormat>;
  using Scales = SlabScales<kFormat>;  // a step is a piece of a row
  Gemm const& g = task.g;
  constexpr int kWarpTokens = L::kTokens / 2;
  int const tile = block_index() % task.token_tiles;
  ExpertRows mine{0, tile * L::kTokens, g.tokens - tile * L::kTokens};
  if constexpr (kExperts) {
    mine = find_expert_rows<L::kTokens>(task.experts, tile);
    if (mine.count == 0) return;
  }
  int64_t const matrix_row = int64_t(mine.expert) * g.n;  // row of the expert's matrix, of its first column
  int const first_column = block_index() / task.token_tiles * kColumns;
  int const steps = (g.k + gemm_step(kFormat) - 1) / gemm_step(kFormat);
  int const slabs = (g.k + kSlab - 1) / kSlab;
  int const scale_row = (steps + Scales::kPieces - 1) / Scales::kPieces;

  int const x_row = g.k / 8, w_row = kFormat == Format::plain ? x_row : steps * L::kWeightChunks;
  Vec const* const w = static_cast<Vec const*>(g.w.data) + (matrix_row + first_column) * w_row;
  Vec const* const x = reinterpret_cast<Vec const*>(g.x) + int64_t(mine.first) * x_row;
  auto const stage_of = [](int step) { return Shared<Vec>{0} + step % L::kStages * L::kStage; };
  auto const fetch = [&](int step) {
    if (step < steps) {
      int const w_at = step * L::kWeightChunks, x_at = step * L::kTokenChunks;
      fetch_rows<kColumns, L::kWeightChunks>(stage_of(step), w + w_at, w_row, g.n - first_column,
                                             w_row - w_at);
      fetch_rows<L::kTokens, L::kTokenChunks>(stage_of(step) + L::kTokensAt, x + x_at, x_row, mine.count,
                                              x_row - x_at);
    }
    copy_commit();
  };

  int const warp_column = warp() % 4 * kWarpColumns, warp_token = warp() / 4 * kWarpTokens;
  int const group = lane() / 4, in_group = lane() % 4;
  auto const column_of = [&](int m, int i) { return first_column + warp_column + 16 * m + group + 8 * i; };
  float factor[kWarpColumns / 16][2];  // factors of the columns
  float sums[kWarpColumns / 16][kWarpTokens / 8][4] = {}, totals[kWarpColumns / 16][kWarpTokens / 8][4];
  GPU_UNROLL
  for (int m = 0; m < kWarpColumns / 16; ++m) {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      bool const inside = column_of(m, i) < g.n;
      factor[m][i] = W::kChannels && inside
                         ? load(static_cast<float const*>(g.w.scales) + matrix_row + column_of(m, i))
                         : 1;
      float const bias = g.bias && inside ? load(g.bias + matrix_row + column_of(m, i)) : 0;
      GPU_UNROLL
      for (int n = 0; n < kWarpTokens / 8; ++n) totals[m][n][2 * i] = totals[m][n][2 * i + 1] = bias;
    }
  }

  GPU_UNROLL
  for (int i = 0; i < L::kStages - 1; ++i) fetch(i);
  for (int part = 0, step = 0; part < task.parts; ++part) {
    for (int const end = steps * (part + 1) / task.parts; step < end; ++step) {
      Scales scales[kWarpColumns / 16][2] = {};
      GPU_UNROLL
      for (int m = 0; m < kWarpColumns / 16 && W::kGrouped; ++m) {
        GPU_UNROLL
        for (int i = 0; i < 2; ++i)
          if (column_of(m, i) < g.n)
            scales[m][i] = load(static_cast<Scales const*>(g.w.scales) +
                                (matrix_row + column_of(m, i)) * scale_row + step / Scales::kPieces);
      }
      copy_wait<L::kStages - 2>();
      block_sync();  // the step's tiles are complete, and no thread reads the stage that is filled next
      fetch(step + L::kStages - 1);
      Shared<Vec> const weights = stage_of(step), tokens = weights + L::kTokensAt;
      GPU_UNROLL
      for (int s = 0; s < L::kSlabs; ++s) {
        // Also stops the compiler from moving loads, see gemm_few.cu.
        if (step * L::kSlabs + s >= slabs) break;
        Vec low[kWarpColumns / 16], high[kWarpColumns / 16];
        GPU_UNROLL
        for (int m = 0; m < kWarpColumns / 16; ++m) {
          int const row = warp_column + 16 * m + group, chunk = s / W::kSlabs * 4 + in_group;
          low[m] = W::slab(weights.get(chunk_at<L::kWeightChunks>(row, chunk)), s % W::kSlabs);
          high[m] = W::slab(weights.get(chunk_at<L::kWeightChunks>(row + 8, chunk)), s % W::kSlabs);
        }
        GPU_UNROLL
        for (int n = 0; n < kWarpTokens / 8; ++n) {
          Vec const right =
              tokens.get(chunk_at<L::kTokenChunks>(warp_token + 8 * n + group, 4 * s + in_group));
          GPU_UNROLL
          for (int m = 0; m < kWarpColumns / 16; ++m) {
            float of_slab[4] = {};
            float (&to)[4] = W::kGrouped ? of_slab : sums[m][n];
            GPU_UNROLL
            for (int j = 0; j < 4; j += 2) {
              Vec const left{{low[m].word[j], high[m].word[j], low[m].word[j + 1], high[m].word[j + 1]}};
              multiply_add(to, left, right.word[j], right.word[j + 1]);
            }
            if constexpr (W::kGrouped) add_slab(sums[m][n], of_slab, scales[m][0].of(s), scales[m][1].of(s));
          }
        }
      }
    }
    GPU_UNROLL
    for (int m = 0; m < kWarpColumns / 16; ++m) {
      GPU_UNROLL
      for (int n = 0; n < kWarpTokens / 8; ++n) {
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) {
          totals[m][n][i] = fmaf(factor[m][i / 2], sums[m][n][i], totals[m][n][i]);
          sums[m][n][i] = 0;
        }
      }
    }
  }

  GPU_UNROLL
  for (int m = 0; m < kWarpColumns / 16; ++m) {
    GPU_UNROLL
    for (int n = 0; n < kWarpTokens / 8; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        int const token = warp_token + 8 * n + 2 * in_group + i % 2, column = column_of(m, i / 2);
        if (token < mine.count && column < g.n)
          store(g.y + int64_t(mine.first + token) * g.n + column, totals[m][n][i]);
      }
    }
  }
}

template <Format kFormat>
void launch(Stream& stream, Gemm const& g, Experts const* experts) {
  constexpr int32_t kTokens = Layout<kFormat>::kTokens;
  int32_t const column_tiles = (g.n + kColumns - 1) / kColumns;
  auto const start = [&](auto kernel, Task const& task) {
    stream.launch("gemm_many", kernel, {task.token_tiles * column_tiles, kThreads, Layout<kFormat>::kBytes},
                  task);
  };
  if (!experts)
    return start(gemm_many_kernel<kFormat, false>,
                 Task{g, (g.tokens + kTokens - 1) / kTokens, gemm_parts(g.n, g.k), {}});
  // Each expert's last tile may be short.
  int32_t const tiles = g.tokens / kTokens + std::min(g.tokens, experts->count);
  start(gemm_many_kernel<kFormat, true>, Task{g, tiles, gemm_parts(g.n * experts->used, g.k), *experts});
}

void multiply(Stream& stream, Gemm const& g, Experts const* experts) {
  if (g.tokens <= 0) return;
  with_format(g.w, [&]<Format kFormat>() { launch<kFormat>(stream, g, experts); });
}

}  // namespace

void gemm_many(Stream& stream, Gemm const& g) {
  multiply(stream, g, nullptr);
}

void gemm_many_experts(Stream& stream, Gemm const& g, Experts const& experts) {
  multiply(stream, g, &experts);
}

}  // namespace bunting::cuda
