// group.h - rounding to groups of integers, shared by weights and activations. It uses no fused multiply-add,
// so every level gives the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Rounding constant, 1.5 * 2^23: adding it rounds to an integer in the low bits.
inline constexpr float kToInteger = 12582912.0f;

// Returns max |a|, |b| over the 32 numbers. Infinities count as larger than all finite numbers, NaN as the
// largest.
BUNTING_INLINE float largest_magnitude(f32x16 a, f32x16 b) {
  for (int i = 0; i < kRegisters; ++i) {
    vi const x = (vi)a.r[i] & 0x7fffffff, y = (vi)b.r[i] & 0x7fffffff;
    a.r[i] = (vf)(x > y ? x : y);
  }
  return halve(
      a, [](auto x, auto y) __attribute__((always_inline)) { return (vf)((vi)x > (vi)y ? (vi)x : (vi)y); });
}

// Returns the same over all of x.
template <size_t kCount>
BUNTING_INLINE float largest_magnitude(f32x16 const (&x)[kCount]) {
  f32x16 even = zero(), odd = zero();
  for (size_t i = 0; i < kCount; i += 2)
    for (int j = 0; j < kRegisters; ++j) {
      vi const a = (vi)x[i].r[j] & 0x7fffffff, b = (vi)x[i + 1].r[j] & 0x7fffffff;
      even.r[j] = (vf)(a > (vi)even.r[j] ? a : (vi)even.r[j]);
      odd.r[j] = (vf)(b > (vi)odd.r[j] ? b : (vi)odd.r[j]);
    }
  return largest_magnitude(even, odd);
}

// Counts the numbers of magnitude `least` or more; `least` is positive.
template <size_t kCount>
BUNTING_INLINE int count_from(f32x16 const (&x)[kCount], float least) {
  f32x16 counts = zero();
  vi const bits = (vi)(least - vf{}), one = (vi)(1.0f - vf{});
  for (size_t i = 0; i < kCount; ++i)
    for (int j = 0; j < kRegisters; ++j) counts.r[j] += (vf)((((vi)x[i].r[j] & 0x7fffffff) >= bits) & one);
  return int(sum(counts));
}

// True if the largest magnitude belongs to numbers that are all finite.
BUNTING_INLINE bool is_finite(float magnitude) {
  return magnitude < __builtin_inff();
}

// Rounds to the nearest integers, ties to even; |x| < 2^22.
BUNTING_INLINE f32x16 round(f32x16 x) {
  return x + set1(kToInteger) - set1(kToInteger);
}

// Stores sixteen integers of -128 .. 127: the low bytes after adding kToInteger. Without explicit
// instructions compilers extract them one by one.
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

inline constexpr float kLeastMagnitude = 1e-30f;  // 127 / it is finite

// Rounds activations to integers, 32 per group, for kGroups groups that share a scale:
//   scale = max |x| / 127      q = round_to_even(x * (127 / max |x|))
//   minus_sum = -(sum of q) over all that share a scale of weights; or of two groups, or in f32 (InputGroup)
// Numbers below 1e-30 become zero. A number that is not finite makes the scale NaN, so exactly that row of
// the product becomes NaN.
template <int kGroups>
BUNTING_INLINE void round_groups(InputGroup* to, f32x16 const (&x)[2 * kGroups], float largest,
                                 Dtype weights) {
  if (!(largest >= kLeastMagnitude && is_finite(largest))) {
    for (int i = 0; i < kGroups; ++i) {
      to[i] = {};
      if (!is_finite(largest)) to[i].scale = __builtin_nanf("");
    }
    return;
  }
  f32x16 const to_integers = set1(127.0f / largest);
  f32x16 sums[kGroups];
  for (int i = 0; i < kGroups; ++i) {
    f32x16 const q = round(x[2 * i] * to_integers), q16 = round(x[2 * i + 1] * to_integers);
    store_int8(to[i].q, q);
    store_int8(to[i].q + 16, q16);
    to[i].scale = largest / 127.0f;
    sums[i] = q + q16;
    if (weight_group(weights) < kGroup) {
      to[i].minus_sums[0] = int16_t(-sum(q));
      to[i].minus_sums[1] = int16_t(-sum(q16));
    } else if (has_paired_minimums(weights)) {
      if (i % 2 == 1) to[i].minus_sum = 0;
      to[i / 2 * 2].minus_sums[i % 2] = int16_t(-sum(sums[i]));
    } else if (has_minimum(weights)) {
      to[i].minus_sum_f32 = 0.0f - sum(sums[i]);
    }
  }
  if (has_minimum(weights) || weight_group(weights) < kGroup) return;
  int64_t const summed = weight_group(weights) / kGroup;
  for (int first = 0; first < kGroups; first += int(summed)) {
    int const end = first + int(summed) < kGroups ? first + int(summed) : kGroups;
    f32x16 together = sums[first];
    for (int i = first + 1; i < end; ++i) together = together + sums[i];
    int32_t const minus_sum = -int32_t(sum(together));
    for (int i = first; i < end; ++i) to[i].minus_sum = minus_sum;
  }
}

// Separates outliers. Of n numbers that share a scale, at most n/32 reach an eighth of the largest. It
// removes at most one per 32, until more of the others reach an eighth of their largest, or no place is left.
// Then the scale suits the others. Returns the count and leaves the other numbers in x.
template <int kGroups>
__attribute__((noinline)) int take_outliers(f32x16 (&x)[2 * kGroups], float (&outliers)[kGroups],
                                            int16_t (&outliers_at)[kGroups]) {
  float numbers[kGroups * kGroup];
  for (int i = 0; i < 2 * kGroups; ++i) store(numbers + i * 16, x[i]);
  int taken = 0;
  for (int before = -1; taken > before;) {
    before = taken;
    float largest = 0;
    for (float number : numbers) largest = std::max(largest, std::fabs(number));
    int reaching = 0;
    for (float number : numbers) reaching += std::fabs(number) >= largest * kOutlierShare;
    if (reaching > kGroups || largest < kLeastMagnitude) break;
    for (int i = 0; i < kGroups; ++i) {
      float* const group = numbers + i * kGroup;
      int at = 0;
      for (int j = 1; j < kGroup; ++j)
        if (std::fabs(group[j]) > std::fabs(group[at])) at = j;
      if (outliers[i] != 0 || std::fabs(group[at]) < largest * kOutlierShare) continue;
      outliers[i] = std::exchange(group[at], 0.0f);
      outliers_at[i] = int16_t(at);
      ++taken;
    }
  }
  for (int i = 0; i < 2 * kGroups; ++i) x[i] = load(numbers + i * 16);
  return taken;
}

// Rounds the groups without their outliers, which it stores beside them. Returns true if there are any.
template <int kGroups>
BUNTING_INLINE bool quantise_groups(InputGroup* to, f32x16 (&x)[2 * kGroups], Dtype weights) {
  float largest = largest_magnitude(x);
  float outliers[kGroups] = {};
  int16_t outliers_at[kGroups] = {};
  int taken = 0;
  if (largest >= kLeastMagnitude && is_finite(largest) && count_from(x, largest * kOutlierShare) <= kGroups)
      [[unlikely]] {
    taken = take_outliers<kGroups>(x, outliers, outliers_at);
    largest = largest_magnitude(x);
  }
  round_groups<kGroups>(to, x, largest, weights);
  for (int i = 0; i < kGroups; ++i) {
    to[i].outlier = outliers[i];
    to[i].outlier_at = outliers_at[i];
    to[i].outliers = int16_t(i == 0 ? taken : 0);
  }
  return taken > 0;
}

// Rounds `width` numbers to an even number of groups, as matrices require. row(i) returns 16 numbers from i
// on, zero beyond the end. Returns true if there are outliers.
template <int kGroups, class Row>
BUNTING_INLINE bool quantise_row_by(InputGroup* to, int64_t width, Dtype weights, Row row) {
  int64_t const groups = round_up(width, 2 * kGroup) / kGroup;
  bool has_outliers = false;
  auto const quantise = [&](auto count, int64_t group) __attribute__((always_inline)) {
    f32x16 x[2 * count.value];
    for (int i = 0; i < 2 * count.value; ++i) {
      int64_t const at = group * kGroup + i * 16;
      x[i] = at < width ? row(at) : zero();
    }
    has_outliers |= quantise_groups<count.value>(to + group, x, weights);
  };
  int64_t group = 0;
  for (; group + kGroups <= groups; group += kGroups) quantise(std::integral_constant<int, kGroups>{}, group);
  if (group < groups) quantise(std::integral_constant<int, 2>{}, group);  // two of four are left
  return has_outliers;
}

// Rounds row t of `to`.
template <class Row>
BUNTING_INLINE void quantise_row(Operand const& to, int64_t t, int64_t width, Row row) {
  InputGroup* const groups = reinterpret_cast<InputGroup*>(to.row(t));
  bool const has_outliers = input_group(to.dtype) == kGroup
                                ? quantise_row_by<1>(groups, width, to.dtype, row)
                                : quantise_row_by<kGroupMax / kGroup>(groups, width, to.dtype, row);
  if (has_outliers && to.outliers) to.outliers->store(true, std::memory_order_relaxed);
}

}  // namespace bunting::BUNTING_ISA
