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

// Sixteen integers of -128 .. 127.
BUNTING_INLINE void store_int8(int8_t* q, f32x16 integers) {
  typedef int8_t vb __attribute__((vector_size(kLanes)));
  for (int i = 0; i < kRegisters; ++i) {
    vb const bytes = __builtin_convertvector((vi)(integers.r[i] + kToInteger), vb);
    std::memcpy(q + i * kLanes, &bytes, sizeof bytes);
  }
}

}  // namespace bunting::BUNTING_ISA
