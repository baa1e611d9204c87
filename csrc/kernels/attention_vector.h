// attention_vector.h - the two products of attention on vector registers: R query rows times N pages (scores)
// or N times 16 dimensions (outputs), all R*N sums in registers.
//
//   PlainF32     f32 keys, values, queries and probabilities
//   WidenedBf16  bf16 keys and values widened to f32 in registers; f32 queries and probabilities
//   PairedBf16   bf16 pairs by VDPBF16PS (AVX512-BF16); queries and probabilities rounded to bf16
//
// A kind says how queries lie (put_query), whether probabilities are rounded (kHalf), and has
//   score<R, N>(t, block, row, page)   scores[r][16 n ..] = q_r . k of the 16 tokens of page n
//   weigh<R, N>(t, block, row, d)      o[r][d ..] = o[r][d ..] * rescale[r] + sum over tokens of p[r][t] *
//   v[t][d ..]
// Each score is one chain over d, each output element one chain over the tokens in rising order, whatever R
// and N are.
#pragma once

#include "kernels/attention_tile.h"
#include "kernels/simd.h"

namespace bunting::BUNTING_ISA {

// How many rows, and how many f32x16 per row, the register file holds as sums beside the operands.
inline constexpr int kRowsMax = kLanes == 16 ? 8 : kLanes == 8 ? 4 : 2;
inline constexpr int kSumsMax = kLanes == 16 ? 16 : kLanes == 8 ? 4 : 2;
constexpr int sums_per_row(int rows) {
  return kSumsMax / rows >= 4 ? 4 : kSumsMax / rows >= 2 ? 2 : 1;
}

// Two neighbouring dimensions of a page's 16 keys, and two neighbouring tokens of 16 dimensions of its
// values.
struct PagesBf16 {
  static BUNTING_INLINE f32x16_pair keys(char const* k, int64_t pair) {
    return load_bf16_pairs(reinterpret_cast<bf16 const*>(k) + pair * 2 * kPageTokens);
  }
  static BUNTING_INLINE f32x16_pair values(char const* v, int64_t pair, int64_t d, int64_t head_size) {
    return load_bf16_pairs(reinterpret_cast<bf16 const*>(v) + (pair * head_size + d) * 2);
  }
  // 16 pairs, from this one on.
  static BUNTING_INLINE void prefetch(char const* elements, int64_t pair) {
    __builtin_prefetch(elements + pair * 4);
  }
};
struct PagesF32 {
  static BUNTING_INLINE f32x16_pair keys(char const* k, int64_t pair) {
    float const* const at = reinterpret_cast<float const*>(k) + pair * 2 * kPageTokens;
    return {load(at), load(at + kPageTokens)};
  }
  static BUNTING_INLINE f32x16_pair values(char const* v, int64_t pair, int64_t d, int64_t head_size) {
    float const* const at = reinterpret_cast<float const*>(v) + pair * 2 * head_size + d;
    return {load(at), load(at + head_size)};
  }
  static BUNTING_INLINE void prefetch(char const* elements, int64_t pair) {
    __builtin_prefetch(elements + pair * 8);
    __builtin_prefetch(elements + pair * 8 + 64);
  }
};

// Queries [D][rows] f32, so that the rows of a dimension lie together.
template <class Pages>
struct WidenedProducts {
  static constexpr bool kHalf = false;

  static void put_query(AttentionTile const& t, int row, float const* q) {
    float* const to = reinterpret_cast<float*>(t.q) + row;
    for (int64_t i = 0; i < t.head_size; ++i) to[i * kTileRows] = q[i];
  }

  template <int R, int N>
  static BUNTING_INLINE void score(AttentionTile const& t, AttentionBlock const& block, int row, int page) {
    float const* const q = reinterpret_cast<float const*>(t.q) + row;
    f32x16 sums[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[r][n] = zero();
    for (int64_t pair = 0; pair < t.head_size / 2; ++pair) {
      float const* const even = q + pair * 2 * kTileRows;
      float const* const odd = even + kTileRows;
      for (int n = 0; n < N; ++n) {
        f32x16_pair const k = Pages::keys(block.k[page + n], pair);
        Pages::prefetch(block.next_k[page + n], pair * kPageTokens);
        for (int r = 0; r < R; ++r) {
          sums[r][n] = fma(set1(even[r]), k.even, sums[r][n]);
          sums[r][n] = fma(set1(odd[r]), k.odd, sums[r][n]);
        }
      }
    }
    float* const to = t.scores + row * kBlockTokens + page * kPageTokens;
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) store(to + r * kBlockTokens + n * kPageTokens, sums[r][n]);
  }

  template <int R, int N>
  static BUNTING_INLINE void weigh(AttentionTile const& t, AttentionBlock const& block, int row, int64_t d) {
    float* const o = t.o + row * t.head_size + d;
    f32x16 sums[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[r][n] = load(o + r * t.head_size + n * 16) * set1(t.rescale[row + r]);
    for (int page = block.first; page < block.end; ++page) {
      for (int64_t pair = 0; pair < kPageTokens / 2; ++pair) {
        float const* const p = t.scores + row * kBlockTokens + page * kPageTokens + pair * 2;
        for (int n = 0; n < N; ++n) {
          f32x16_pair const v = Pages::values(block.v[page], pair, d + n * 16, t.head_size);
          Pages::prefetch(block.next_v[page], pair * t.head_size + d + n * 16);
          for (int r = 0; r < R; ++r) {
            sums[r][n] = fma(set1(p[r * kBlockTokens]), v.even, sums[r][n]);
            sums[r][n] = fma(set1(p[r * kBlockTokens + 1]), v.odd, sums[r][n]);
          }
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) store(o + r * t.head_size + n * 16, sums[r][n]);
  }
};

#if defined(__AVX512BF16__)
// Queries [D/2][rows] pairs of bf16.
struct PairedProducts {
  static constexpr bool kHalf = true;

  static void put_query(AttentionTile const& t, int row, float const* q) {
    uint32_t* const to = reinterpret_cast<uint32_t*>(t.q) + row;
    for (int64_t i = 0; i < t.head_size; i += 16) {
      alignas(32) uint32_t pairs[8];
      store_bf16(reinterpret_cast<bf16*>(pairs), load(q + i));
      for (int64_t j = 0; j < 8; ++j) to[(i / 2 + j) * kTileRows] = pairs[j];
    }
  }

  static BUNTING_INLINE __m512bh load_pairs(void const* from) { return (__m512bh)_mm512_loadu_si512(from); }
  static BUNTING_INLINE __m512bh repeat_pair(void const* from) {
    int32_t pair;
    std::memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  static BUNTING_INLINE f32x16 multiply_add(__m512bh x, __m512bh y, f32x16 sum) {
    return {{_mm512_dpbf16_ps(sum.r[0], x, y)}};
  }

  template <int R, int N>
  static BUNTING_INLINE void score(AttentionTile const& t, AttentionBlock const& block, int row, int page) {
    uint32_t const* const q = reinterpret_cast<uint32_t const*>(t.q) + row;
    f32x16 sums[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[r][n] = zero();
    for (int64_t pair = 0; pair < t.head_size / 2; ++pair) {
      __m512bh k[N];
      for (int n = 0; n < N; ++n) {
        k[n] = load_pairs(block.k[page + n] + pair * 64);
        __builtin_prefetch(block.next_k[page + n] + pair * 64);
      }
      for (int r = 0; r < R; ++r) {
        __m512bh const x = repeat_pair(q + pair * kTileRows + r);
        for (int n = 0; n < N; ++n) sums[r][n] = multiply_add(x, k[n], sums[r][n]);
      }
    }
    float* const to = t.scores + row * kBlockTokens + page * kPageTokens;
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) store(to + r * kBlockTokens + n * kPageTokens, sums[r][n]);
  }

  template <int R, int N>
  static BUNTING_INLINE void weigh(AttentionTile const& t, AttentionBlock const& block, int row, int64_t d) {
    float* const o = t.o + row * t.head_size + d;
    f32x16 sums[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[r][n] = load(o + r * t.head_size + n * 16) * set1(t.rescale[row + r]);
    for (int page = block.first; page < block.end; ++page) {
      for (int64_t pair = 0; pair < kPageTokens / 2; ++pair) {
        __m512bh v[N];
        for (int n = 0; n < N; ++n) {
          int64_t const at = (pair * t.head_size + d + n * 16) * 4;
          v[n] = load_pairs(block.v[page] + at);
          __builtin_prefetch(block.next_v[page] + at);
        }
        bf16 const* const p = t.p + row * kBlockTokens + page * kPageTokens + pair * 2;
        for (int r = 0; r < R; ++r) {
          __m512bh const x = repeat_pair(p + r * kBlockTokens);
          for (int n = 0; n < N; ++n) sums[r][n] = multiply_add(x, v[n], sums[r][n]);
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) store(o + r * t.head_size + n * 16, sums[r][n]);
  }
};
#endif

// Rows in groups of R, the rest in one smaller group.
template <class Kind>
struct VectorProducts : Kind {
  void score(AttentionTile const& t, AttentionBlock const& block, int rows) {
    score_rows<kRowsMax>(t, block, 0, rows);
  }
  void weigh(AttentionTile const& t, AttentionBlock const& block, int rows) {
    weigh_rows<kRowsMax>(t, block, 0, rows);
  }

 private:
  template <int R>
  static void score_rows(AttentionTile const& t, AttentionBlock const& block, int row, int rows) {
    for (; rows >= R; rows -= R, row += R) {
      constexpr int N = sums_per_row(R);
      int page = block.first;
      for (; page + N <= block.end; page += N) Kind::template score<R, N>(t, block, row, page);
      for (; page < block.end; ++page) Kind::template score<R, 1>(t, block, row, page);
    }
    if constexpr (R > 1) {
      if (rows > 0) score_rows<R - 1>(t, block, row, rows);
    }
  }

  template <int R>
  static void weigh_rows(AttentionTile const& t, AttentionBlock const& block, int row, int rows) {
    for (; rows >= R; rows -= R, row += R) {
      constexpr int N = sums_per_row(R);
      int64_t d = 0;
      for (; d + N * 16 <= t.head_size; d += N * 16) Kind::template weigh<R, N>(t, block, row, d);
      for (; d < t.head_size; d += 16) Kind::template weigh<R, 1>(t, block, row, d);
    }
    if constexpr (R > 1) {
      if (rows > 0) weigh_rows<R - 1>(t, block, row, rows);
    }
  }
};

}  // namespace bunting::BUNTING_ISA
