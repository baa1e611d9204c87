// gemm_folded_tile.h - GEMM micro-kernel for grouped weights in superblocks on AMX int8 tiles, for many rows.
//
// The kernel unpacks a block of weights once for all rows and multiplies the integer scales of groups into
// it. scale * q has up to 14 bits, which are split into two bytes, 2^digit * high + low. So one tile
// instruction processes 64 k for every group size. Byte sums are finished only once per kGroupMax k. The
// resulting integer is the one of gemm_super.h. For formats without signs the kernel splits the scale into
// two digits instead of the product into two bytes. There q times a digit is a byte, and one 16-bit
// multiplication makes two of them.
//
//   tiles 0, 1   low sums of two tiles of rows          tiles 4, 5   inputs
//   tiles 2, 3   high sums                              tiles 6, 7   weights
//
// The vector unit, not the tile unit, limits the speed. So between tile products the kernel finishes rows of
// the previous products, unpacks a part of the next block, and prefetches some lines. One burst of prefetches
// would stall everything.
//
// Loops, outermost first: chunks of panels, blocks of k, blocks of rows, panels, superblocks. The first block
// of rows unpacks the chunk. Each block of rows prefetches its part of the weights to unpack next.
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
  static constexpr int64_t kBlockK = 512;  // with kChunk panels: 256 KB of bytes
  static constexpr int64_t kChunk = 16;
  static constexpr int64_t kGroups = kBlockK / weight_group(W), kGroupsOfInput = kGroupMax / weight_group(W);
  static constexpr int64_t kPairs = kSuper / weight_group(W) / 2;
  static constexpr int64_t kInputsOfBlock = kSuper / kGroupMax, kTilesOfInput = kGroupMax / kTileK;
  static constexpr int64_t kPackedBytes = Header::kBytes + kSuper / kGroup * D::kBytes;
  // An unsigned integer times a digit of its scale, this many bits, fits a byte.
  static constexpr int kDigitBits = has_minimum(W) ? 8 - integer_bits(W) : 8;
  static constexpr bool kHasHigh = !has_minimum(W) || weight_format(W).scale_most >> kDigitBits > 0;

  // Unpacked superblock of a panel: lines of four k of every column.
  struct Block {
    alignas(64) uint8_t low[kSuper * kPanel];
    alignas(64) uint8_t high[kHasHigh ? kSuper * kPanel : 64];
    f32x16 scale_factors, minimum_factors;
    vi minimums[has_minimum(W) ? kPairs : 1][kRegisters];  // pairs of 16 bits, each pair from two groups
  };
  // Block of rows: tiles of inputs, zero beyond the last row, and the factors of their products.
  struct Rows {
    alignas(64) int8_t q[kTilesOfRows][kBlockK / kTileK][kTileRows][kTileK];
    struct {
      float scales[kBlockK / kGroupMax];
      int16_t minus_sums[has_minimum(W) ? kGroups : 2];
    } of[kRows];
  };
  struct State {
    Tiles tiles;
    Block blocks[kChunk][kBlockK / kSuper];
    Rows rows;
    f32x16 sums[kChunk][kRows];
    alignas(64) int32_t dots[2 * kTilesOfRows][kTileRows * kPanel];  // low and high sums
  };

  // Lines to prefetch, a few beside each product, because a burst would stall everything.
  struct Lines {
    char const* at;
    char const* end;
    int64_t bytes_each;
  };

  // Tile products per kGroupMax k.
  static constexpr int products_of(int row_tiles) {
    return int(kGroupMax / kTileK) * row_tiles * (kHasHigh ? 2 : 1);
  }

  // Superblock of a panel to unpack into a block, part by part; null `to`: nothing to do.
  struct Unpacking {
    Block* to = nullptr;
    char const* from = nullptr;

    BUNTING_INLINE void header() const {
      if (to == nullptr) return;
      to->scale_factors = Header::factors(from);
      if constexpr (has_minimum(W)) {
        to->minimum_factors = Header::minimum_factors(from);
        for (int64_t pair = 0; pair < kPairs; ++pair) {
          vi even[kRegisters], odd[kRegisters];
          Header::integer_minimums(from, 2 * pair, even);
          Header::integer_minimums(from, 2 * pair + 1, odd);
          for (int i = 0; i < kRegisters; ++i) to->minimums[pair][i] = even[i] | odd[i] << 16;
        }
      }
    }

    // Unpacks the index-th kGroup k.
    BUNTING_INLINE void group(int64_t index) const {
      if (to == nullptr) return;
      constexpr int kPartSteps = kSteps / kParts<W>;
      constexpr int64_t kBytes = kSteps * kIntegerLineBytes;
      char const* const at = from + Header::kBytes + index * D::kBytes;
      uint8_t *const low = to->low + index * kBytes, *const high = to->high + index * (kHasHigh ? kBytes : 0);
#pragma GCC unroll 2
      for (int part = 0; part < kParts<W>; ++part) {
        vi scales[kRegisters];
        Header::integer_scales(from, index * kParts<W> + part, scales);
        for (vi& scale : scales) scale = (scale & 0xffff) | scale << 16;
#pragma GCC unroll 8
        for (int i = 0; i < kPartSteps; ++i) {
          int const step = part * kPartSteps + i;
          fold(D::load(at, step), scales, low + step * kIntegerLineBytes, high + step * kIntegerLineBytes);
        }
      }
    }

    void all() const {
      header();
      for (int64_t index = 0; index < kSuper / kGroup; ++index) group(index);
    }
  };

  // Multiplies a line of weights, pairs of 16 bits, by their scales. The scale is split into digits first, or
  // the product afterwards.
  static BUNTING_INLINE void fold(typename D::Weight const& weight, vi const (&scales)[kRegisters],
                                  uint8_t* low, uint8_t* high) {
    typedef uint16_t vs __attribute__((vector_size(kLanes * 4)));
    constexpr uint32_t kEven = 0x00ff00ff;
    for (int i = 0; i < kRegisters; ++i) {
      vs const pairs = (vs)weight.r[i], scale = (vs)scales[i];
      vs lows, highs;
      if constexpr (has_minimum(W)) {
        lows = pairs * (scale & uint16_t((1 << kDigitBits) - 1));
        highs = pairs * (scale >> kDigitBits);
      } else {
        vs const even = ((vs)(weight.r[i] & kEven) - uint16_t(product_zero(W))) * scale;
        vs const odd = ((pairs >> 8) - uint16_t(product_zero(W))) * scale;
        lows = (vs)((vu)even & kEven) | odd << 8;
        highs = even >> 8 | (vs)((vu)odd & ~kEven);
      }
      std::memcpy(low + i * sizeof lows, &lows, sizeof lows);
      if constexpr (kHasHigh) std::memcpy(high + i * sizeof highs, &highs, sizeof highs);
    }
  }

  // Gathers k numbers of rows [first, first + rows) from k0 on.
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
        if (has_minimum(W) && (kParts<W> > 1 || i % 2 == 0))
          std::memcpy(of.minus_sums + i * kParts<W>, x[i].minus_sums, sizeof x[i].minus_sums);
      }
    }
  }

  // Products of kGroupMax k of a panel, which are in dots, and the sums to which they belong; null block:
  // none.
  struct Products {
    Block const* block;
    int64_t input;  // index of kGroupMax k of the rows
    f32x16* sums;
  };

  // Computes `products`. After each tile product it finishes some rows of the products before, whose results
  // are in dots, and unpacks a part of the following block. It unpacks the header last, because `before` may
  // still need the old one.
  template <int RowTiles>
  static BUNTING_INLINE void multiply_tiles(State& state, Products const& products, Products const& before,
                                            Unpacking const& after, Lines& fetch) {
    constexpr int kRowsAtOnce = RowTiles * kTileRows / products_of(RowTiles);
    Tiles& tiles = state.tiles;
    tiles.template zero<0>();
    if constexpr (RowTiles > 1) tiles.template zero<1>();
    if constexpr (kHasHigh) tiles.template zero<2>();
    if constexpr (kHasHigh && RowTiles > 1) tiles.template zero<3>();
    int64_t row = 0;
    auto const finish_some = [&]() __attribute__((always_inline)) {
      char const* const to = std::min(fetch.at + fetch.bytes_each, fetch.end);
      for (; fetch.at < to; fetch.at += kLine) __builtin_prefetch(fetch.at, 0, 2);
      if (before.sums != nullptr) finish<kRowsAtOnce>(state, before, row);
      row += kRowsAtOnce;
    };
    for (int64_t i = 0; i < kTilesOfInput; ++i) {
      int64_t const at = products.input * kTilesOfInput + i;
      int64_t const tile = products.input % kInputsOfBlock * kTilesOfInput + i, line = tile * kTileBytes;
      tiles.template load<4>(state.rows.q[0][at], kTileK);
      tiles.template load<6>(products.block->low + line, 64);
      tiles.template multiply_int8<0, 4, 6>();
      finish_some();
      after.group(tile * 2);
      if constexpr (RowTiles > 1) {
        tiles.template load<5>(state.rows.q[1][at], kTileK);
        tiles.template multiply_int8<1, 5, 6>();
        finish_some();
      }
      if constexpr (kHasHigh) {
        tiles.template load<7>(products.block->high + line, 64);
        multiply_high<2, 4>(tiles);
        finish_some();
      }
      if constexpr (kHasHigh && RowTiles > 1) {
        multiply_high<3, 5>(tiles);
        finish_some();
      }
      after.group(tile * 2 + 1);
    }
    if (products.input % kInputsOfBlock == kInputsOfBlock - 1) after.header();
    tiles.template store<0>(state.dots[0], kPanel * 4);
    if constexpr (RowTiles > 1) tiles.template store<1>(state.dots[1], kPanel * 4);
    if constexpr (kHasHigh) tiles.template store<2>(state.dots[2], kPanel * 4);
    if constexpr (kHasHigh && RowTiles > 1) tiles.template store<3>(state.dots[3], kPanel * 4);
  }

  template <int D, int A>
  static BUNTING_INLINE void multiply_high(Tiles& tiles) {
    if constexpr (has_minimum(W))
      tiles.template multiply_int8<D, A, 7>();
    else
      tiles.template multiply_signed_int8<D, A, 7>();
  }

  // Adds those products to the sums of rows [first, first + Count).
  template <int Count>
  static BUNTING_INLINE void finish(State const& state, Products const& products, int64_t first) {
    constexpr int kPairsOfInput = int(kGroupsOfInput) / 2;
    auto const& [block, input, sums] = products;
    auto const* const minimums = block->minimums + input % kInputsOfBlock * kPairsOfInput;
    f32x16 const scale_factors = block->scale_factors;
    f32x16 const minimum_factors = has_minimum(W) ? block->minimum_factors : zero();
    for (int64_t r = first; r < first + Count; ++r) {
      int32_t const* const low = state.dots[0] + r * kPanel;
      int32_t const* const high = state.dots[kTilesOfRows] + r * kPanel;
      auto const& of = state.rows.of[r];
      f32x16 product, minimum;
      for (int i = 0; i < kRegisters; ++i) {
        product.r[i] = floats_at(low + i * kLanes);
        // Rounds once, as a sum of integers would.
        if constexpr (kHasHigh)
          product.r[i] = fma(floats_at(high + i * kLanes), float(1 << kDigitBits) - vf{}, product.r[i]);
        vi sum{};
        for (int pair = 0; pair < kPairsOfInput && has_minimum(W); ++pair) {
          int32_t two;
          std::memcpy(&two, of.minus_sums + input * kGroupsOfInput + 2 * pair, sizeof two);
          sum = add_pairs(sum, minimums[pair][i], broadcast(two));
        }
        minimum.r[i] = __builtin_convertvector(sum, vf);
      }
      if constexpr (has_minimum(W))
        product = fma(product, scale_factors, minimum * minimum_factors);
      else
        product = product * scale_factors;
      sums[r] = fma(product, set1(of.scales[input]), sums[r]);
    }
  }

  static BUNTING_INLINE vf floats_at(int32_t const* integers) {
    vi v;
    std::memcpy(&v, integers, sizeof v);
    return __builtin_convertvector(v, vf);
  }

  // Chunk of panels and block of k.
  struct Chunk {
    int64_t begin, panels;
    int64_t k0, k;
    char const* next;  // first panel to unpack next
    int64_t lines;     // lines to prefetch per panel
  };

  // Adds the products of a gathered block of rows to the sums. `unpacks`: it makes the chunk's blocks.
  // Without `keeps` it alternates between two buffers, because no other rows need the blocks.
  template <int RowTiles>
  static void multiply_rows(State& state, PackedMatrix const& w, Chunk const& chunk, bool unpacks,
                            bool keeps) {
    Products before{};
    int64_t const depth = chunk.k / kSuper, blocks = chunk.panels * depth, panel_bytes = w.panel_bytes();
    int64_t const products = depth * kInputsOfBlock * products_of(RowTiles);
    int64_t const bytes_each = (chunk.lines + products - 1) / products * kLine;
    char const* const first = w.panel(chunk.begin) + w.depth_bytes(chunk.k0);
    auto const unpacking = [&](int64_t index) -> Unpacking {
      return {keeps ? &state.blocks[index / depth][index % depth] : &state.blocks[0][index % 2],
              first + index / depth * panel_bytes + index % depth * kPackedBytes};
    };
    if (unpacks) unpacking(0).all();
    Lines fetch{};
    for (int64_t index = 0; index < blocks; ++index) {
      int64_t const panel = index / depth, first_input = index % depth * kInputsOfBlock;
      if (first_input == 0) {
        char const* const next = chunk.next + panel * panel_bytes;
        fetch = {next, next + chunk.lines * kLine, bytes_each};
      }
      Unpacking const after = unpacks && index + 1 < blocks ? unpacking(index + 1) : Unpacking{};
      for (int64_t input = first_input; input < first_input + kInputsOfBlock; ++input) {
        Products const these{unpacking(index).to, input, state.sums[panel]};
        multiply_tiles<RowTiles>(state, these, before, after, fetch);
        before = these;
      }
    }
    finish<RowTiles * kTileRows>(state, before, 0);
  }

  static void multiply(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
    PackedMatrix const& w = *g.w;
    bool const add_to_y = g.accumulate || g.bias != nullptr;
    if (g.bias != nullptr) begin_with_bias(g, panel_begin, panel_end);
    int64_t const row_blocks = (g.tokens + kRows - 1) / kRows;
    State state;
    for (int64_t begin = panel_begin; begin < panel_end; begin += kChunk) {
      int64_t const panels = std::min(kChunk, panel_end - begin);
      for (int64_t k0 = 0; k0 < w.kp(); k0 += kBlockK) {
        int64_t const k = std::min(kBlockK, w.kp() - k0);
        char const* const next = k0 + k < w.kp()              ? w.panel(begin) + w.depth_bytes(k0 + k)
                                 : begin + panels < panel_end ? w.panel(begin + panels)
                                 : g.next != nullptr          ? g.next
                                                              : w.panel(begin);
        int64_t const lines = next == w.panel(begin) ? 0 : w.depth_bytes(k) / kLine;
        for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
          int64_t const t = row_block * kRows, rows = std::min<int64_t>(kRows, g.tokens - t);
          // Sums wait in y while other rows pass.
          auto const each_sum = [&](auto const& move) __attribute__((always_inline)) {
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t i = 0; i < panels; ++i) {
                int64_t const column = (begin + i) * kPanel;
                move(state.sums[i][r], g.y + (t + r) * g.ldy + column,
                     std::min<int64_t>(kPanel, w.n - column));
              }
          };
          if (k0 == 0 || row_blocks > 1) {
            for (auto& sums : state.sums) std::fill_n(sums, kRows, zero());
            if (k0 > 0 || add_to_y)
              each_sum([](f32x16& sum, float const* y, int64_t columns) { sum = load_first(y, columns); });
          }
          gather(state.rows, g, t, rows, k0, k);
          int64_t const line = row_block * lines / row_blocks;
          Chunk const chunk{
              begin, panels, k0, k, next + line * kLine, (row_block + 1) * lines / row_blocks - line};
          auto const multiply_block = rows > kTileRows ? multiply_rows<2> : multiply_rows<1>;
          multiply_block(state, w, chunk, row_block == 0, row_blocks > 1);
          if (k0 + k == w.kp() || row_blocks > 1)
            each_sum([](f32x16 const& sum, float* y, int64_t columns) { store_first(y, sum, columns); });
        }
      }
    }
  }
};

}  // namespace bunting::BUNTING_ISA

#endif
