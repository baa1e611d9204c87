// gemm_few.cu - y[t, n] = sum_k x[t, k] * w[n, k] for at most 64 tokens: the weights are read once, at the
// speed of memory.
//
//   x  [T, K] bf16     w  [N, K] bf16     y  [splits, T, N] f32
//
// The weights are the 16-row operand of mma.m16n8k16 and the tokens its 8 columns, so that one token costs
// eight, not sixteen. A dot product does not care for the order of k. So each lane takes eight neighbouring
// k, sixteen bytes, of weight rows g and g + 8 and of each token, and calls them the k of two instructions:
//
//   lane (g, t), k = 8t .. 8t+7 of a slab of 32   -> instruction 0: words 0, 1   instruction 1: words 2, 3
//
// No shared memory, no shuffles, no packing of weights, and full 32-byte sectors.
//
// Work:     a block has 16 columns of y and one part of K; its eight warps take the slabs in turn, and the
//           sums of the warps are added in the order of the warps. A row's sum does not depend on the rows
//           beside it.
// Roofline: memory, 2*N*K bytes. On their way to the registers of a multiprocessor are at least 32 KiB of
//           weights.
// Checked:  against sums in double, f32 rounding over K terms.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kColumns = 16;  // of y
constexpr int kSlab = 32;     // of K
constexpr Vec kZeros{};

// Blocks on a multiprocessor, and slabs of weights on their way to a warp's registers: as the registers
// allow, which hold the sums of all tokens. A slab of eight warps is 8 KiB.
template <int kTiles>
inline constexpr int kBlocks = kTiles <= 2 ? 2 : 1;
template <int kTiles>
inline constexpr int kAhead = kTiles <= 2 ? 3 : 4;

struct Weights {
  Vec low, high;  // rows g and g + 8
};

// kTiles tiles of eight tokens.
template <int kTiles>
GPU_KERNEL(kThreads, kBlocks<kTiles>)
gemm_few_kernel(Gemm const g) {
  constexpr int kTokens = 8 * kTiles;
  int const column_tiles = (g.n + kColumns - 1) / kColumns;
  int const split = block_index() / column_tiles, first_column = block_index() % column_tiles * kColumns;
  int const slabs = (g.k + kSlab - 1) / kSlab;
  int const slab_begin = int(int64_t(slabs) * split / g.splits);
  int const slab_end = int(int64_t(slabs) * (split + 1) / g.splits);
  int const group = lane() / 4, in_group = lane() % 4;

  // In vectors. Offsets from these fit 32 bits.
  int const row = g.k / 8;
  Vec const* const w = reinterpret_cast<Vec const*>(g.w + int64_t(first_column + group) * g.k) + in_group;
  Vec const* const x = reinterpret_cast<Vec const*>(g.x + int64_t(group) * g.k) + in_group;
  bool const low_inside = first_column + group < g.n, high_inside = first_column + group + 8 < g.n;
  auto const fetch = [&](int slab) {
    int const at = slab * (kSlab / 8);
    bool const inside = slab < slab_end && at + in_group < row;
    return Weights{inside && low_inside ? load_once(w + at) : kZeros,
                   inside && high_inside ? load_once(w + at + 8 * row) : kZeros};
  };

  float sums[kTiles][4] = {};
  constexpr int kSlabs = kAhead<kTiles>;
  Weights ahead[kSlabs];
  GPU_UNROLL
  for (int i = 0; i < kSlabs; ++i) ahead[i] = fetch(slab_begin + warp() + i * kWarps);
  for (int slab = slab_begin + warp(); slab < slab_end; slab += kSlabs * kWarps) {
    GPU_UNROLL
    for (int i = 0; i < kSlabs; ++i) {
      int const here = slab + i * kWarps;
      int const at = here * (kSlab / 8);
      bool const inside = here < slab_end && at + in_group < row;
      Weights const rows = ahead[i];
      ahead[i] = fetch(here + kSlabs * kWarps);
      GPU_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        bool const wanted = inside && tile * 8 + group < g.tokens;
        Vec const tokens = wanted ? load(x + at + tile * 8 * row) : kZeros;
        GPU_UNROLL
        for (int j = 0; j < 4; j += 2) {
          Vec const left{{rows.low.word[j], rows.high.word[j], rows.low.word[j + 1], rows.high.word[j + 1]}};
          multiply_add(sums[tile], left, tokens.word[j], tokens.word[j + 1]);
        }
      }
    }
  }

  Shared<float> const partial{0};  // [warp][token][column]
  GPU_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      partial.set((warp() * kTokens + tile * 8 + 2 * in_group + i % 2) * kColumns + group + i / 2 * 8,
                  sums[tile][i]);
  }
  block_sync();
  for (int i = thread_index(); i < kTokens * kColumns; i += kThreads) {
    int const token = i / kColumns, column = first_column + i % kColumns;
    if (token >= g.tokens || column >= g.n) continue;
    float sum = g.bias && split == 0 ? load(g.bias + column) : 0;
    GPU_UNROLL
    for (int w = 0; w < kWarps; ++w) sum += partial.get(w * kTokens * kColumns + i);
    store(g.y + (int64_t(split) * g.tokens + token) * g.n + column, sum);
  }
}

template <int kTiles>
void launch(Stream& stream, Gemm const& g) {
  int32_t const blocks = (g.n + kColumns - 1) / kColumns * g.splits;
  size_t const shared_bytes = size_t(kWarps) * 8 * kTiles * kColumns * sizeof(float);
  stream.launch("gemm_few", gemm_few_kernel<kTiles>, {blocks, kThreads, shared_bytes}, g);
}

}  // namespace

void gemm_few(Stream& stream, Gemm const& g) {
  if (g.tokens <= 0) return;
  if (g.tokens <= 8)
    launch<1>(stream, g);
  else if (g.tokens <= 16)
    launch<2>(stream, g);
  else if (g.tokens <= 32)
    launch<4>(stream, g);
  else
    launch<8>(stream, g);
}

}  // namespace bunting::cuda
