// gemm_grouped_tile.h - GEMM micro-kernel for weights whose groups have one f16 scale each, on AMX int8
// tiles, for many rows.
//
// Weights of 8 bits are tiles as they lie in memory; others are widened to 8 bits. A tile holds 64 k of a
// group of 128, or the 32 k of a smaller group. Vector registers finish the sums of a group in the order of
// gemm_grouped.h, so the bits are the same.
//
//   tiles 0 .. 3: integer sums of 2 x 2;   4, 5: inputs;   6, 7: weights
//
// Finishing a group costs the vector unit about as many cycles as its products cost the tile unit, or more in
// groups of 32. So the kernel finishes rows of the previous group between tile products.
#pragma once

#if defined(BUNTING_AMX_EMULATED) || defined(__AMX_INT8__)
#define BUNTING_HAS_INT8_TILES

#include <type_traits>

#include "cpu/kernels/amx.h"
#include "cpu/kernels/gemm_grouped.h"

namespace bunting::BUNTING_ISA {

// Rows up to which the vector unit keeps up with memory. The tile kernel alone is faster from fewer rows of
// int8 on. But it gathers its inputs for every piece of a matrix, which does not pay with few panels.
template <Dtype W>
inline constexpr int64_t kTileRowsLeast = weight_group(W) == kGroupMax ? kWideRows : 8;

template <Dtype W>
struct GroupedTiles {
  using D = Dot<W>;
  static constexpr int kRows = 32, kTileRows = 16, kTilesOfRows = kRows / kTileRows, kPanels = 2;
  static constexpr int64_t kBlockK = 1024;
  static_assert(kBlockK % (2 * kGroupMax) == 0, "whole blocks");
  static constexpr int64_t kGroupK = weight_group(W), kTileK = kGroupK == kGroup ? kGroup : 2 * kGroup;
  static constexpr int64_t kGroupTiles = kGroupK / kTileK;
  static constexpr int64_t kTileBytes = kTileK / kGroup * D::kBytes;  // bytes of a tile's weights in memory
  // Groups of weights that share a scale of the inputs: their products are added up before that scale
  // multiplies them.
  static constexpr int64_t kGroupsTogether = kInputsTogether<W> / kWeightsTogether<W>;

  struct State {
    std::conditional_t<kTileK == kGroup, HalfDepthTiles, Tiles> tiles;
    // Inputs of a block of rows, zero beyond the last row.
    alignas(64) int8_t q[kTilesOfRows][kBlockK / kTileK][kTileRows][kTileK];
    float scale[kBlockK / kGroupK][kRows];
    int32_t excess[kBlockK / kGroupK][kRows];  // excess of sums of unsigned weights, negated
    alignas(64) int32_t dots[kPanels][kRows * kPanel];
    alignas(64) uint8_t widened[kPanels][kTileK * kPanel];
  };

  static int64_t k_block(int64_t) { return kBlockK; }
  static int64_t next_rows(int64_t left) { return std::min<int64_t>(left, kRows); }
  static int64_t panels(int64_t) { return kPanels; }

  static void prepare(State& state, Gemm const& g, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    for (int64_t r = 0; r < round_up(rows, kTileRows); ++r) {
      InputGroup const* const x = static_cast<InputGroup const*>(g.x) + (first + r) * g.ldx + k0 / kGroup;
      for (int64_t i = 0; i < k / kGroup; ++i) {
        InputGroup const from = r < rows ? x[i] : InputGroup{};
        int64_t const at = i * kGroup / kTileK, group = i * kGroup / kGroupK;
        std::memcpy(state.q[r / kTileRows][at][r % kTileRows] + i * kGroup % kTileK, from.q, kGroup);
        state.scale[group][r] = from.scale;
        state.excess[group][r] = from.minus_sum * product_zero(W);
      }
    }
  }

  static void multiply(State& state, int64_t rows, int64_t panels, Slice const& s) {
    if (rows > kTileRows)
      panels == 2 ? block<2, 2>(state, rows, s) : block<2, 1>(state, rows, s);
    else
      panels == 2 ? block<1, 2>(state, rows, s) : block<1, 1>(state, rows, s);
  }

  // Returns kTileK of weights as a tile: in place, or widened.
  static BUNTING_INLINE char const* tile_of(State& state, char const* values, int panel) {
    if constexpr (integer_bits(W) == 8) return values;
    uint8_t* const to = state.widened[panel];
#pragma GCC unroll 16
    for (int step = 0; step < kTileK / 4; ++step) {
      auto const weight = D::load(values + step / kSteps * D::kBytes, step % kSteps);
      static_assert(sizeof weight == kIntegerLineBytes);
      std::memcpy(to + step * kIntegerLineBytes, &weight, sizeof weight);
    }
    return reinterpret_cast<char const*>(to);
  }

  // Sums of rows in y, and the products of groups that share a scale of the inputs.
  template <int RowTiles, int N>
  struct Sums {
    f32x16 of[RowTiles * kTileRows][N], products[kGroupsTogether > 1 ? RowTiles* kTileRows : 1][N];
  };
  // A group whose integer sums are in dots, and the place of its weights' scales.
  struct Group {
    int64_t index;
    char const* scales;
    bool begins_input, ends_input;
  };

  // Adds the group's products to rows [first, first + Count).
  template <int Count, class Sums, int N>
  static BUNTING_INLINE void finish(State const& state, Group const& group, f32x16 const (&scales)[N],
                                    int64_t first, Sums& sums) {
    for (int64_t r = first; r < first + Count; ++r) {
      f32x16 const scale = set1(state.scale[group.index][r]);
      for (int n = 0; n < N; ++n) {
        f32x16 const integers = to_f32(state.dots[n] + r * kPanel, state.excess[group.index][r]);
        if constexpr (kGroupsTogether == 1) {
          sums.of[r][n] = fma(integers * scales[n], scale, sums.of[r][n]);
        } else {
          f32x16& product = sums.products[r][n];
          product = fma(integers, scales[n], group.begins_input ? zero() : product);
          if (group.ends_input) sums.of[r][n] = fma(product, scale, sums.of[r][n]);
        }
      }
    }
  }

  template <int N>
  static BUNTING_INLINE void load_scales(Group const& group, int64_t panel_stride, f32x16 (&scales)[N]) {
    for (int n = 0; n < N; ++n)
      scales[n] = load_f16(reinterpret_cast<uint16_t const*>(group.scales + n * panel_stride));
  }

  template <int RowTiles, int N>
  static void block(State& state, int64_t rows, Slice const& s) {
    constexpr int kAll = RowTiles * kTileRows;
    // Rows to finish after each tile product of a whole group.
    constexpr int kRowsAtOnce = kAll / int(kGroupTiles * RowTiles * N);
    auto& tiles = state.tiles;
    auto const columns = [&](int n) { return n + 1 < N ? int64_t{kPanel} : s.last_columns; };
    Sums<RowTiles, N> sums;
    for (int64_t r = 0; r < kAll; ++r)
      for (int n = 0; n < N; ++n)
        sums.of[r][n] =
            s.start_at_zero || r >= rows ? zero() : load_first(s.y + r * s.ldy + n * kPanel, columns(n));

    char const *values = s.w, *header = s.w, *fetch = s.fetch.from, *turn = s.w + s.fetch.turn;
    auto const fetch_lines = [&](int64_t lines) __attribute__((always_inline)) {
      if (values >= turn) {
        fetch = s.fetch.after;
        turn = s.w + s.panel_stride;
      }
      char const* const end = fetch + lines * s.fetch.step;
      for (char const* line = fetch; line < end; line += kLine)
        for (int n = 0; n < N; ++n) __builtin_prefetch(line + n * s.panel_stride);
      fetch = end;
    };
    Group before{};
    f32x16 scales[N];
    for (f32x16& scale : scales) scale = zero();
    int64_t const all_tiles = s.k / kTileK;
    for (int64_t at = 0, index = 0; at < all_tiles; ++index) {
      if (index % 2 == 0) {
        header = values;
        fetch_lines(block_header_bytes(W) / kLine);
        values += block_header_bytes(W);
      }
      tiles.template zero<0>();
      if constexpr (RowTiles > 1) tiles.template zero<1>();
      if constexpr (N > 1) tiles.template zero<2>();
      if constexpr (N > 1 && RowTiles > 1) tiles.template zero<3>();
      int64_t row = index > 0 ? 0 : kAll;  // next row to finish
      auto const finish_some = [&]() __attribute__((always_inline)) {
        if (index > 0) finish<kRowsAtOnce>(state, before, scales, row, sums);
        row += kRowsAtOnce;
      };
      for (int64_t const end = std::min(at + kGroupTiles, all_tiles); at < end; ++at, values += kTileBytes) {
        fetch_lines(kTileBytes / kLine);
        tiles.template load<4>(state.q[0][at], kTileK);
        tiles.template load<6>(tile_of(state, values, 0), 64);
        tiles.template multiply_int8<0, 4, 6>();
        finish_some();
        if constexpr (RowTiles > 1) {
          tiles.template load<5>(state.q[1][at], kTileK);
          tiles.template multiply_int8<1, 5, 6>();
          finish_some();
        }
        if constexpr (N > 1) {
          tiles.template load<7>(tile_of(state, values + s.panel_stride, 1), 64);
          tiles.template multiply_int8<2, 4, 7>();
          finish_some();
        }
        if constexpr (N > 1 && RowTiles > 1) {
          tiles.template multiply_int8<3, 5, 7>();
          finish_some();
        }
      }
      while (row < kAll) finish_some();  // after a last group of fewer tiles
      tiles.template store<0>(state.dots[0], kPanel * 4);
      if constexpr (RowTiles > 1) tiles.template store<1>(state.dots[0] + kTileRows * kPanel, kPanel * 4);
      if constexpr (N > 1) tiles.template store<2>(state.dots[1], kPanel * 4);
      if constexpr (N > 1 && RowTiles > 1)
        tiles.template store<3>(state.dots[1] + kTileRows * kPanel, kPanel * 4);
      before = {.index = index,
                .scales = header + index % 2 * kPanel * 2,
                .begins_input = index % kGroupsTogether == 0,
                .ends_input = (index + 1) % kGroupsTogether == 0 || at == all_tiles};
      load_scales(before, s.panel_stride, scales);
    }
    if (all_tiles > 0) finish<kAll>(state, before, scales, 0, sums);
    for (int64_t r = 0; r < rows; ++r)
      for (int n = 0; n < N; ++n) store_first(s.y + r * s.ldy + n * kPanel, sums.of[r][n], columns(n));
  }

  static BUNTING_INLINE f32x16 to_f32(int32_t const* integers, int32_t plus) {
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) {
      vi v;
      std::memcpy(&v, integers + i * kLanes, sizeof v);
      y.r[i] = __builtin_convertvector(v + plus, vf);
    }
    return y;
  }
};

}  // namespace bunting::BUNTING_ISA

#endif
