// gemm_block.h - the loops around every GEMM micro-kernel.
//
// A micro-kernel multiplies a block of rows by a group of panels over a range of k, starting from the sums in
// y and leaving the sums in y. Around it, outermost first:
//
//   chunks of panels   a chunk's weights, k_block deep, stay in the L2 cache while all rows pass over them
//   blocks of k        sums wait in y in between, which changes no bit of them
//   blocks of rows     a block's inputs stay in the L1 cache while the panels of the chunk pass by
//   groups of panels   several streams of weights at once
//
// With few rows everything is read once and the order does not matter: one block of k is as long as possible.
//
// A micro-kernel type has
//   kRows, next_rows(left)     most rows of a block; rows of the next one
//   panels(rows)               most panels of a group with that many rows
//   kStep, kStepBytes          values of k that a panel keeps together, in as many bytes
//   k_block(tokens)            longest block of k, whole steps
//   prepare(state, g, t, rows, k0, k)        makes rows [t, t + rows) ready
//   multiply(state, rows, panels, slice)     sums += rows * panels
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Half of a usual L2 cache of this level's processors: 512 KB for AVX2, 1 MB for AVX-512, 2 MB for AMX.
#if defined(__AMX_TILE__)
inline constexpr int64_t kCachedWeights = 1024 * 1024;
#elif defined(__AVX512F__)
inline constexpr int64_t kCachedWeights = 512 * 1024;
#else
inline constexpr int64_t kCachedWeights = 256 * 1024;
#endif
inline constexpr int64_t kStepBytes = 64;  // of a plain panel: two k of 16 bf16, or one k of 16 f32

// Bytes of each stream of weights fetched ahead; 1 KB covers the memory's latency at the speed of one core.
inline constexpr int kPrefetchBytes = 1024;

// What one call of a micro-kernel works on: rows x panels of y, and the weights of those panels from k0 on.
struct Slice {
  float* y;              // the first row and column
  int64_t ldy;           // floats
  char const* w;         // the first panel at k0
  int64_t panel_stride;  // bytes from one panel to the next
  int64_t k;             // values of k to sum over
  int64_t last_columns;  // columns of the last panel that exist, 1 .. 16
  bool start_at_zero;    // the sums begin here; else they continue what is in y
};

// What is in y, or zeros.
template <int R, int N>
BUNTING_INLINE void begin_sums(f32x16 (&sums)[R][N], Slice const& s) {
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      float const* y = s.y + r * s.ldy + n * kPanel;
      sums[r][n] = s.start_at_zero ? zero() : n + 1 < N ? load(y) : load_first(y, s.last_columns);
    }
  }
}

template <int R, int N>
BUNTING_INLINE void end_sums(f32x16 const (&sums)[R][N], Slice const& s) {
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      float* y = s.y + r * s.ldy + n * kPanel;
      if (n + 1 < N)
        store(y, sums[r][n]);
      else
        store_first(y, sums[r][n], s.last_columns);
    }
  }
}

// at[R - 1][N - 1] is Micro::kBlock<R, N>, for R up to Rows and N up to Micro::panels_of(R), at most Panels.
template <class Micro, int Rows, int Panels>
struct BlockTable {
  typename Micro::Block at[Rows][Panels] = {};

  constexpr BlockTable() { fill(std::make_integer_sequence<int, Rows>{}); }

 private:
  template <int... Row>
  constexpr void fill(std::integer_sequence<int, Row...>) {
    (fill_row<Row>(std::make_integer_sequence<int, Micro::panels_of(Row + 1)>{}), ...);
  }
  template <int Row, int... Panel>
  constexpr void fill_row(std::integer_sequence<int, Panel...>) {
    ((at[Row][Panel] = Micro::template kBlock<Row + 1, Panel + 1>), ...);
  }
};

// The size of the next of the equal groups into which `left` is divided, none larger than `most`.
BUNTING_INLINE int64_t next_group(int64_t left, int64_t most) {
  int64_t const groups = (left + most - 1) / most;
  return (left + groups - 1) / groups;
}

// y = bias or y += bias, for the columns of panels [begin, end); the products are added to it afterwards.
inline void begin_with_bias(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  int64_t const begin = panel_begin * kPanel, end = std::min(panel_end * kPanel, g.w->n);
  for (int64_t t = 0; t < g.tokens; ++t) {
    float* y = g.y + t * g.ldy;
    for (int64_t n = begin; n < end; ++n) y[n] = g.accumulate ? y[n] + g.bias[n] : g.bias[n];
  }
}

template <class Micro>
void gemm_blocks(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  PackedMatrix const& w = *g.w;
  int64_t const kp = w.kp();
  int64_t const panel_stride = w.panel_bytes();
  bool const add_to_y = g.accumulate || g.bias != nullptr;
  if (g.bias != nullptr) begin_with_bias(g, panel_begin, panel_end);

  int64_t const k_block = Micro::k_block(g.tokens);
  int64_t const block_bytes = std::min(k_block, kp) / Micro::kStep * Micro::kStepBytes;
  int64_t const chunk = g.tokens <= Micro::kRows || block_bytes == 0
                            ? panel_end - panel_begin
                            : std::max<int64_t>(8, kCachedWeights / block_bytes);
  typename Micro::State state;
  for (int64_t chunk_begin = panel_begin; chunk_begin < panel_end; chunk_begin += chunk) {
    int64_t const chunk_end = std::min(chunk_begin + chunk, panel_end);
    int64_t k0 = 0;
    do {  // once even for K = 0, which makes y zero
      int64_t const k = std::min(k_block, kp - k0);
      for (int64_t t = 0, rows; t < g.tokens; t += rows) {
        rows = Micro::next_rows(g.tokens - t);
        Micro::prepare(state, g, t, rows, k0, k);
        int64_t const most = Micro::panels(rows);
        for (int64_t panel = chunk_begin, panels; panel < chunk_end; panel += panels) {
          panels = next_group(chunk_end - panel, most);
          Micro::multiply(state, rows, panels,
                          {.y = g.y + t * g.ldy + panel * kPanel,
                           .ldy = g.ldy,
                           .w = static_cast<char const*>(w.data) + panel * panel_stride +
                                k0 / Micro::kStep * Micro::kStepBytes,
                           .panel_stride = panel_stride,
                           .k = k,
                           .last_columns = std::min<int64_t>(kPanel, w.n - (panel + panels - 1) * kPanel),
                           .start_at_zero = k0 == 0 && !add_to_y});
        }
      }
      k0 += k;
    } while (k0 < kp);
  }
}

}  // namespace bunting::BUNTING_ISA
