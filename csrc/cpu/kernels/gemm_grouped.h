// gemm_grouped.h - GEMM micro-kernels for grouped weights on vector registers: R rows times N panels.
//
//   y[t, n] += sum over groups of inputs of scale_x * sum over groups of weights within it of
//              scale_w * float(sum of q_x q_w within that)
//
// The inner sums, of 32, 64 or 128 products, are exact with any instructions (dot.h). The outer sums run over
// rising k with one fused multiply-add each. So every micro-kernel of a level that keeps this order gives the
// same bits. The tile kernel (gemm_grouped_tile.h) may process many rows where this kernel processes few.
// Superblocks have their own order (gemm_super.h).
#pragma once

#include "cpu/kernels/gemm_super.h"
#include "host/cpu_features.h"

namespace bunting::BUNTING_ISA {

// Number of sums for which the register file holds an integer and a float each, beside weights and an input.
#if defined(__AVX512VNNI__)
inline constexpr int kGroupedSums = 12, kGroupedRows = 6, kGroupedPanels = 4;
#elif defined(__AVX512F__)
inline constexpr int kGroupedSums = 8, kGroupedRows = 4, kGroupedPanels = 4;
#elif defined(__AVXVNNI__)
inline constexpr int kGroupedSums = 4, kGroupedRows = 4, kGroupedPanels = 4;
#elif defined(__AVX2__)
inline constexpr int kGroupedSums = 2, kGroupedRows = 2, kGroupedPanels = 2;
#elif defined(BUNTING_HAS_USMMLA)
inline constexpr int kGroupedSums = 4, kGroupedRows = 4, kGroupedPanels = 2;
#elif defined(BUNTING_HAS_SDOT)
inline constexpr int kGroupedSums = 2, kGroupedRows = 2, kGroupedPanels = 2;
#else
inline constexpr int kGroupedSums = 1, kGroupedRows = 1, kGroupedPanels = 1;
#endif

// Wide blocks: with VNNI, 7 to 12 rows are one block, which reads the weights once. They need many groups
// (kGroup) per scale, so that integer sums are rarely converted to floats. The integers fill the register
// file, and the floats stay in memory.
inline constexpr int kWideSums = 24, kWideRows = 12, kWideRowsLeast = 7;

// True if the kernel adds up products of several groups of weights before it applies the scale of the inputs.
// That needs a third set of registers. Otherwise it multiplies each group separately, as if the inputs had
// groups of the same size.
#if defined(__AVX512VNNI__) || defined(BUNTING_AMX_EMULATED)
inline constexpr bool kAddsProducts = true, kHasWideBlocks = true;
#else
inline constexpr bool kAddsProducts = false, kHasWideBlocks = false;
#endif

// Most panels per block. Each panel is a stream from memory. A single row is bound by these reads, and is
// faster with two streams than with four. Interleaved weights of two panels would not fit the registers.
constexpr int grouped_panels(int rows, bool is_wide) {
  if (rows == 1) return kGroupedPanels < 2 ? kGroupedPanels : 2;
  if (kHasPairs) return 1;
  int const panels = (is_wide ? kWideSums : kGroupedSums) / rows;
  return panels < kGroupedPanels ? panels : kGroupedPanels;
}

// Number of groups (kGroup) that share a scale, for weights and for inputs.
template <Dtype W>
inline constexpr int64_t kWeightsTogether = weight_group(W) / kGroup;
template <Dtype W>
inline constexpr int64_t kInputsTogether =
    kAddsProducts || weight_format(W).scales != Scales::half ? input_group(W) / kGroup : kWeightsTogether<W>;

template <Dtype W, bool kWide, int R, int N>
void multiply_groups(InputGroup const* x, int64_t ldx, Slice const& s) {
  using D = Dot<W>;
  constexpr int64_t kWeights = kWeightsTogether<W>, kInputs = kInputsTogether<W>;
  constexpr bool kAdds = kWeights < kInputs;  // products of several groups of weights
  f32x16 sums[R][N];
  begin_sums(sums, s);
  // Keeps the sums out of the registers, which hold products of several groups, or more integers.
  constexpr bool kSumsInMemory = kWide || kAdds;
  if constexpr (kSumsInMemory) asm volatile("" : : "r"(&sums) : "memory");
  char const *at = s.w, *scales_at = s.w, *fetch = s.fetch.from, *turn = s.w + s.fetch.turn;
  auto const fetch_line = [&]() __attribute__((always_inline)) {
    for (int n = 0; n < N; ++n) __builtin_prefetch(fetch + n * s.panel_stride);
    fetch += s.fetch.step;
  };
  int64_t const depth = s.k / kGroup;
  bool begins_block = true;
  for (int64_t i = 0; i < depth;) {
    int64_t const end = kInputs == 1 ? i + 1 : std::min(i + kInputs, depth);
    f32x16 products[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N && kAdds; ++n) products[r][n] = zero();
    do {
      scales_at += kPanel * 2;
      if (begins_block) {
        scales_at = at;
        at += block_header_bytes(W);
        fetch_line();
      }
      begins_block = !begins_block;
      D dots[kDotRows<R>][N];
      for (int r = 0; r < R; ++r) {
        vi const excess = D::excess(x[r * ldx].minus_sum);
        for (int n = 0; n < N; ++n) dots[r][n].start(excess);
      }
      begin_rows<R>(dots);
      do {
        if (at >= turn) {
          fetch = s.fetch.after;
          turn = s.w + s.panel_stride;
        }
#pragma GCC unroll 8
        for (int step = 0; step < kSteps; ++step) {
          if (step < D::kBytes / kLine) fetch_line();
          add_step<R>(dots, at, s.panel_stride, x, ldx, step);
        }
        ++i, ++x, at += D::kBytes;
      } while (kWeights > 1 && i < end);
      end_rows(dots);
      for (int n = 0; n < N; ++n) {
        f32x16 const scales = load_f16(reinterpret_cast<uint16_t const*>(scales_at + n * s.panel_stride));
        for (int r = 0; r < R; ++r) {
          f32x16 const integers = dots[r][n].finish();
          products[r][n] = kAdds ? fma(integers, scales, products[r][n]) : integers * scales;
        }
      }
    } while (kAdds && i < end);
    for (int r = 0; r < R; ++r) {
      f32x16 const scale = set1(x[r * ldx - 1].scale);
      for (int n = 0; n < N; ++n) sums[r][n] = fma(products[r][n], scale, sums[r][n]);
    }
    if constexpr (kSumsInMemory) asm volatile("" : : "r"(&sums) : "memory");
  }
  end_sums(sums, s);
}

// Multiplies groups of the other kinds of scales, without superblocks. A group's minimum multiplies the sum
// of its inputs.
template <Dtype W, int R, int N>
void multiply_blocks(InputGroup const* x, int64_t ldx, Slice const& s) {
  using D = Dot<W>;
  using Header = BlockHeader<W>;
  static_assert(weight_group(W) == kGroup && !is_super(W));
  f32x16 sums[R][N];
  begin_sums(sums, s);
  asm volatile("" : : "r"(&sums) : "memory");  // keeps the sums out of the registers, which hold products
  char const *at = s.w, *header = s.w, *fetch = s.fetch.from, *turn = s.w + s.fetch.turn;
  auto const fetch_line = [&]() __attribute__((always_inline)) {
    for (int n = 0; n < N; ++n) __builtin_prefetch(fetch + n * s.panel_stride);
    fetch += s.fetch.step;
  };
  int64_t const depth = s.k / kGroup;
  int64_t group = 0;  // index in the block
  for (int64_t i = 0; i < depth;) {
    f32x16 products[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) products[r][n] = zero();
    for (int64_t const end = std::min(i + kInputGroups, depth); i < end; ++i, ++x, at += D::kBytes) {
      if (group == 0) {
        header = at;
        at += Header::kBytes;
        for (int line = 0; line < Header::kBytes / kLine; ++line) fetch_line();
      }
      if (at >= turn) {
        fetch = s.fetch.after;
        turn = s.w + s.panel_stride;
      }
      D dots[kDotRows<R>][N];
      for (int r = 0; r < R; ++r) {
        vi const excess = excess_of<W>(x[r * ldx], 0);
        for (int n = 0; n < N; ++n) dots[r][n].start(excess);
      }
      begin_rows<R>(dots);
#pragma GCC unroll 8
      for (int step = 0; step < kSteps; ++step) {
        if (step < D::kBytes / kLine) fetch_line();
        add_step<R>(dots, at, s.panel_stride, x, ldx, step);
      }
      end_rows(dots);
      for (int n = 0; n < N; ++n) {
        f32x16 const scales = Header::scales(header + n * s.panel_stride, group);
        for (int r = 0; r < R; ++r) products[r][n] = fma(dots[r][n].finish(), scales, products[r][n]);
      }
      for (int n = 0; n < N && has_minimum(W); ++n) {
        f32x16 const minimums = Header::minimums(header + n * s.panel_stride, group);
        for (int r = 0; r < R; ++r)
          products[r][n] = fma(set1(x[r * ldx].minus_sum_f32), minimums, products[r][n]);
      }
      group = (group + 1) % (Header::kBlock / kGroup);
    }
    for (int r = 0; r < R; ++r) {
      f32x16 const scale = set1(x[r * ldx - 1].scale);
      for (int n = 0; n < N; ++n) sums[r][n] = fma(products[r][n], scale, sums[r][n]);
    }
    asm volatile("" : : "r"(&sums) : "memory");
  }
  end_sums(sums, s);
}

// Most rows that read one panel at a time on AMD. The next panel then continues the stream, while several
// streams jump at each end of a panel. More rows gain only where panels are short.
inline constexpr int64_t kStreamedRows = 2;

// Micro-kernel for blocks of up to kRowsMost rows, which is kGroupedRows or kWideRows.
template <Dtype W, int kRowsMost>
struct GroupedMicro {
  static constexpr int kRows = kRowsMost;
  static constexpr bool kWide = kRows > kGroupedRows;

  struct State {
    InputGroup const* x;
    int64_t ldx;
  };

  static constexpr int64_t kBlockK = 2048;
  static_assert(kBlockK % (2 * kGroupMax) == 0, "whole blocks");
  static int64_t k_block(int64_t tokens) { return tokens > kRows ? kBlockK : int64_t{1} << 40; }
  static int64_t next_rows(int64_t left) { return next_group(left, kRows); }
  static int64_t panels(int64_t rows) { return rows <= kStreamedRows && is_amd() ? 1 : panels_of(int(rows)); }

  static void prepare(State& state, Gemm const& g, int64_t first, int64_t, int64_t k0, int64_t) {
    state = {static_cast<InputGroup const*>(g.x) + first * g.ldx + k0 / kGroup, g.ldx};
  }

  using Block = void (*)(InputGroup const*, int64_t, Slice const&);
  template <int R, int N>
  static constexpr Block kBlock = [] {
    if constexpr (weight_format(W).scales == Scales::half)
      return multiply_groups<W, kWide, R, N>;
    else if constexpr (is_super(W))
      return multiply_superblocks<W, R, N>;
    else
      return multiply_blocks<W, R, N>;
  }();
  static constexpr int panels_of(int rows) { return grouped_panels(rows, kWide); }

  static void multiply(State const& state, int64_t rows, int64_t panels, Slice const& slice) {
    static constexpr BlockTable<GroupedMicro, kRows, kGroupedPanels> kBlocks;
    kBlocks.at[rows - 1][panels - 1](state.x, state.ldx, slice);
  }
};

}  // namespace bunting::BUNTING_ISA
