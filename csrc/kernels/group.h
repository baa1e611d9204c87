// group.h - what rounding of weights and of activations to groups of integers have in common. No fused
// multiply-add here, so that every level gives the same bits.
#pragma once

#include "kernels/simd.h"

namespace bunting::BUNTING_ISA {

inline constexpr uint32_t kInfinity = 0x7f800000u;
inline constexpr float kToInteger =
    12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits

// max |a|, |b| over the 32 numbers. Those that are not finite count as larger than all others, NaN as the
// largest.
BUNTING_INLINE float largest_magnitude(f32x16 a, f32x16 b) {
  for (int i = 0; i < kRegisters; ++i) {
    vi const x = (vi)a.r[i] & 0x7fffffff, y = (vi)b.r[i] & 0x7fffffff;
    a.r[i] = (vf)(x > y ? x : y);
  }
  return halve(
      a, [](auto x, auto y) __attribute__((always_inline)) { return (vf)((vi)x > (vi)y ? (vi)x : (vi)y); });
}

// To the nearest integers, ties to even; |x| < 2^22.
BUNTING_INLINE f32x16 round(f32x16 x) {
  return x + set1(kToInteger) - set1(kToInteger);
}

// Sixteen integers of -128 .. 127: the low bytes of what kToInteger makes of them. Compilers take them out
// one by one where they are not told how.
BUNTING_INLINE void store_int8(int8_t* q, f32x16 integers) {
#if defined(__AVX512F__)
  __m128i const bytes = _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)(integers.r[0] + kToInteger));
#elif defined(__AVX2__)
  __m256i const low = _mm256_set1_epi32(255);
  __m256i const words = _mm256_permute4x64_epi64(
      _mm256_packus_epi32(_mm256_and_si256((__m256i)(integers.r[0] + kToInteger), low),
                          _mm256_and_si256((__m256i)(integers.r[1] + kToInteger), low)),
      0xd8);
  __m128i const bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
#else
  int8_t bytes[16];
  for (int i = 0; i < kRegisters; ++i)
    for (int lane = 0; lane < kLanes; ++lane)
      bytes[i * kLanes + lane] = int8_t(vi(integers.r[i] + kToInteger)[lane]);
#endif
  std::memcpy(q, &bytes, 16);
}

// 32 activations as integers that share a scale:
//   scale = max |x| / 127      q = round_to_even(x * (127 / max |x|))      minus_sum = -(sum of q)
// A group of numbers below 1e-30 is zero. One with a number that is not finite has the scale NaN, so that the
// whole row of the product becomes NaN and nothing else.
BUNTING_INLINE void quantise_group(InputGroup& to, f32x16 first, f32x16 second) {
  constexpr float kLeast = 1e-30f;  // 127 / kLeast is finite
  float const largest = largest_magnitude(first, second);
  uint32_t bits;
  std::memcpy(&bits, &largest, 4);
  if (bits >= kInfinity || largest < kLeast) {
    to = {};
    if (bits >= kInfinity) to.scale = __builtin_nanf("");
    return;
  }
  f32x16 const to_integers = set1(127.0f / largest);
  f32x16 const q = round(first * to_integers), q16 = round(second * to_integers);
  store_int8(to.q, q);
  store_int8(to.q + 16, q16);
  to.scale = largest / 127.0f;
  to.minus_sum = -int32_t(sum(q + q16));
}

// `width` numbers as groups, an even number of them, as matrices want it. row(i): those from i on, 16 of them
// or as many as there are and zeros.
template <class Row>
BUNTING_INLINE void quantise_row(InputGroup* to, int64_t width, Row row) {
  for (int64_t i = 0; i < width; i += kGroup)
    quantise_group(*to++, row(i), i + 16 < width ? row(i + 16) : zero());
  if (width % (2 * kGroup) > 0 && width % (2 * kGroup) <= kGroup) *to = {};
}

}  // namespace bunting::BUNTING_ISA
