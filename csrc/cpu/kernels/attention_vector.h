// attention_vector.h - the two products of attention on vector registers: R query rows times N pages (scores)
// or N times 16 dimensions (outputs). All R*N sums are in registers. The arithmetic is one of the kinds of
// multiply_add.h. PairBf16 uses queries and probabilities rounded to bf16. PairInt8 uses both as 16-bit
// integers: a row's query in steps of 1/32,767 of its largest magnitude. The probabilities of a block, times
// the scales of the values, are rounded the same way. Sums are then exact within a block.
//
//   score<R, N>(t, block, row, page)   scores[r][16 n ..] = q_r . k of the 16 tokens of page n
//   weigh<R, N>(t, block, row, d)      o[r][d ..] = o[r][d ..] * rescale[r] + sum over tokens of p[r][t] *
//                                      v[t][d ..]
//
// Each kStepBytes of a page's keys are one step over dimensions for its 16 tokens. Each kStepBytes of its
// values are one step over tokens for 16 dimensions (kv_layout.h). Each score is one chain over d, and each
// output element is one chain over the tokens in rising order, for every R and N.
#pragma once

#include <type_traits>

#include "cpu/kernels/attention_tile.h"
#include "cpu/kernels/multiply_add.h"

namespace bunting::BUNTING_ISA {

// Numbers of rows, and of f32x16 per row, that the register file holds as sums beside the operands. Each
// multiply-add waits four cycles for its sum, and two start per cycle. So eight registers of sums, of the
// sixteen of AVX2, would leave no slack.
inline constexpr int kRowsMax = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 2;
inline constexpr int kSumsMax = kLanes == 16 ? 16 : kLanes == 8 ? 6 : 2;
constexpr int sums_per_row(int rows) {
  return kSumsMax / rows >= 4 ? 4 : kSumsMax / rows >= 2 ? 2 : 1;
}

#if defined(__AVX512VNNI__)
// Stores x * by as 16-bit integers, rounded to nearest even; too large values saturate.
BUNTING_INLINE void store_int16(int16_t* p, f32x16 x, f32x16 by) {
  // The mask selects all sixteen lanes: g++ 12 implements the unmasked forms with reads of uninitialised
  // lanes.
  __m512i const integers = _mm512_maskz_cvtps_epi32(0xffff, (x * by).r[0]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtsepi32_epi16(0xffff, integers));
}
#endif

// Common part of all kinds: queries are [D / kStep][rows][kStep] of the kind's input type, probabilities
// [rows][64].
template <class A>
struct ProductsOf {
  using Input = typename A::Input;
  using Sum = typename A::Sum;
  static constexpr bool kTakesInt8 = A::kStepBytes == 32;
  static constexpr bool kIntegers = std::is_same_v<Input, int16_t>;

  static void put_query(AttentionTile const& t, int row, float const* q) {
    Input* const to = reinterpret_cast<Input*>(t.q) + row * A::kStep;
    f32x16 to_integers = zero();
    if constexpr (kIntegers) {
      f32x16 largest = zero();
      for (int64_t d = 0; d < t.head_size; d += 16) largest = max(magnitude(load(q + d)), largest);
      to_integers = integers_of(max(largest), t.q_scale + row);
    }
    for (int64_t d = 0; d < t.head_size; d += 16) {
      Input values[16];
      put(values, load(q + d), to_integers);
      for (int64_t i = 0; i < 16; i += A::kStep)
        std::memcpy(to + (d + i) * kTileRows, values + i, A::kStep * sizeof(Input));
    }
  }

  // Stores the row's probabilities of pages [first, end) of a block.
  static BUNTING_INLINE void put_probabilities(AttentionTile const& t, int row, int first, int end,
                                               f32x16 const (&p)[kBlockPages]) {
    f32x16 to_integers = zero();
    if constexpr (kIntegers) {
      f32x16 largest = p[first];
      for (int page = first + 1; page < end; ++page) largest = max(p[page], largest);
      to_integers = integers_of(max(largest), t.p_scale + row);
    }
    for (int page = first; page < end; ++page)
      put(probabilities(t) + row * kBlockTokens + page * kPageTokens, p[page], to_integers);
  }

  template <int R, int N>
  static BUNTING_INLINE void score(AttentionTile const& t, AttentionBlock const& block, int row, int page) {
    Input const* q = reinterpret_cast<Input const*>(t.q) + row * A::kStep;
    Sum sums[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) sums[r][n] = Sum{};
    for (int64_t at = 0; at < t.head_size / A::kStep * A::kStepBytes; at += A::kStepBytes) {
      char const* keys[N];
      for (int n = 0; n < N; ++n) {
        keys[n] = block.k[page + n] + at;
        __builtin_prefetch(block.next_k[page + n] + at);
      }
      step<A>(sums, q, A::kStep, keys);
      q += kTileRows * A::kStep;
    }
    float* const to = t.scores + row * kBlockTokens + page * kPageTokens;
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) {
        f32x16 scores;
        if constexpr (kIntegers)
          scores = to_f32(sums[r][n]) * set1(t.q_scale[row + r]);
        else
          scores = sums[r][n];
        store(to + r * kBlockTokens + n * kPageTokens, scores);
      }
  }

  template <int R, int N>
  static BUNTING_INLINE void weigh(AttentionTile const& t, AttentionBlock const& block, int row, int64_t d) {
    float* const o = t.o + row * t.value_size + d;
    auto const rescaled = [&](int r, int n) __attribute__((always_inline)) {
      return load(o + r * t.value_size + n * 16) * set1(t.rescale[row + r]);
    };
    Sum sums[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) {
        if constexpr (kIntegers)
          sums[r][n] = Sum{};
        else
          sums[r][n] = rescaled(r, n);
      }
    for (int page = block.first; page < block.end; ++page) {
      Input const* p = probabilities(t) + row * kBlockTokens + page * kPageTokens;
      int64_t const row_bytes = t.value_size / 16 * A::kStepBytes;
      for (int64_t at = d / 16 * A::kStepBytes; at < kPageTokens / A::kStep * row_bytes; at += row_bytes) {
        char const* values[N];
        for (int n = 0; n < N; ++n) {
          values[n] = block.v[page] + at + n * A::kStepBytes;
          __builtin_prefetch(block.next_v[page] + at + n * A::kStepBytes);
        }
        step<A>(sums, p, kBlockTokens, values);
        p += A::kStep;
      }
    }
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) {
        f32x16 sum;
        if constexpr (kIntegers)
          sum = fma(to_f32(sums[r][n]), set1(t.p_scale[row + r]), rescaled(r, n));
        else
          sum = sums[r][n];
        store(o + r * t.value_size + n * 16, sum);
      }
  }

 private:
  static BUNTING_INLINE Input* probabilities(AttentionTile const& t) {
    if constexpr (sizeof(Input) == 2)
      return reinterpret_cast<Input*>(t.p);
    else
      return t.scores;
  }

  // Stores sixteen numbers in the kind's input type.
  static BUNTING_INLINE void put(Input* to, f32x16 x, [[maybe_unused]] f32x16 to_integers) {
#if defined(__AVX512VNNI__)
    if constexpr (kIntegers) return store_int16(to, x, to_integers);
#endif
    if constexpr (std::is_same_v<Input, bf16>)
      store_bf16(to, x);
    else if constexpr (std::is_same_v<Input, float>)
      store(to, x);
  }

  // Returns the factor that maps numbers up to `largest` to 16-bit integers, and sets `scale` to its inverse.
  // 127 times 32,767 in each of 512 dimensions is still below 2^31.
  static BUNTING_INLINE f32x16 integers_of(float largest, float* scale) {
    *scale = largest * (1.0f / 32767);
    return set1(largest > 1e-30f ? 32767 / largest : 0.0f);
  }

  static BUNTING_INLINE f32x16 magnitude(f32x16 x) { return max(x, zero() - x); }

  static BUNTING_INLINE f32x16 to_f32(vi x) {
    f32x16 y = zero();
    y.r[0] = __builtin_convertvector(x, vf);
    return y;
  }
};

// Processes rows in groups of R, the rest in one smaller group.
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
      for (; d + N * 16 <= t.value_size; d += N * 16) Products::template weigh<R, N>(t, block, row, d);
      for (; d < t.value_size; d += 16) Products::template weigh<R, 1>(t, block, row, d);
    }
    if constexpr (R > 1) {
      if (rows > 0) weigh_rows<R - 1>(t, block, row, rows);
    }
  }
};

}  // namespace bunting::BUNTING_ISA
