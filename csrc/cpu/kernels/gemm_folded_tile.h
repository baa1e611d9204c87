// gemm_folded_tile.h - the GEMM micro-kernel for grouped weights in superblocks on AMX tiles of bytes, for
// many rows.
//
// A block of weights is unpacked once for all rows, and the integer scales of groups are multiplied into it:
// scale * q has up to 14 bits, which are two bytes, 2^digit * high + low. So a tile takes in 64 k whatever
// the size of groups, sums of bytes are finished once for kGroupMax k, and the integer that comes out is the
// one of gemm_super.h. Where nothing has a sign the scale is cut into two digits instead of the product into
// two bytes: q times a digit is a byte, so that one multiplication of 16 bits makes two of them. Tiles 0, 1:
// low sums of two tiles of rows; 2, 3: high ones; 4, 5: inputs; 6, 7: weights.
//
// Of 32 rows, a panel and kGroupMax k products take 128 cycles of the tile unit and storing their sums 50
// more. The vector unit limits: of 690 cycles on a Xeon unpacking took 240, and without any tile instruction
// 560 were left. So between products rows of the products before are finished, a part of the next block is
// unpacked (all of it at once: 1.02 to 1.15 times as slow) and lines are fetched: a panel's in one burst took
// as long as everything else.
//
// Loops, outermost first: chunks of panels, blocks of k, blocks of rows, of which the first unpacks the chunk
// and each fetches its part of what is unpacked next, panels, superblocks.
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
  // The product of an integer without a sign and so many bits of its scale is a byte.
  static constexpr int kDigitBits = has_minimum(W) ? 8 - integer_bits(W) : 8;
  static constexpr bool kHasHigh = !has_minimum(W) || weight_format(W).scale_most >> kDigitBits > 0;

  // A superblock of a panel: lines of four k of every column.
  struct Block {
    alignas(64) uint8_t low[kSuper * kPanel];
    alignas(64) uint8_t high[kHasHigh ? kSuper * kPanel : 64];
    f32x16 scale_factors, minimum_factors;
    vi minimums[has_minimum(W) ? kPairs : 1][kRegisters];  // pairs of 16 bits, of two groups each
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
    Block blocks[kChunk][kBlockK / kSuper];
    Rows rows;
    f32x16 sums[kChunk][kRows];
    alignas(64) int32_t dots[2 * kTilesOfRows][kTileRows * kPanel];  // low and high sums
  };

  // Lines to fetch beside products: some with each of them, for a burst would stop everything.
  struct Lines {
    char const* at;
    char const* end;
    int64_t bytes_each;
  };

  // Products of kGroupMax k.
  static constexpr int products_of(int row_tiles) {
    return int(kGroupMax / kTileK) * row_tiles * (kHasHigh ? 2 : 1);
  }

  // A superblock of a panel that becomes a block, a part at a time; without one there is nothing to do.
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

    // kGroup k, the index-th of them.
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

  // A line of weights times their scales, pairs of 16 bits: the scales' digits, or whole and then cut.
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
        if (has_minimum(W) && (kParts<W> > 1 || i % 2 == 0))
          std::memcpy(of.minus_sums + i * kParts<W>, x[i].minus_sums, sizeof x[i].minus_sums);
      }
    }
  }

  // kGroupMax k of a panel, whose products are in dots and belong to some sums; null: there are none.
  struct Products {
    Block const* block;
    int64_t input;  // kGroupMax k of the rows
    f32x16* sums;
  };

  // Makes `products`, and after each of them finishes a part of the rows of those before, which are in dots,
  // and unpacks a part of the block after theirs: its header last, for `before` may need the one in its
  // place.
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

  // sums of rows [first, first + Count) += those products.
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
        // Rounded once, as their sum as an integer would be.
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

  // A chunk of panels and a block of k.
  struct Chunk {
    int64_t begin, panels;
    int64_t k0, k;
    char const* next;  // the first panel of those that are unpacked next
    int64_t lines;     // to fetch of each of them
  };

  // Adds the products of a block of rows, which are gathered, to the sums. With `unpacks` the chunk's blocks
  // are made here, and in two places by turns where none `keeps` them for other rows.
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
