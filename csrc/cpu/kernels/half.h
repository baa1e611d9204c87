// half.h - conversions between f16 and f32, one value or sixteen at a time; the same bits on every level.
#pragma once

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Loads sixteen f16 exactly. Keeps subnormals, infinities and NaN.
BUNTING_INLINE f32x16 load_f16(uint16_t const* p) {
#if defined(__AVX512F__)
  // The mask selects all sixteen lanes: g++ 12 implements the unmasked form with reads of uninitialised
  // lanes.
  return {
      {_mm512_maskz_cvtph_ps(__mmask16(0xffff), _mm256_loadu_si256(reinterpret_cast<__m256i const*>(p)))}};
#else
  f32x16 y;
  for (int i = 0; i < kRegisters; ++i) {
#if defined(__F16C__)
    y.r[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(p + i * kLanes)));
#else
    vh half;
    std::memcpy(&half, p + i * kLanes, sizeof half);
    vu const bits = __builtin_convertvector(half, vu);
    vu const magnitude = (bits & 0x7fff) << 13;
    // An exact product moves the exponent's bias from 15 to 127, for subnormals too.
    vu const finite = (vu)((vf)magnitude * 0x1p112f);
    vu const value = magnitude >= (0x7c00u << 13) ? (magnitude | 0x7f800000u) : finite;
    y.r[i] = (vf)(value | (bits & 0x8000) << 16);
#endif
  }
  return y;
#endif
}

BUNTING_INLINE float f16_to_f32(uint16_t x) {
#if defined(__F16C__)
  return _cvtsh_ss(x);
#else
  uint32_t const magnitude = uint32_t(x & 0x7fff) << 13;
  float finite;
  std::memcpy(&finite, &magnitude, 4);
  finite *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &finite, 4);
  if (magnitude >= 0x7c00u << 13) bits = magnitude | 0x7f800000u;
  bits |= uint32_t(x & 0x8000) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
#endif
}

// Rounds to nearest even. Too large values become infinite, and NaN stays NaN.
BUNTING_INLINE uint16_t f32_to_f16(float x) {
#if defined(__F16C__)
  return uint16_t(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
#else
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint16_t const sign = uint16_t(bits >> 16 & 0x8000);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return uint16_t(sign | 0x7e00 | (bits >> 13 & 0x3ff));
  if (bits >= 0x47800000u) return uint16_t(sign | 0x7c00);  // 65536 and more
  if (bits < 0x38800000u) {                                 // below 2^-14: counts of 2^-24, by adding 0.5
    float value;
    std::memcpy(&value, &bits, 4);
    value += 0.5f;  // the last mantissa bit is 2^-24
    std::memcpy(&bits, &value, 4);
    return uint16_t(sign | (bits - 0x3f000000u));
  }
  // A carry out of the mantissa increments the exponent, up to infinity.
  return uint16_t(sign | (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
#endif
}

}  // namespace bunting::BUNTING_ISA
