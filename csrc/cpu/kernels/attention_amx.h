// attention_amx.h - the two products of attention on AMX tiles, with queries and probabilities rounded to
// bf16, 16 rows at a time.
//
// A page's keys are AMX tiles as they lie in memory: a tile has 32 dimensions of 16 tokens. If D is an odd
// multiple of 16, the last 16 dimensions are half a tile. A page's values are half tiles: 16 tokens deep, 16
// dimensions each.
//
//   tiles 0-3   sums of four pages, or of four times 16 dimensions
//   tiles 4, 5  queries and keys, whole;   tiles 6, 7   halves of queries and keys, or probabilities and
//               values
//
// Rows beyond the last one may hold any bits, because rows of a tile do not mix.
#pragma once

#if defined(__AMX_BF16__) || defined(BUNTING_AMX_EMULATED)

#include "cpu/kernels/amx.h"
#include "cpu/kernels/attention_tile.h"

namespace bunting::BUNTING_ISA {

struct TileProducts {
  static constexpr bool kTakesInt8 = false;

  HalfTiles tiles;

  // Stores queries as [rows][D] bf16.
  static void put_query(AttentionTile const& t, int row, float const* q) {
    bf16* const to = reinterpret_cast<bf16*>(t.q) + row * t.head_size;
    for (int64_t i = 0; i < t.head_size; i += 16) store_bf16(to + i, load(q + i));
  }

  static BUNTING_INLINE void put_probabilities(AttentionTile const& t, int row, int first, int end,
                                               f32x16 const (&p)[kBlockPages]) {
    for (int page = first; page < end; ++page)
      store_bf16(t.p + row * kBlockTokens + page * kPageTokens, p[page]);
  }

  void score(AttentionTile const& t, AttentionBlock const& block, int rows) {
    for (int row = 0; row < rows; row += 16) {
      switch (block.end - block.first) {
        case 1:
          score_pages<1>(t, block, row);
          break;
        case 2:
          score_pages<2>(t, block, row);
          break;
        case 3:
          score_pages<3>(t, block, row);
          break;
        default:
          score_pages<4>(t, block, row);
      }
    }
  }

  void weigh(AttentionTile const& t, AttentionBlock const& block, int rows) {
    for (int r = 0; r < rows; ++r) {
      float* const o = t.o + r * t.value_size;
      f32x16 const rescale = set1(t.rescale[r]);
      for (int64_t d = 0; d < t.value_size; d += 16) store(o + d, load(o + d) * rescale);
    }
    for (int row = 0; row < rows; row += 16) {
      for (int64_t d = 0; d < t.value_size; d += 64) {
        switch ((t.value_size - d) / 16) {
          case 1:
            weigh_dimensions<1>(t, block, row, d);
            break;
          case 2:
            weigh_dimensions<2>(t, block, row, d);
            break;
          case 3:
            weigh_dimensions<3>(t, block, row, d);
            break;
          default:
            weigh_dimensions<4>(t, block, row, d);
        }
      }
    }
  }

 private:
  template <int N>
  void score_pages(AttentionTile const& t, AttentionBlock const& block, int row) {
    char const* const q = t.q + row * t.head_size * 2;
    int64_t const q_stride = t.head_size * 2;
    char const* const* const k = block.k + block.first;
    zero_sums<N>();
    int64_t d = 0;
    for (; d + 32 <= t.head_size; d += 32) {
      tiles.load<4>(q + d * 2, q_stride);
      tiles.load<5>(k[0] + d * 32, 64);
      tiles.multiply_bf16<0, 4, 5>();
      if constexpr (N > 1) tiles.load<5>(k[1] + d * 32, 64), tiles.multiply_bf16<1, 4, 5>();
      if constexpr (N > 2) tiles.load<5>(k[2] + d * 32, 64), tiles.multiply_bf16<2, 4, 5>();
      if constexpr (N > 3) tiles.load<5>(k[3] + d * 32, 64), tiles.multiply_bf16<3, 4, 5>();
    }
    if (d < t.head_size) {
      tiles.load<6>(q + d * 2, q_stride);
      tiles.load<7>(k[0] + d * 32, 64);
      tiles.multiply_bf16<0, 6, 7>();
      if constexpr (N > 1) tiles.load<7>(k[1] + d * 32, 64), tiles.multiply_bf16<1, 6, 7>();
      if constexpr (N > 2) tiles.load<7>(k[2] + d * 32, 64), tiles.multiply_bf16<2, 6, 7>();
      if constexpr (N > 3) tiles.load<7>(k[3] + d * 32, 64), tiles.multiply_bf16<3, 6, 7>();
    }
    float* const to = t.scores + row * kBlockTokens + block.first * kPageTokens;
    store_sums<N>(to, kPageTokens, kBlockTokens * 4);
    // Prefetches the next block's pages while this block's scores pass the softmax.
    for (int n = block.first; n < block.end; ++n)
      for (int64_t at = 0; at < t.head_size * 32; at += 64) __builtin_prefetch(block.next_k[n] + at);
  }

  template <int N>
  void weigh_dimensions(AttentionTile const& t, AttentionBlock const& block, int row, int64_t d) {
    float* const o = t.o + row * t.value_size + d;
    int64_t const stride = t.value_size * 4;
    tiles.load<0>(o, stride);
    if constexpr (N > 1) tiles.load<1>(o + 16, stride);
    if constexpr (N > 2) tiles.load<2>(o + 32, stride);
    if constexpr (N > 3) tiles.load<3>(o + 48, stride);
    for (int page = block.first; page < block.end; ++page) {
      char const* const v = block.v[page] + d * 4;
      tiles.load<6>(t.p + row * kBlockTokens + page * kPageTokens, kBlockTokens * 2);
      tiles.load<7>(v, stride);
      tiles.multiply_bf16<0, 6, 7>();
      if constexpr (N > 1) tiles.load<7>(v + 64, stride), tiles.multiply_bf16<1, 6, 7>();
      if constexpr (N > 2) tiles.load<7>(v + 128, stride), tiles.multiply_bf16<2, 6, 7>();
      if constexpr (N > 3) tiles.load<7>(v + 192, stride), tiles.multiply_bf16<3, 6, 7>();
      for (int64_t pair = 0; pair < kPageTokens / 2; ++pair)
        for (int n = 0; n < N; ++n)
          __builtin_prefetch(block.next_v[page] + (pair * t.value_size + d + n * 16) * 4);
    }
    store_sums<N>(o, 16, stride);
  }

  template <int N>
  void zero_sums() {
    tiles.zero<0>();
    if constexpr (N > 1) tiles.zero<1>();
    if constexpr (N > 2) tiles.zero<2>();
    if constexpr (N > 3) tiles.zero<3>();
  }

  // Stores tile n at `to` + n * `apart` floats, with rows `stride` bytes apart.
  template <int N>
  void store_sums(float* to, int64_t apart, int64_t stride) {
    tiles.store<0>(to, stride);
    if constexpr (N > 1) tiles.store<1>(to + apart, stride);
    if constexpr (N > 2) tiles.store<2>(to + 2 * apart, stride);
    if constexpr (N > 3) tiles.store<3>(to + 3 * apart, stride);
  }
};

}  // namespace bunting::BUNTING_ISA

#endif
