// attention_vector.h - the two products of attention on vector registers: R query rows times N pages (scores)
// or N times 16 dimensions (outputs), all R*N sums in registers, in one of the kinds of arithmetic of
// multiply_add.h. PairBf16 takes queries and probabilities rounded to bf16.
//
//   score<R, N>(t, block, row, page)   scores[r][16 n ..] = q_r . k of the 16 tokens of page n
//   weigh<R, N>(t, block, row, d)      o[r][d ..] = o[r][d ..] * rescale[r] + sum over tokens of p[r][t] *
//                                      v[t][d ..]
//
// 64 bytes of a page's keys are a step over dimensions for its 16 tokens, 64 bytes of its values a step over
// tokens for 16 dimensions (kv_layout.h). Each score is one chain over d, each output element one chain over
// the tokens in rising order, whatever R and N are.
#pragma once

#include <type_traits>

#include "kernels/attention_tile.h"
#include "kernels/multiply_add.h"

namespace bunting::BUNTING_ISA {

// How many rows, and how many f32x16 per row, the register file holds as sums beside the operands.
inline constexpr int kRowsMax = kLanes == 16 ? 8 : kLanes == 8 ? 4 : 2;
inline constexpr int kSumsMax = kLanes == 16 ? 16 : kLanes == 8 ? 4 : 2;
constexpr int sums_per_row(int rows) {
  return kSumsMax / rows >= 4 ? 4 : kSumsMax / rows >= 2 ? 2 : 1;
}

// Queries lie as [D / kStep][rows][kStep] of what the arithmetic takes, probabilities as [rows][64].
template <class A>
struct ProductsOf {
  using Input = typename A::Input;
  static constexpr bool kHalf = std::is_same_v<Input, bf16>;

  static void put_query(AttentionTile const& t, int row, float const* q) {
    Input* const to = reinterpret_cast<Input*>(t.q) + row * A::kStep;
    for (int64_t d = 0; d < t.head_size; d += 16) {
      Input values[16];
      if constexpr (kHalf)
        store_bf16(values, load(q + d));
      else
        store(values, load(q + d));
      for (int64_t i = 0; i < 16; i += A::kStep)
        std::memcpy(to + (d + i) * kTileRows, values + i, A::kStep * sizeof(Input));
    }
  }

  template <int R, int N>
  static BUNTING_INLINE void score(AttentionTile const& t, AttentionBlock const& block, int row, int page) {
    Input const* q = reinterpret_cast<Input const*>(t.q) + row * A::kStep;
    f32x16 sums[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[r][n] = zero();
    for (int64_t at = 0; at < t.head_size / A::kStep * 64; at += 64, q += kTileRows * A::kStep) {
      char const* keys[N];
      for (int n = 0; n < N; ++n) {
        keys[n] = block.k[page + n] + at;
        __builtin_prefetch(block.next_k[page + n] + at);
      }
      step<A>(sums, q, A::kStep, keys);
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
      Input const* p = probabilities(t) + row * kBlockTokens + page * kPageTokens;
      for (int64_t at = d * 4; at < kPageTokens / A::kStep * t.head_size * 4; at += t.head_size * 4) {
        char const* values[N];
        for (int n = 0; n < N; ++n) {
          values[n] = block.v[page] + at + n * 64;
          __builtin_prefetch(block.next_v[page] + at + n * 64);
        }
        step<A>(sums, p, kBlockTokens, values);
        p += A::kStep;
      }
    }
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) store(o + r * t.head_size + n * 16, sums[r][n]);
  }

 private:
  static BUNTING_INLINE Input const* probabilities(AttentionTile const& t) {
    if constexpr (kHalf)
      return t.p;
    else
      return t.scores;
  }
};

// Rows in groups of R, the rest in one smaller group.
template <class A>
struct VectorProducts : ProductsOf<A> {
  using Products = ProductsOf<A>;

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
      for (; page + N <= block.end; page += N) Products::template score<R, N>(t, block, row, page);
      for (; page < block.end; ++page) Products::template score<R, 1>(t, block, row, page);
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
      for (; d + N * 16 <= t.head_size; d += N * 16) Products::template weigh<R, N>(t, block, row, d);
      for (; d < t.head_size; d += 16) Products::template weigh<R, 1>(t, block, row, d);
    }
    if constexpr (R > 1) {
      if (rows > 0) weigh_rows<R - 1>(t, block, row, rows);
    }
  }
};

}  // namespace bunting::BUNTING_ISA
