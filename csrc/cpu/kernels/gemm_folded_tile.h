// gemm_folded_tile.h - the GEMM micro-kernel for grouped weights in superblocks on AMX tiles of bytes, for
// many rows.
//
// A block of weights is unpacked once for all rows, and the integer scales of groups are multiplied into it:
// scale * q has up to 14 bits, which are two bytes, 256 * high + low. So a tile takes in 64 k whatever the
// size of groups, sums of bytes are finished once for kGroupMax k, and the integer that comes out is the one
// of gemm_super.h. Tiles 0, 1: low sums of two tiles of rows; 2, 3: high ones; 4, 5: inputs; 6, 7: weights.
//
// Of 32 rows, a panel and kGroupMax k products take 128 cycles of the tile unit, and finishing them some 150
// of the vector unit, in part at the same time: rows of the products before are finished between products.
// Unpacking takes as long as the products of some 40 rows.
//
// Loops, outermost first: chunks of panels; blocks of k; blocks of rows, of which the first unpacks the
// chunk, and each fetches its part of what is unpacked next; panels.
#pragma once

#include "cpu/kernels/gemm_grouped_tile.h"

#if defined(BUNTING_HAS_INT8_TILES)

namespace bunting::BUNTING_ISA {

template <Dtype W>
struct FoldedTiles {
  using D = Dot<W>;
  using Header = BlockHeader<W>;
  static constexpr int kRows = 32, kTileRows = 16, kTilesOfRows = kRows / kTileRows;
  static constexpr int64_t kTileK = 2 * kGroup, kTileBytes = kTileK * kPanel;
  static constexpr int64_t kBlockK = 512;  // with kChunk panels: 128 KB of bytes
  static constexpr int64_t kChunk = 8;
  static constexpr int64_t kGroups = kBlockK / weight_group(W), kGroupsOfInput = kGroupMax / weight_group(W);
  static constexpr bool kHasHigh = !has_minimum(W) || largest_scaled(W) > 255;

  // A block of k of a panel: lines of four k of every column.
  struct Panel {
    alignas(64) uint8_t low[kBlockK * kPanel];
    alignas(64) uint8_t high[kHasHigh ? kBlockK * kPanel : 64];
    struct {
      f32x16 scales, minimums;
    } factors[kBlockK / kSuper];
    vi minimums[has_minimum(W) ? kGroups / 2 : 1][kRegisters];  // pairs of 16 bits, of two groups each
  };
  // A block of rows: tiles of inputs, zero beyond the last row, and what products are multiplied with.
  struct Rows {
    alignas(64) int8_t q[kTilesOfRows][kBlockK / kTileK][kTileRows][kTileK];
    struct {
      float scales[kBlockK / kGroupMax];
      int16_t minus_sums[has_minimum(W) ? kGroups : 2];
    } of[kRows];
  };
  struct State {
    Tiles tiles;
    Panel panels[kChunk];
    Rows rows;
    alignas(64) int32_t dots[2 * kTilesOfRows][kTileRows * kPanel];  // low and high sums
  };

  // k numbers of a panel from `at` on.
  static void unpack(Panel& to, char const* at, int64_t k) {
    constexpr int kPartSteps = kSteps / kParts<W>;
    uint8_t *low = to.low, *high = to.high;
    for (int64_t block = 0; block < k / kSuper; ++block) {
      char const* const header = at;
      at += Header::kBytes;
      to.factors[block].scales = Header::factors(header);
      if constexpr (has_minimum(W)) {
        constexpr int64_t kPairs = kSuper / weight_group(W) / 2;
        to.factors[block].minimums = Header::minimum_factors(header);
        for (int64_t pair = 0; pair < kPairs; ++pair) {
          vi even[kRegisters], odd[kRegisters];
          Header::integer_minimums(header, 2 * pair, even);
          Header::integer_minimums(header, 2 * pair + 1, odd);
          for (int i = 0; i < kRegisters; ++i) to.minimums[block * kPairs + pair][i] = even[i] | odd[i] << 16;
        }
      }
      for (int64_t group = 0; group < kSuper / kGroup; ++group, at += D::kBytes) {
#pragma GCC unroll 2
        for (int part = 0; part < kParts<W>; ++part) {
          vi scales[kRegisters];
          Header::integer_scales(header, group * kParts<W> + part, scales);
          for (vi& scale : scales) scale = (scale & 0xffff) | scale << 16;
#pragma GCC unroll 8
          for (int i = 0; i < kPartSteps; ++i) {
            int const step = part * kPartSteps + i;
            fold(D::load(at, step), scales, low + step * kIntegerLineBytes, high + step * kIntegerLineBytes);
          }
        }
        low += kSteps * kIntegerLineBytes;
        if constexpr (kHasHigh) high += kSteps * kIntegerLineBytes;
      }
    }
  }

  // A line of weights times their scales, pairs of 16 bits.
  static BUNTING_INLINE void fold(typename D::Weight const& weight, vi const (&scales)[kRegisters],
                                  uint8_t* low, uint8_t* high) {
    typedef int16_t vs __attribute__((vector_size(kLanes * 4)));
    constexpr uint32_t kEven = 0x00ff00ff;
    for (int i = 0; i < kRegisters; ++i) {
      vs const scale = (vs)scales[i];
      vs const even = ((vs)(weight.r[i] & kEven) - int16_t(product_zero(W))) * scale;
      vs const odd = ((vs)(weight.r[i] >> 8 & kEven) - int16_t(product_zero(W))) * scale;
      vu const lows = ((vu)even & kEven) | ((vu)odd & kEven) << 8;
      std::memcpy(low + i * sizeof lows, &lows, sizeof lows);
      if constexpr (kHasHigh) {
        vu const highs = ((vu)even >> 8 & kEven) | ((vu)odd & ~kEven);
        std::memcpy(high + i * sizeof highs, &highs, sizeof highs);
      }
    }
  }

  // Rows [first, first + rows) from k0 on, k numbers of each.
  static void gather(Rows& to, Gemm const& g, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    for (int64_t r = 0; r < round_up(rows, kTileRows); ++r) {
      auto* const q = to.q[r / kTileRows];
      auto& of = to.of[r];
      if (r >= rows) {
        for (int64_t at = 0; at < k / kTileK; ++at) std::memset(q[at][r % kTileRows], 0, kTileK);
        of = {};
        continue;
      }
      InputGroup const* const x = static_cast<InputGroup const*>(g.x) + (first + r) * g.ldx + k0 / kGroup;
      for (int64_t i = 0; i < k / kGroup; ++i) {
        std::memcpy(q[i / 2][r % kTileRows] + i % 2 * kGroup, x[i].q, kGroup);
        if (i % kInputGroups == 0) of.scales[i / kInputGroups] = x[i].scale;
        for (int part = 0; part < kParts<W> && has_minimum(W); ++part)
          of.minus_sums[i * kParts<W> + part] =
              kParts<W> > 1 ? x[i].minus_half_sums[part] : int16_t(x[i].minus_sum_f32);
      }
    }
  }

  // The products of kGroupMax k from `input` * kGroupMax on, and after each of them a part of the rows of
  // those before, which are in dots, are finished.
  template <int RowTiles, bool kFinishes>
  static BUNTING_INLINE void multiply_tiles(State& state, Panel const& panel, int64_t input, f32x16* sums) {
    constexpr int kProducts = int(kGroupMax / kTileK) * RowTiles * (kHasHigh ? 2 : 1);
    Tiles& tiles = state.tiles;
    tiles.template zero<0>();
    if constexpr (RowTiles > 1) tiles.template zero<1>();
    if constexpr (kHasHigh) tiles.template zero<2>();
    if constexpr (kHasHigh && RowTiles > 1) tiles.template zero<3>();
    int64_t row = 0;
    auto const finish_some = [&]() __attribute__((always_inline)) {
      constexpr int kRowsAtOnce = RowTiles * kTileRows / kProducts;
      if constexpr (kFinishes) finish<kRowsAtOnce>(state, panel, input - 1, row, sums);
      row += kRowsAtOnce;
    };
    for (int64_t at = input * kGroupMax / kTileK; at < (input + 1) * kGroupMax / kTileK; ++at) {
      tiles.template load<4>(state.rows.q[0][at], kTileK);
      tiles.template load<6>(panel.low + at * kTileBytes, 64);
      tiles.template multiply_int8<0, 4, 6>();
      finish_some();
      if constexpr (RowTiles > 1) {
        tiles.template load<5>(state.rows.q[1][at], kTileK);
        tiles.template multiply_int8<1, 5, 6>();
        finish_some();
      }
      if constexpr (kHasHigh) {
        tiles.template load<7>(panel.high + at * kTileBytes, 64);
        tiles.template multiply_signed_int8<2, 4, 7>();
        finish_some();
      }
      if constexpr (kHasHigh && RowTiles > 1) {
        tiles.template multiply_signed_int8<3, 5, 7>();
        finish_some();
      }
    }
  }

  template <int RowTiles>
  static BUNTING_INLINE void store_tiles(State& state) {
    state.tiles.template store<0>(state.dots[0], kPanel * 4);
    if constexpr (RowTiles > 1) state.tiles.template store<1>(state.dots[1], kPanel * 4);
    if constexpr (kHasHigh) state.tiles.template store<2>(state.dots[2], kPanel * 4);
    if constexpr (kHasHigh && RowTiles > 1) state.tiles.template store<3>(state.dots[3], kPanel * 4);
  }

  // sums of rows [first, first + Count) += those products.
  template <int Count>
  static BUNTING_INLINE void finish(State const& state, Panel const& panel, int64_t input, int64_t first,
                                    f32x16* sums) {
    constexpr int kPairs = int(kGroupsOfInput) / 2;
    auto const& factors = panel.factors[input * kGroupMax / kSuper];
    auto const* const minimums = panel.minimums + input * kPairs;
    for (int64_t r = first; r < first + Count; ++r) {
      int32_t const* const low = state.dots[0] + r * kPanel;
      int32_t const* const high = state.dots[kTilesOfRows] + r * kPanel;
      auto const& of = state.rows.of[r];
      f32x16 product, minimum;
      for (int i = 0; i < kRegisters; ++i) {
        product.r[i] = floats_at(low + i * kLanes);
        // 256 times one and the other: rounded once, as their sum as an integer would be.
        if constexpr (kHasHigh) product.r[i] = fma(floats_at(high + i * kLanes), 256.0f - vf{}, product.r[i]);
        vi sum{};
        for (int pair = 0; pair < kPairs && has_minimum(W); ++pair) {
          int32_t two;
          std::memcpy(&two, of.minus_sums + input * kGroupsOfInput + 2 * pair, sizeof two);
          sum = add_pairs(sum, minimums[pair][i], broadcast(two));
        }
        minimum.r[i] = __builtin_convertvector(sum, vf);
      }
      if constexpr (has_minimum(W))
        product = fma(product, factors.scales, minimum * factors.minimums);
      else
        product = product * factors.scales;
      sums[r] = fma(product, set1(of.scales[input]), sums[r]);
    }
  }

  static BUNTING_INLINE vf floats_at(int32_t const* integers) {
    vi v;
    std::memcpy(&v, integers, sizeof v);
    return __builtin_convertvector(v, vf);
  }

  // sum + the products of pairs of 16 bits.
  static BUNTING_INLINE vi add_pairs(vi sum, vi a, vi b) {
#if defined(__AVX512VNNI__)
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
    return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
  }

  template <int RowTiles>
  static void block(State& state, Panel const& panel, int64_t rows, int64_t columns, int64_t k,
                    bool starts_at_zero, float* y, int64_t ldy) {
    constexpr int kAll = RowTiles * kTileRows;
    f32x16 sums[kAll];
    for (int64_t r = 0; r < kAll; ++r)
      sums[r] = starts_at_zero || r >= rows ? zero() : load_first(y + r * ldy, columns);
    multiply_tiles<RowTiles, false>(state, panel, 0, sums);
    store_tiles<RowTiles>(state);
    int64_t const inputs = k / kGroupMax;
    for (int64_t input = 1; input < inputs; ++input) {
      multiply_tiles<RowTiles, true>(state, panel, input, sums);
      store_tiles<RowTiles>(state);
    }
    finish<kAll>(state, panel, inputs - 1, 0, sums);
    for (int64_t r = 0; r < rows; ++r) store_first(y + r * ldy, sums[r], columns);
  }

  static void multiply(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
    PackedMatrix const& w = *g.w;
    bool const add_to_y = g.accumulate || g.bias != nullptr;
    if (g.bias != nullptr) begin_with_bias(g, panel_begin, panel_end);
    int64_t const row_blocks = (g.tokens + kRows - 1) / kRows;
    State state;
    for (int64_t chunk = panel_begin; chunk < panel_end; chunk += kChunk) {
      int64_t const panels = std::min(kChunk, panel_end - chunk);
      for (int64_t k0 = 0; k0 < w.kp(); k0 += kBlockK) {
        int64_t const k = std::min(kBlockK, w.kp() - k0);
        // Those that are unpacked next.
        char const* const next = k0 + k < w.kp()              ? w.panel(chunk) + w.depth_bytes(k0 + k)
                                 : chunk + panels < panel_end ? w.panel(chunk + panels)
                                                              : g.next;
        int64_t const lines = next == nullptr ? 0 : w.depth_bytes(k) / kLine;
        int64_t row_block = 0;
        for (int64_t t = 0; t < g.tokens; t += kRows, ++row_block) {
          int64_t const rows = std::min<int64_t>(kRows, g.tokens - t);
          gather(state.rows, g, t, rows, k0, k);
          for (int64_t i = 0; i < panels; ++i) {
            for (int64_t line = row_block * lines / row_blocks; line < (row_block + 1) * lines / row_blocks;
                 ++line)
              __builtin_prefetch(next + i * w.panel_bytes() + line * kLine, 0, 2);
            // One block of rows needs no panel twice: each of them then takes the place of the one before.
            Panel& panel = state.panels[row_blocks > 1 ? i : 0];
            if (row_block == 0) unpack(panel, w.panel(chunk + i) + w.depth_bytes(k0), k);
            int64_t const column = (chunk + i) * kPanel;
            auto const block = rows > kTileRows ? FoldedTiles::block<2> : FoldedTiles::block<1>;
            block(state, panel, rows, std::min<int64_t>(kPanel, w.n - column), k, k0 == 0 && !add_to_y,
                  g.y + t * g.ldy + column, g.ldy);
          }
        }
      }
    }
  }
};

}  // namespace bunting::BUNTING_ISA

#endif
