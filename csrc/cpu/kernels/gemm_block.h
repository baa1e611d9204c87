// gemm_block.h - the blocking loops around every GEMM micro-kernel.
//
// A micro-kernel multiplies a block of rows by a group of panels over a range of k. It reads the sums from y
// and leaves them in y. The loops around it, outermost first:
//
//   chunks of panels   a chunk's weights, k_block deep, stay in the L2 cache while all rows pass over them
//   blocks of k        sums wait in y in between, which changes none of their bits
//   blocks of rows     a block's inputs stay in the L1 cache while the panels of the chunk pass
//   groups of panels   several streams of weights at once
//
// With few rows the kernel reads everything once and the order does not matter: a block of k is as long as
// possible. A slice prefetches its own weights some distance ahead, and at its end those of the next slice.
// With many rows each block of rows prefetches its part of the weights that follow those in the cache. So
// memory is busy all the time, not only while the first rows pass. The last blocks prefetch Gemm::next.
//
// A micro-kernel type has
//   kRows, next_rows(left)     largest block of rows; rows of the next block
//   panels(rows)               most panels of a group with that many rows
//   k_block(tokens)            longest block of k, whole blocks of a panel
//   prepare(state, g, t, rows, k0, k)        makes rows [t, t + rows) ready
//   multiply(state, rows, panels, slice)     sums += rows * panels
#pragma once

#include <algorithm>
#include <utility>

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Cache budget for a chunk's weights: a quarter of a usual L2 cache of this level's processors (512 KB for
// AVX2, 1 MB for AVX-512), because the next chunk arrives meanwhile. Tiles use half of 2 MB, because they
// gather their inputs again for every chunk.
#if defined(__AMX_TILE__)
inline constexpr int64_t kCachedWeights = 1024 * 1024;
#elif defined(__AVX512F__)
inline constexpr int64_t kCachedWeights = 256 * 1024;
#else
inline constexpr int64_t kCachedWeights = 128 * 1024;
#endif
inline constexpr int64_t kLine = 64;       // bytes of a cache line
inline constexpr int64_t kStepBytes = 64;  // per step of a plain panel: two k of 16 bf16, or one k of 16 f32

// Prefetch distance in bytes, over all streams of weights. One core needs several KB in flight to use its
// memory bandwidth. With one row the out-of-order window itself covers part of that; with more rows
// multiply-adds fill the window.
constexpr int64_t ahead_bytes(int64_t rows) {
  return rows == 1 ? 4096 : 8192;
}

// Lines to prefetch while a slice is multiplied, one per line of the slice, for as many panels at the same
// stride. They are `step` bytes apart and start at `from`, or at `after` once `turn` bytes of the slice are
// multiplied.
struct Fetch {
  char const* from;
  int64_t step;
  int64_t turn;  // a multiple of the line size
  char const* after;
};

// Operands of one call of a micro-kernel: rows x panels of y, and the weights of those panels from k0 on.
struct Slice {
  float* y;              // the first row and column
  int64_t ldy;           // floats
  char const* w;         // the first panel at k0
  int64_t panel_stride;  // bytes from one panel to the next
  int64_t k;             // number of k to sum over
  int64_t last_columns;  // columns of the last panel that exist, 1 .. 16
  bool start_at_zero;    // true: the sums begin here; false: they continue the sums in y
  Fetch fetch;
};

// Loads the sums from y, or zeros.
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

// Table with at[R - 1][N - 1] = Micro::kBlock<R, N>, for R up to Rows and N up to Micro::panels_of(R), at
// most Panels.
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

// Size of the next of the equal groups that divide `left`, none larger than `most`.
BUNTING_INLINE int64_t next_group(int64_t left, int64_t most) {
  int64_t const groups = (left + most - 1) / most;
  return (left + groups - 1) / groups;
}

// Sizes of all these groups in order, without a division for each.
class Groups {
 public:
  Groups(int64_t count, int64_t most) {
    int64_t const groups = (count + most - 1) / most;
    size_ = count / groups;
    larger_ = count - groups * size_;
  }
  int64_t next() { return size_ + (larger_-- > 0); }

 private:
  int64_t size_, larger_;  // the first `larger_` groups have one more
};

// Sets y = bias or y += bias for the columns of panels [begin, end); the products are added afterwards.
inline void begin_with_bias(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  int64_t const begin = panel_begin * kPanel, end = std::min(panel_end * kPanel, g.w->n);
  for (int64_t t = 0; t < g.tokens; ++t) {
    float* y = g.y + t * g.ldy;
    for (int64_t n = begin; n < end; ++n) y[n] = g.accumulate ? y[n] + g.bias[n] : g.bias[n];
  }
}

// Prefetch plan of the slices: each weight is fetched from memory once, however many blocks of rows pass over
// it. Weights that are not cached yet are fetched while the first rows pass, some distance ahead. The weights
// after them are fetched in equal parts while the other rows pass.
struct FetchPlan {
  int64_t tokens, row_blocks;
  bool is_cold;       // true: the weights of this plan are not in the cache yet
  char const* begin;  // beginning of these weights
  char const* later;  // beginning of the weights that follow; null if none, or with one block of rows
  int64_t bytes;      // bytes of a panel
  // Bytes per line and per panel to prefetch while a row block passes.
  int64_t step = std::max<int64_t>(1, kLine / std::max<int64_t>(1, row_blocks - is_cold)),
          part_bytes = bytes / kLine * step;

  // Returns the prefetch for row block `index` and a slice of `panels` panels; `next` are the panels after
  // them.
  Fetch of(int64_t index, char const* w, char const* next, int64_t panels) const {
    if (is_cold && index == 0) {
      int64_t const ahead = round_up(ahead_bytes(tokens) / panels, kLine);
      return {w + ahead, kLine, std::max<int64_t>(0, bytes - ahead), next};
    }
    int64_t const at = (index - is_cold) * part_bytes;
    if (later == nullptr || at >= bytes) return {w, 0, bytes, w};
    return {later + (w - begin) + at, step, bytes, w};
  }
};

// Panels per chunk, `block_bytes` each, a multiple of `group`. With few rows a short range is several chunks
// too, so that most of it is prefetched during other multiplications.
inline int64_t chunk_panels(int64_t panels, int64_t tokens, int64_t block_bytes, int64_t group) {
  int64_t const cached = kCachedWeights / block_bytes;
  return std::max<int64_t>(1, (tokens <= 64 ? std::min(cached, panels / 4) : cached) / group) * group;
}

template <class Micro>
void gemm_blocks(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
  PackedMatrix const& w = *g.w;
  int64_t const kp = w.kp();
  int64_t const panel_stride = w.panel_bytes();
  bool const add_to_y = g.accumulate || g.bias != nullptr;
  if (g.bias != nullptr) begin_with_bias(g, panel_begin, panel_end);

  int64_t const k_block = std::min(Micro::k_block(g.tokens), kp);
  int64_t const block_bytes = w.depth_bytes(k_block);
  int64_t const row_blocks = (g.tokens + Micro::kRows - 1) / Micro::kRows;
  int64_t const group = Micro::panels(Micro::next_rows(g.tokens));
  int64_t const chunk = row_blocks == 1 || block_bytes == 0
                            ? panel_end - panel_begin
                            : chunk_panels(panel_end - panel_begin, g.tokens, block_bytes, group);
  auto const weights_at = [&](int64_t panel, int64_t k) {
    return static_cast<char const*>(w.data) + panel * panel_stride + w.depth_bytes(k);
  };
  typename Micro::State state;
  for (int64_t chunk_begin = panel_begin; chunk_begin < panel_end; chunk_begin += chunk) {
    int64_t const chunk_end = std::min(chunk_begin + chunk, panel_end);
    int64_t k0 = 0;
    do {  // runs once even for K = 0, which sets y to zero
      int64_t const k = std::min(k_block, kp - k0), bytes = w.depth_bytes(k);
      FetchPlan const plan{.tokens = g.tokens,
                           .row_blocks = row_blocks,
                           .is_cold = row_blocks == 1 || (chunk_begin == panel_begin && k0 == 0),
                           .begin = weights_at(chunk_begin, k0),
                           .later = row_blocks == 1         ? nullptr
                                    : k0 + k < kp           ? weights_at(chunk_begin, k0 + k)
                                    : chunk_end < panel_end ? weights_at(chunk_end, 0)
                                                            : g.next,
                           .bytes = bytes};
      int64_t row_block = 0;
      for (int64_t t = 0, rows; t < g.tokens; t += rows, ++row_block) {
        rows = Micro::next_rows(g.tokens - t);
        Micro::prepare(state, g, t, rows, k0, k);
        Groups groups(chunk_end - chunk_begin, Micro::panels(rows));
        for (int64_t panel = chunk_begin, panels; panel < chunk_end; panel += panels) {
          panels = groups.next();
          char const* const from = weights_at(panel, k0);
          char const* const next = panel + panels < chunk_end             ? from + panels * panel_stride
                                   : g.next != nullptr && row_blocks == 1 ? g.next
                                                                          : from;
          Micro::multiply(state, rows, panels,
                          {.y = g.y + t * g.ldy + panel * kPanel,
                           .ldy = g.ldy,
                           .w = from,
                           .panel_stride = panel_stride,
                           .k = k,
                           .last_columns = std::min<int64_t>(kPanel, w.n - (panel + panels - 1) * kPanel),
                           .start_at_zero = k0 == 0 && !add_to_y,
                           .fetch = plan.of(row_block, from, next, panels)});
        }
      }
      k0 += k;
    } while (k0 < kp);
  }
}

}  // namespace bunting::BUNTING_ISA
