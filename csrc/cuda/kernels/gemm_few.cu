// gemm_few.cu - y[t, n] = sum_k x[t, k] * w[n, k] for at most 64 tokens. It reads the weights once, at the
// speed of memory.
//
//   x  [T, K] bf16     w  [N, K] in a format of quantise.h     y  [T, N] f32
//
// The weights are the 16-row operand of mma.m16n8k16 and the tokens its 8 columns, so one token costs as much
// as eight, not as sixteen. The order of k in a dot product is free. So each lane loads eight adjacent k,
// sixteen bytes of bf16, of weight rows g and g + 8 and of each token. It assigns them to two instructions:
//
//   lane (g, t), k = 8t .. 8t+7 of a slab of 32   -> instruction 0: words 0, 1   instruction 1: words 2, 3
//
// Sixteen bytes of a format with fewer bits hold two or four slabs and are widened to bf16 in registers
// (formats.h). If each slab of a row has its own scale, the kernel multiplies the slab's product by the scale
// in f32.
//
// The kernel uses no shared memory and no shuffles, and loads full 32-byte sectors. Weights are loaded
// several vectors ahead, tokens one slab ahead. Each slab begins with an exit from the loop, which also keeps
// the compiler from moving loads ahead of it. Otherwise the compiler would fill all registers with loads and
// spill. kernels.h describes the parts of K and why the sums equal those of gemm_many.
//
// With experts each block finds the expert whose rows it computes (expert_rows.h). It skips tiles of eight
// tokens that the expert does not have.
//
// Work:     a block has 128 columns of y, 16 per warp, and one part of K, so that its warps share tokens in
//           L1. The block that arrives last adds the parts in order.
// Roofline: memory, N*K weights. At least 32 KiB of weights are in flight per multiprocessor. Tokens come
//           from L2 once per 128 columns: an eighth of the bytes of bf16 weights for 16 tokens, half of them
//           for 64.
// Checked:  against sums in double, f32 rounding over K terms; against gemm_many, bit for bit.
#include <algorithm>

#include "cuda/kernels/device.h"
#include "cuda/kernels/expert_rows.h"
#include "cuda/kernels/formats.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kColumns = 16;  // columns of y per warp
constexpr int kSlab = 32;     // k per slab
constexpr Vec kZeros{};

constexpr int kBlockColumns = kWarps * kColumns;

// Blocks per multiprocessor, and vectors in flight per row of weights and lane. The registers, which also
// hold the sums of all tokens, limit both. One vector per lane and row is 8 KiB.
template <int kTiles, Format kFormat>
inline constexpr int kBlocks = kFormat == Format::plain && kTiles <= 2 ? 2 : 1;
template <int kTiles>
constexpr int ahead(Format format) {
  if (format == Format::plain) return kTiles <= 2 ? 4 : kTiles <= 4 ? 8 : 6;
  if (has_four_bits(format) && kTiles == 8) return 2;
  return kTiles <= 2 ? 6 : kTiles <= 4 ? 5 : 3;
}

GPU_DEVICE int last_of(int index, int count) {
  return index < count ? index : count - 1;
}

// Weights and scales of rows g and g + 8.
template <class Scales>
struct Rows {
  Vec low, high;
  Scales low_scales, high_scales;
};

struct Task {
  Gemm g;
  int32_t parts;
  Experts experts;
};

// Initial value of a column's sum, and the factor of its parts.
struct Start {
  float bias = 0, factor = 1;
  GPU_DEVICE Start(Gemm const& g, Format format, int expert, int column, bool wanted) {
    if (!wanted || column >= g.n) return;
    int64_t const at = int64_t(expert) * g.n + column;
    if (g.bias) bias = load(g.bias + at);
    if (format == Format::fp8) factor = load(static_cast<float const*>(g.w.scales) + at);
  }
};

// Adds to the arrival counter of this block's part; the last block of these columns adds up all parts.
// `counter`: index for these columns and rows.
GPU_DEVICE void add_parts(Task const& task, Format format, ExpertRows const& rows, int block_column,
                          int counter) {
  Gemm const& g = task.g;
  Shared<int32_t> const is_last{0};
  block_sync();  // waits until the whole part is written
  if (thread_index() == 0) {
    int32_t* const arrived = g.arrived + counter;
    bool const last = add_acquire_release(arrived, 1) == task.parts - 1;
    if (last) store(arrived, 0);
    is_last.set(0, last);
  }
  block_sync();
  if (!is_last.get(0)) return;
  for (int i = thread_index(); i < rows.count * kBlockColumns; i += kThreads) {
    int const token = rows.first + i / kBlockColumns, column = block_column + i % kBlockColumns;
    if (column >= g.n) continue;
    Start const start(g, format, rows.expert, column, true);
    int64_t const at = int64_t(token) * g.n + column;
    float sum = start.bias;
    for (int part = 0; part < task.parts; ++part)
      sum = fmaf(start.factor, load(g.partial + int64_t(part) * g.tokens * g.n + at), sum);
    store(g.y + at, sum);
  }
}

// Multiplies kTiles tiles of eight tokens. kExperts: the rows are those of one expert.
template <int kTiles, Format kFormat, bool kExperts>
GPU_KERNEL(kThreads, (kBlocks<kTiles, kFormat>))
gemm_few_kernel(Task const task) {
  using W = Weights<kFormat>;
  using Scales = SlabScales<kFormat>;
  Gemm const& g = task.g;
  int const part = block_index() % task.parts, columns = block_index() / task.parts;
  int const column_blocks = (g.n + kBlockColumns - 1) / kBlockColumns;
  int const block_column = (kExperts ? columns % column_blocks : columns) * kBlockColumns;
  ExpertRows mine{0, 0, g.tokens};
  if constexpr (kExperts) {
    mine = find_expert_rows<8 * kTiles>(task.experts, columns / column_blocks);
    if (mine.count == 0) return;
  }
  auto const has_tile = [&](int tile) { return !kExperts || tile == 0 || tile * 8 < mine.count; };
  int const first_column = block_column + warp() * kColumns;
  // A piece is the vectors of four lanes of one row.
  constexpr int kStep = gemm_step(kFormat), kPiecesOfStep = kStep / (W::kSlabs * kSlab);
  int const steps = (g.k + kStep - 1) / kStep;
  int const piece_begin = steps * part / task.parts * kPiecesOfStep;
  int const piece_end = steps * (part + 1) / task.parts * kPiecesOfStep;
  int const slabs = (g.k + kSlab - 1) / kSlab;
  int const group = lane() / 4, in_group = lane() % 4;

  // Row lengths in vectors; offsets within a row fit 32 bits. Missing rows are replaced by the last one, and
  // no thread writes their sums.
  int const x_row = g.k / 8, w_row = kFormat == Format::plain ? x_row : steps * kPiecesOfStep * 4;
  int const low_column = last_of(first_column + group, g.n),
            high_column = last_of(first_column + group + 8, g.n);
  int64_t const low_row = int64_t(mine.expert) * g.n + low_column,
                high_row = int64_t(mine.expert) * g.n + high_column;
  Vec const* const w_low = static_cast<Vec const*>(g.w.data) + low_row * w_row;
  Vec const* const w_high = static_cast<Vec const*>(g.w.data) + high_row * w_row;
  Vec const* x[kTiles];
  GPU_UNROLL
  for (int tile = 0; tile < kTiles; ++tile)
    x[tile] = reinterpret_cast<Vec const*>(g.x) +
              int64_t(mine.first + last_of(tile * 8 + group, mine.count)) * x_row;
  int const scale_row = (steps * kPiecesOfStep + Scales::kPieces - 1) / Scales::kPieces;
  Scales const* const low_scales = static_cast<Scales const*>(g.w.scales) + low_row * scale_row;
  Scales const* const high_scales = static_cast<Scales const*>(g.w.scales) + high_row * scale_row;

  auto const fetch = [&](int piece, Rows<Scales>& rows) {
    if (piece >= piece_end) return;
    int const at = last_of(piece * 4 + in_group, w_row);  // beyond the last k the tokens are zero
    rows.low = load_once(w_low + at);
    rows.high = load_once(w_high + at);
    if constexpr (W::kGrouped) {
      rows.low_scales = load(low_scales + piece / Scales::kPieces);
      rows.high_scales = load(high_scales + piece / Scales::kPieces);
    }
  };
  auto const fetch_tokens = [&](int slab, Vec(&tokens)[kTiles]) {
    int const at = slab * (kSlab / 8) + in_group;
    bool const inside = at < x_row;
    GPU_UNROLL
    for (int tile = 0; tile < kTiles; ++tile)
      if (has_tile(tile)) tokens[tile] = inside ? load(x[tile] + at) : kZeros;
  };

  float sums[kTiles][4] = {};
  constexpr int kPieces = ahead<kTiles>(kFormat);
  Rows<Scales> next[kPieces] = {};
  Vec tokens[2][kTiles];
  GPU_UNROLL
  for (int i = 0; i < kPieces; ++i) fetch(piece_begin + i, next[i]);
  fetch_tokens(piece_begin * W::kSlabs, tokens[0]);
  for (int piece = piece_begin; piece < piece_end; piece += kPieces) {
    GPU_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      int const here = piece + i;
      if (here >= piece_end) break;
      Rows<Scales> const rows = next[i];
      fetch(here + kPieces, next[i]);
      GPU_UNROLL
      for (int s = 0; s < W::kSlabs; ++s) {
        int const slot = (i * W::kSlabs + s) % 2, slab = here * W::kSlabs + s;
        if (W::kSlabs > 1 && slab >= slabs) break;
        fetch_tokens(slab + 1, tokens[1 - slot]);
        Vec const low = W::slab(rows.low, s), high = W::slab(rows.high, s);
        GPU_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          if (!has_tile(tile)) break;
          float of_slab[4] = {};
          float (&to)[4] = W::kGrouped ? of_slab : sums[tile];
          GPU_UNROLL
          for (int j = 0; j < 4; j += 2) {
            Vec const left{{low.word[j], high.word[j], low.word[j + 1], high.word[j + 1]}};
            multiply_add(to, left, tokens[slot][tile].word[j], tokens[slot][tile].word[j + 1]);
          }
          if constexpr (W::kGrouped) {
            add_slab(sums[tile], of_slab, rows.low_scales.of(s), rows.high_scales.of(s));
          }
        }
      }
    }
  }

  // Columns g and g + 8 of tokens 2t and 2t + 1 of each tile.
  float* const y =
      (task.parts == 1 ? g.y : g.partial + int64_t(part) * g.tokens * g.n) + int64_t(mine.first) * g.n;
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    int const column = first_column + group + i / 2 * 8;
    Start const start(g, kFormat, mine.expert, column, task.parts == 1);
    GPU_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      int const token = tile * 8 + 2 * in_group + i % 2;
      if (token < mine.count && column < g.n)
        store(y + int64_t(token) * g.n + column, fmaf(start.factor, sums[tile][i], start.bias));
    }
  }
  if (task.parts > 1) add_parts(task, kFormat, mine, block_column, columns);
}

template <int kTiles, Format kFormat>
void launch(Stream& stream, Gemm const& g, Experts const* experts) {
  int32_t const blocks = (g.n + kBlockColumns - 1) / kBlockColumns;
  if (!experts) {
    Task const task{g, gemm_parts(g.n, g.k), {}};
    stream.launch("gemm_few", gemm_few_kernel<kTiles, kFormat, false>,
                  {blocks * task.parts, kThreads, sizeof(int32_t)}, task);
    return;
  }
  Task const task{g, gemm_parts(g.n * experts->used, g.k), *experts};
  int32_t const groups = std::min(g.tokens, experts->count);  // most groups of rows of one expert
  stream.launch("gemm_few", gemm_few_kernel<kTiles, kFormat, true>,
                {blocks * task.parts * groups, kThreads, sizeof(int32_t)}, task);
}

void multiply(Stream& stream, Gemm const& g, Experts const* experts) {
  if (g.tokens <= 0) return;
  int32_t const rows = experts ? g.tokens / experts->used : g.tokens;  // most rows of one matrix
  with_format(g.w, [&]<Format kFormat>() {
    if (rows <= 8)
      launch<1, kFormat>(stream, g, experts);
    else if (rows <= 16)
      launch<2, kFormat>(stream, g, experts);
    else if (rows <= 32)
      launch<4, kFormat>(stream, g, experts);
    else
      launch<8, kFormat>(stream, g, experts);
  });
}

}  // namespace

void gemm_few(Stream& stream, Gemm const& g) {
  multiply(stream, g, nullptr);
}

void gemm_few_experts(Stream& stream, Gemm const& g, Experts const& experts) {
  multiply(stream, g, &experts);
}

}  // namespace bunting::cuda
