// gemm_grouped_tile.h - the GEMM micro-kernel for grouped weights on AMX tiles of bytes, for many rows.
//
// kGroup k of 16 columns are one tile of half the depth as they lie in memory (8 bits), or are widened to
// one. Its products with 16 rows are finished in vector registers: that order is the one of gemm_grouped.h,
// and so are the bits. Tiles 0 .. 3: integer sums of 2 x 2; 6: inputs; 7: weights.
//
// A group takes 16 cycles of the tile unit, and what shares scales about 25 of the vector unit to be
// finished: with groups of 32 a third of what tiles could do with one scale per row, three times what
// VPDPBUSD does.
#pragma once

#if defined(BUNTING_AMX_EMULATED) || defined(__AMX_INT8__)
#define BUNTING_HAS_INT8_TILES

#include "cpu/kernels/amx.h"
#include "cpu/kernels/gemm_grouped.h"

namespace bunting::BUNTING_ISA {

// Up to so many rows the vector unit keeps up with the memory.
inline constexpr int64_t kTileRowsLeast = 8;

template <Dtype W>
struct GroupedTiles {
  using D = Dot<W>;
  static constexpr int64_t kWeights = kWeightsTogether<W>, kInputs = kInputsTogether<W>;
  static constexpr int kRows = 32;
  static constexpr int64_t kBlockK = 1024;
  static_assert(kBlockK % (2 * kGroupMax) == 0, "whole blocks");
  static constexpr int kTileRows = 16, kTilesOfRows = kRows / kTileRows;

  struct State {
    HalfTiles tiles;
    // Of a block of rows, tile by tile, zero beyond the last row: [row tiles][groups][16 rows]
    alignas(64) int8_t q[kRows * kBlockK];
    float scale[kRows * kBlockK / kGroup];
    int32_t minus_sum[kRows * kBlockK / kGroup];
    alignas(64) int32_t dots[2 * kTilesOfRows][kTileRows * kPanel];
    alignas(64) uint8_t widened[2][kGroup * kPanel];
  };

  static int64_t k_block(int64_t) { return kBlockK; }
  static int64_t next_rows(int64_t left) { return std::min<int64_t>(left, kRows); }
  static int64_t panels(int64_t) { return 2; }

  static void prepare(State& state, Gemm const& g, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    int64_t const groups = k / kGroup, padded = round_up(rows, kTileRows);
    for (int64_t r = 0; r < padded; ++r) {
      InputGroup const* const from = static_cast<InputGroup const*>(g.x) + (first + r) * g.ldx + k0 / kGroup;
      for (int64_t i = 0; i < groups; ++i) {
        int64_t const at = (r / kTileRows * groups + i) * kTileRows + r % kTileRows;
        InputGroup const x = r < rows ? from[i] : InputGroup{};
        std::memcpy(state.q + at * kGroup, x.q, kGroup);
        state.scale[at] = x.scale;
        state.minus_sum[at] = x.minus_sum;
      }
    }
  }

  static void multiply(State& state, int64_t rows, int64_t panels, Slice const& s) {
    if (rows > kTileRows)
      panels == 2 ? block<2, 2>(state, rows, s) : block<2, 1>(state, rows, s);
    else
      panels == 2 ? block<1, 2>(state, rows, s) : block<1, 1>(state, rows, s);
  }

  // kGroup of weights as a tile: where they are, or widened.
  static char const* tile_of(State& state, char const* values, int panel) {
    if constexpr (integer_bits(W) == 8) return values;
    uint8_t* const to = state.widened[panel];
    for (int step = 0; step < kSteps; ++step) {
      auto const weight = D::load(values, step);
      static_assert(sizeof weight == kIntegerLineBytes);
      std::memcpy(to + step * kIntegerLineBytes, &weight, sizeof weight);
    }
    return reinterpret_cast<char const*>(to);
  }

  template <int RowTiles, int N>
  static void block(State& state, int64_t rows, Slice const& s) {
    HalfTiles& tiles = state.tiles;
    int64_t const groups = s.k / kGroup;
    auto const columns = [&](int n) { return n + 1 < N ? int64_t{kPanel} : s.last_columns; };
    f32x16 sums[N][RowTiles * kTileRows], products[N][RowTiles * kTileRows];
    for (int n = 0; n < N; ++n)
      for (int64_t r = 0; r < rows; ++r)
        sums[n][r] = s.start_at_zero ? zero() : load_first(s.y + r * s.ldy + n * kPanel, columns(n));
    char const *values = s.w, *scales_at = s.w;
    for (int64_t group = 0; group < groups; ++group, values += D::kBytes) {
      if (group % kWeights == 0) {
        scales_at += kPanel * 2;
        if (group / kWeights % 2 == 0) {
          scales_at = values;
          values += block_header_bytes(W);
        }
      }
      int8_t const* const upper = state.q + group * kTileRows * kGroup;
      int8_t const* const lower = upper + groups * kTileRows * kGroup;
      if (group % kWeights == 0) {
        tiles.template zero<0>();
        if constexpr (RowTiles > 1) tiles.template zero<1>();
        if constexpr (N > 1) tiles.template zero<2>();
        if constexpr (N > 1 && RowTiles > 1) tiles.template zero<3>();
      }
      tiles.template load<7>(tile_of(state, values, 0), 64);
      tiles.template load<6>(upper, kGroup);
      tiles.template multiply_int8<0, 6, 7>();
      if constexpr (RowTiles > 1) tiles.template load<6>(lower, kGroup);
      if constexpr (RowTiles > 1) tiles.template multiply_int8<1, 6, 7>();
      if constexpr (N > 1) {
        tiles.template load<7>(tile_of(state, values + s.panel_stride, 1), 64);
        if constexpr (RowTiles > 1) tiles.template multiply_int8<3, 6, 7>();
        if constexpr (RowTiles > 1) tiles.template load<6>(upper, kGroup);
        tiles.template multiply_int8<2, 6, 7>();
      }
      if ((group + 1) % kWeights != 0 && group + 1 < groups) continue;
      tiles.template store<0>(state.dots[0], kPanel * 4);
      if constexpr (RowTiles > 1) tiles.template store<1>(state.dots[1], kPanel * 4);
      if constexpr (N > 1) tiles.template store<2>(state.dots[2], kPanel * 4);
      if constexpr (N > 1 && RowTiles > 1) tiles.template store<3>(state.dots[3], kPanel * 4);
      int64_t const first = group / kWeights * kWeights;
      bool const begins_input = first % kInputs == 0;
      bool const ends_input = (group + 1) % kInputs == 0 || group + 1 == groups;
      for (int n = 0; n < N; ++n) {
        f32x16 const scales = load_f16(reinterpret_cast<uint16_t const*>(scales_at + n * s.panel_stride));
        for (int64_t r = 0; r < rows; ++r) {
          int64_t const at = (r / kTileRows * groups + group) * kTileRows + r % kTileRows;
          int32_t const* const dots = state.dots[n * kTilesOfRows + r / kTileRows] + r % kTileRows * kPanel;
          f32x16 const integers = to_f32(dots, state.minus_sum[at] * product_zero(W));
          f32x16& product = products[n][r];
          product = fma(integers, scales, begins_input ? zero() : product);
          if (ends_input) sums[n][r] = fma(product, set1(state.scale[at]), sums[n][r]);
        }
      }
    }
    for (int n = 0; n < N; ++n)
      for (int64_t r = 0; r < rows; ++r) store_first(s.y + r * s.ldy + n * kPanel, sums[n][r], columns(n));
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
