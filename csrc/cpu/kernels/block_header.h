// block_header.h - the scales at the beginning of a panel's block (weight_format.h), sixteen columns at a
// time.
#pragma once

#include "cpu/kernels/half.h"
#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Loads sixteen bytes as 32-bit integers.
template <bool kSigned>
BUNTING_INLINE void load_bytes(char const* p, vi (&integers)[kRegisters]) {
  for (int i = 0; i < kRegisters; ++i) {
#if defined(__AVX512F__)
    __m128i const bytes = _mm_loadu_si128(reinterpret_cast<__m128i const*>(p));
    integers[i] =
        (vi)(kSigned ? _mm512_maskz_cvtepi8_epi32(0xffff, bytes) : _mm512_maskz_cvtepu8_epi32(0xffff, bytes));
#elif defined(__AVX2__)
    __m128i const bytes = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(p + i * kLanes));
    integers[i] = (vi)(kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#else
    typedef int8_t vb __attribute__((vector_size(kLanes)));
    vb bytes;
    std::memcpy(&bytes, p + i * kLanes, sizeof bytes);
    vi const widened = __builtin_convertvector(bytes, vi);
    integers[i] = kSigned ? widened : widened & 255;
#endif
  }
}

template <Dtype W>
struct BlockHeader {
  static constexpr int64_t kBlock = block_length(W), kBytes = block_header_bytes(W);
  static constexpr Scales kScales = weight_format(W).scales;

  // Returns the scales of group `group` of the block; in a superblock they are factors times integer scales.
  static BUNTING_INLINE f32x16 scales(char const* at, int64_t group) {
    if constexpr (kScales == Scales::exponent) {
      vi e[kRegisters];
      load_bytes<false>(at + group * kPanel, e);
      f32x16 y;
      for (int i = 0; i < kRegisters; ++i)
        y.r[i] = (vf)(e[i] >= 2 ? (e[i] - 1) << 23 : (e[i] + 1) * 0x00200000);
      return y;
    } else if constexpr (kScales == Scales::super) {
      return half(at) * bytes<true>(at + kPanel * (2 + group));
    } else if constexpr (kScales == Scales::super_minimum) {
      return half(at) * bytes<false>(at + kPanel * (4 + group));
    } else if constexpr (kScales == Scales::super_nibbles) {
      return half(at) * nibbles(at + kPanel * (4 + group), 0);
    } else {
      return half(at + group * kPanel * 2);
    }
  }
  static BUNTING_INLINE f32x16 factors(char const* at) { return half(at); }
  static BUNTING_INLINE void integer_scales(char const* at, int64_t group, vi (&scales)[kRegisters]) {
    static_assert(is_super(W));
    load_bytes<kScales == Scales::super>(at + kPanel * (scale_halves(W) * 2 + group), scales);
    for (int i = 0; i < kRegisters && kScales == Scales::super_nibbles; ++i) scales[i] &= 15;
  }
  // Returns the group's minimums; in a superblock they are minimum_factors times integer minimums.
  static BUNTING_INLINE f32x16 minimums(char const* at, int64_t group) {
    if constexpr (kScales == Scales::half_minimum)
      return zero() - half(at + (block_scales(W) + group) * kPanel * 2);
    else if constexpr (kScales == Scales::super_minimum)
      return half(at + kPanel * 2) * bytes<false>(at + kPanel * (4 + kSuper / kGroup + group));
    else
      return half(at + kPanel * 2) * nibbles(at + kPanel * (4 + group), 4);
  }
  static BUNTING_INLINE f32x16 minimum_factors(char const* at) { return half(at + kPanel * 2); }
  static BUNTING_INLINE void integer_minimums(char const* at, int64_t group, vi (&minimums)[kRegisters]) {
    constexpr bool is_nibble = kScales == Scales::super_nibbles;
    load_bytes<false>(at + kPanel * (4 + (is_nibble ? 0 : kSuper / kGroup) + group), minimums);
    for (int i = 0; i < kRegisters && is_nibble; ++i) minimums[i] = minimums[i] >> 4;
  }

 private:
  static BUNTING_INLINE f32x16 half(char const* at) {
    return load_f16(reinterpret_cast<uint16_t const*>(at));
  }
  template <bool kSigned>
  static BUNTING_INLINE f32x16 bytes(char const* at) {
    vi integers[kRegisters];
    load_bytes<kSigned>(at, integers);
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) y.r[i] = __builtin_convertvector(integers[i], vf);
    return y;
  }
  static BUNTING_INLINE f32x16 nibbles(char const* at, int from_bit) {
    vi integers[kRegisters];
    load_bytes<false>(at, integers);
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) y.r[i] = __builtin_convertvector(integers[i] >> from_bit & 15, vf);
    return y;
  }
};

}  // namespace bunting::BUNTING_ISA
