// gemm_tile.h - GEMM micro-kernel on AMX tiles: bf16 times bf16 into f32.
//
// A panel's 32 values of k are one tile of weights as they lie in memory (1 KB). The kernel first copies the
// rows of a block into tiles of 16 rows by 32 k, in reading order. Zero rows fill the last tile. The copy
// costs one pass per chunk of panels. Reading rows of a power-of-two stride in place would evict them from
// the L1 cache all the time.
//
//   up to 16 rows: 1 x 4 tiles of sums with four streams of weights; memory bounds the speed, so the tile's
//                  empty rows cost nothing
//   more rows:     2 x 2 tiles of sums; every loaded tile serves two products
#pragma once

#if defined(__AMX_BF16__) || defined(BUNTING_AMX_EMULATED)

#include "cpu/kernels/amx.h"
#include "cpu/kernels/gemm_block.h"

namespace bunting::BUNTING_ISA {

struct TileBf16 {
  static constexpr int kRows = 32;
  static constexpr int kTileRows = 16, kTileK = 32, kTileBytes = 1024;
  static constexpr int64_t kBlockK = 1024;

  struct State {
    Tiles tiles;
    int64_t rows;
    alignas(64) bf16 x[kRows * kBlockK];  // [tile rows][k / 32][16][32]
  };

  static int64_t k_block(int64_t) { return kBlockK; }
  static int64_t next_rows(int64_t left) { return std::min<int64_t>(left, kRows); }
  static int64_t panels(int64_t rows) { return rows <= kTileRows ? 4 : 2; }

  static void prepare(State& state, Gemm const& g, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    int64_t const padded = round_up(rows, kTileRows);
    for (int64_t r = 0; r < padded; ++r) {
      bf16* to = state.x + r / kTileRows * kTileRows * k + r % kTileRows * kTileK;
      bf16 const* from = static_cast<bf16 const*>(g.x) + (first + r) * g.ldx + k0;
      for (int64_t i = 0; i < k; i += kTileK, to += kTileRows * kTileK) {
        if (r < rows)
          std::memcpy(to, from + i, kTileK * sizeof(bf16));
        else
          std::memset(to, 0, kTileK * sizeof(bf16));
      }
    }
  }

  // A tile of sums in y itself, or in a copy if not all of its 16 x 16 values exist.
  struct Sums {
    float* at;
    int64_t stride;  // in bytes
    alignas(64) float copy[kTileRows * kPanel];
    float* y;
    int64_t ldy, rows, columns;

    Sums(float* y, int64_t ldy, int64_t rows, int64_t columns)
        : at(y), stride(ldy * int64_t(sizeof(float))), y(y), ldy(ldy), rows(rows), columns(columns) {
      if (rows == kTileRows && columns == kPanel) return;
      at = copy;
      stride = kPanel * sizeof(float);
    }
    template <int D>
    void begin(Tiles& tiles, bool at_zero) {
      if (at_zero) return tiles.zero<D>();
      if (at == copy) {
        std::memset(copy, 0, sizeof copy);
        for (int64_t r = 0; r < rows; ++r)
          std::memcpy(copy + r * kPanel, y + r * ldy, size_t(columns) * sizeof(float));
      }
      tiles.load<D>(at, stride);
    }
    template <int S>
    void end(Tiles const& tiles) {
      tiles.store<S>(at, stride);
      if (at == copy)
        for (int64_t r = 0; r < rows; ++r)
          std::memcpy(y + r * ldy, copy + r * kPanel, size_t(columns) * sizeof(float));
    }
  };

  static void multiply(State& state, int64_t rows, int64_t panels, Slice const& s) {
    if (rows > kTileRows) {
      panels == 2 ? two_rows<2>(state, rows, s) : two_rows<1>(state, rows, s);
    } else {
      switch (panels) {
        case 1:
          return one_row<1>(state, rows, s);
        case 2:
          return one_row<2>(state, rows, s);
        case 3:
          return one_row<3>(state, rows, s);
        default:
          return one_row<4>(state, rows, s);
      }
    }
  }

  // Tiles 0-3: sums of N panels; 4: inputs; 5-7: weights, rotating so that loads run ahead of products.
  template <int N>
  static void one_row(State& state, int64_t rows, Slice const& s) {
    Tiles& tiles = state.tiles;
    auto sums = [&](int n) {
      return Sums(s.y + n * kPanel, s.ldy, rows, n + 1 < N ? kPanel : s.last_columns);
    };
    Sums sums0 = sums(0), sums1 = sums(N > 1 ? 1 : 0), sums2 = sums(N > 2 ? 2 : 0),
         sums3 = sums(N > 3 ? 3 : 0);
    sums0.begin<0>(tiles, s.start_at_zero);
    if constexpr (N > 1) sums1.begin<1>(tiles, s.start_at_zero);
    if constexpr (N > 2) sums2.begin<2>(tiles, s.start_at_zero);
    if constexpr (N > 3) sums3.begin<3>(tiles, s.start_at_zero);
    char const* x = reinterpret_cast<char const*>(state.x);
    char const* w = s.w;
    for (int64_t k = 0; k < s.k; k += kTileK, x += kTileBytes, w += kTileBytes) {
      tiles.load<4>(x, 64);
      tiles.load<5>(w, 64);
      tiles.multiply_bf16<0, 4, 5>();
      if constexpr (N > 1) tiles.load<6>(w + s.panel_stride, 64), tiles.multiply_bf16<1, 4, 6>();
      if constexpr (N > 2) tiles.load<7>(w + 2 * s.panel_stride, 64), tiles.multiply_bf16<2, 4, 7>();
      if constexpr (N > 3) tiles.load<5>(w + 3 * s.panel_stride, 64), tiles.multiply_bf16<3, 4, 5>();
    }
    sums0.end<0>(tiles);
    if constexpr (N > 1) sums1.end<1>(tiles);
    if constexpr (N > 2) sums2.end<2>(tiles);
    if constexpr (N > 3) sums3.end<3>(tiles);
  }

  // Tiles 0, 1: sums of the upper rows; 2, 3: of the lower rows; 4, 5: inputs; 6, 7: weights.
  template <int N>
  static void two_rows(State& state, int64_t rows, Slice const& s) {
    Tiles& tiles = state.tiles;
    int64_t const lower = rows - kTileRows;
    float* y_lower = s.y + kTileRows * s.ldy;
    int64_t const columns = N == 1 ? s.last_columns : kPanel;
    Sums sums0(s.y, s.ldy, kTileRows, columns), sums2(y_lower, s.ldy, lower, columns);
    Sums sums1(s.y + (N - 1) * kPanel, s.ldy, kTileRows, s.last_columns);
    Sums sums3(y_lower + (N - 1) * kPanel, s.ldy, lower, s.last_columns);
    sums0.begin<0>(tiles, s.start_at_zero);
    sums2.begin<2>(tiles, s.start_at_zero);
    if constexpr (N > 1) sums1.begin<1>(tiles, s.start_at_zero), sums3.begin<3>(tiles, s.start_at_zero);
    char const* upper_x = reinterpret_cast<char const*>(state.x);
    char const* lower_x = upper_x + kTileRows * s.k * int64_t(sizeof(bf16));
    char const* w = s.w;
    for (int64_t k = 0; k < s.k; k += kTileK, upper_x += kTileBytes, lower_x += kTileBytes, w += kTileBytes) {
      tiles.load<4>(upper_x, 64);
      tiles.load<6>(w, 64);
      tiles.load<5>(lower_x, 64);
      tiles.multiply_bf16<0, 4, 6>();
      tiles.multiply_bf16<2, 5, 6>();
      if constexpr (N > 1) {
        tiles.load<7>(w + s.panel_stride, 64);
        tiles.multiply_bf16<1, 4, 7>();
        tiles.multiply_bf16<3, 5, 7>();
      }
    }
    sums0.end<0>(tiles);
    sums2.end<2>(tiles);
    if constexpr (N > 1) sums1.end<1>(tiles), sums3.end<3>(tiles);
  }
};

}  // namespace bunting::BUNTING_ISA

#endif
