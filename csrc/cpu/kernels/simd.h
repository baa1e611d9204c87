// simd.h - sixteen floats at a time, for every instruction set.
//
// Only files compiled once per level include it: everything here is in the level's own namespace. f32x16 is
// one AVX-512 register, two AVX ones or four of the baseline (SSE2, NEON). The compiler's vector extensions
// do everything but the fused multiply-add. A reduction over lanes runs in one fixed order, so equal inputs
// give equal bits.
//
// Conversions to bf16 round to nearest even and keep NaN; magnitudes below 2^-126 may become zero.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef BUNTING_ISA
#error "simd.h is for sources compiled once per instruction set"
#endif

#define BUNTING_INLINE inline __attribute__((always_inline))

namespace bunting::BUNTING_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float vf __attribute__((vector_size(kLanes * 4)));
typedef int32_t vi __attribute__((vector_size(kLanes * 4)));
typedef uint32_t vu __attribute__((vector_size(kLanes * 4)));
typedef uint16_t vh __attribute__((vector_size(kLanes * 2)));

inline constexpr int kRegisters = 16 / kLanes;  // machine registers of one f32x16

struct f32x16 {
  vf r[kRegisters];
};

// Returns a * b + c; fused where the machine can.
BUNTING_INLINE vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

BUNTING_INLINE f32x16 set1(float x) {
  f32x16 y;
  for (int i = 0; i < kRegisters; ++i) y.r[i] = x - vf{};
  return y;
}

BUNTING_INLINE f32x16 zero() {
  f32x16 y;
  for (int i = 0; i < kRegisters; ++i) y.r[i] = vf{};
  return y;
}

BUNTING_INLINE f32x16 load(float const* p) {
  f32x16 y;
  for (int i = 0; i < kRegisters; ++i) std::memcpy(&y.r[i], p + i * kLanes, sizeof(vf));
  return y;
}

BUNTING_INLINE void store(float* p, f32x16 x) {
  for (int i = 0; i < kRegisters; ++i) std::memcpy(p + i * kLanes, &x.r[i], sizeof(vf));
}

// Load and store the first n of sixteen, 0 <= n <= 16; loading sets the other lanes to zero.
BUNTING_INLINE f32x16 load_first(float const* p, int64_t n) {
  if (n >= 16) return load(p);
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}

BUNTING_INLINE void store_first(float* p, f32x16 x, int64_t n) {
  if (n >= 16) return store(p, x);
  float lanes[16];
  store(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

#define BUNTING_LANEWISE(name, expression)                      \
  BUNTING_INLINE f32x16 name(f32x16 x, f32x16 y) {              \
    for (int i = 0; i < kRegisters; ++i) x.r[i] = (expression); \
    return x;                                                   \
  }
BUNTING_LANEWISE(operator+, x.r[i] + y.r[i])
BUNTING_LANEWISE(operator-, x.r[i] - y.r[i])
BUNTING_LANEWISE(operator*, x.r[i] * y.r[i])
BUNTING_LANEWISE(operator/, x.r[i] / y.r[i])
BUNTING_LANEWISE(max, x.r[i] > y.r[i] ? x.r[i] : y.r[i])  // y if either is NaN
BUNTING_LANEWISE(min, x.r[i] < y.r[i] ? x.r[i] : y.r[i])
#undef BUNTING_LANEWISE

BUNTING_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  for (int i = 0; i < kRegisters; ++i) c.r[i] = fma(a.r[i], b.r[i], c.r[i]);
  return c;
}

// Rotates lanes: lane i gets lane i + Shift, modulo kLanes.
template <int Shift, int... Lane>
BUNTING_INLINE vf rotate(vf v, std::integer_sequence<int, Lane...>) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(v, v, (Lane + Shift) % kLanes...);
#else  // g++ 11
  return __builtin_shuffle(v, vi{(Lane + Shift) % kLanes...});
#endif
}

// Reduces the lanes to one, halving: i with i + 8, then i + 4, i + 2, i + 1; in registers throughout.
template <int Width = 8, class Join>
BUNTING_INLINE float halve(f32x16 x, Join join) {
  if constexpr (Width >= kLanes) {
    constexpr int kApart = Width / kLanes;
    for (int i = 0; i < kApart; ++i) x.r[i] = join(x.r[i], x.r[i + kApart]);
  } else {
    x.r[0] = join(x.r[0], rotate<Width>(x.r[0], std::make_integer_sequence<int, kLanes>{}));
  }
  if constexpr (Width == 1)
    return x.r[0][0];
  else
    return halve<Width / 2>(x, join);
}

BUNTING_INLINE float sum(f32x16 x) {
  return halve(x, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

BUNTING_INLINE float max(f32x16 x) {
  return halve(x, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

// Loads sixteen signed bytes. With explicit instructions, because compilers convert them one by one.
BUNTING_INLINE f32x16 load_int8(int8_t const* p) {
  f32x16 y;
#if defined(__AVX512F__)
  __m128i const bytes = _mm_loadu_si128(reinterpret_cast<__m128i const*>(p));
  y.r[0] = __builtin_convertvector((vi)_mm512_maskz_cvtepi8_epi32(0xffff, bytes), vf);
#elif defined(__AVX2__)
  for (int i = 0; i < kRegisters; ++i) {
    __m128i const bytes = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(p + i * kLanes));
    y.r[i] = __builtin_convertvector((vi)_mm256_cvtepi8_epi32(bytes), vf);
  }
#else
  typedef int8_t vc __attribute__((vector_size(kLanes)));
  for (int i = 0; i < kRegisters; ++i) {
    vc bytes;
    std::memcpy(&bytes, p + i * kLanes, sizeof bytes);
    y.r[i] = __builtin_convertvector(__builtin_convertvector(bytes, vi), vf);
  }
#endif
  return y;
}

// ---- bf16 -------------------------------------------------------------------------------------------------

BUNTING_INLINE float to_f32(bf16 x) {
  uint32_t const bits = uint32_t(x) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}

BUNTING_INLINE bf16 to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16(bits >> 16 | 0x40);  // NaN stays NaN
  return bf16((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

BUNTING_INLINE f32x16 load_bf16(bf16 const* p) {
  f32x16 y;
  for (int i = 0; i < kRegisters; ++i) {
    vh half;
    std::memcpy(&half, p + i * kLanes, sizeof half);
    y.r[i] = (vf)(__builtin_convertvector(half, vu) << 16);
  }
  return y;
}

BUNTING_INLINE void store_bf16(bf16* p, f32x16 x) {
#if defined(__AVX512BF16__)
  __m256bh const half = _mm512_cvtneps_pbh(x.r[0]);
  std::memcpy(p, &half, sizeof half);
#else
  for (int i = 0; i < kRegisters; ++i) {
    vu const bits = (vu)x.r[i];
    vu const rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    vi const is_nan = x.r[i] != x.r[i];
    vu const chosen = is_nan ? (bits >> 16 | 0x40) : rounded;
    vh const half = __builtin_convertvector(chosen, vh);
    std::memcpy(p + i * kLanes, &half, sizeof half);
  }
#endif
}

// Stores numbers that bf16 holds exactly.
BUNTING_INLINE void store_exact_bf16(bf16* p, f32x16 x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // Explicit instructions, because compilers pack the halves of each register by itself.
  __m256i const words =
      _mm256_packus_epi32(_mm256_srli_epi32((__m256i)x.r[0], 16), _mm256_srli_epi32((__m256i)x.r[1], 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
#else
  for (int i = 0; i < kRegisters; ++i) {
    vh const half = __builtin_convertvector((vu)x.r[i] >> 16, vh);
    std::memcpy(p + i * kLanes, &half, sizeof half);
  }
#endif
}

BUNTING_INLINE void store_bf16_first(bf16* p, f32x16 x, int64_t n) {
  if (n >= 16) return store_bf16(p, x);
  bf16 lanes[16];
  store_bf16(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// Sixteen pairs of consecutive bf16 values as they lie in a packed panel, split into the even and the odd
// ones.
struct f32x16_pair {
  f32x16 even, odd;
};
BUNTING_INLINE f32x16_pair load_bf16_pairs(bf16 const* p) {
  f32x16_pair y;
  for (int i = 0; i < kRegisters; ++i) {
    vu pairs;
    std::memcpy(&pairs, p + 2 * i * kLanes, sizeof pairs);
    y.even.r[i] = (vf)(pairs << 16);
    y.odd.r[i] = (vf)(pairs & 0xffff0000u);
  }
  return y;
}

// ---- exp --------------------------------------------------------------------------------------------------

// Computes e^x within 2 ulp; 0 below -87.3, infinite above 88.3, NaN stays NaN. e^x = 2^n * e^r with n =
// round(x / ln 2), |r| <= ln(2)/2, and a polynomial of degree 6 for e^r.
BUNTING_INLINE f32x16 exp(f32x16 v) {
  // Rounding constant, 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits.
  constexpr float kRound = 12582912.0f;
  for (int i = 0; i < kRegisters; ++i) {
    vf const x = v.r[i] > 89.0f ? 89.0f - vf{} : v.r[i];  // n is 128 at 89, and 2^n infinite
    vf const shifted = fma(x, 1.44269504088896341f - vf{}, kRound - vf{});
    vf const n = shifted - kRound;
    // Splits ln 2 in two parts; the product of n and the first part is exact.
    vf r = fma(n, -0.693145751953125f - vf{}, x);
    r = fma(n, -1.42860682030941723e-6f - vf{}, r);
    vf p = 1.0f / 720 - vf{};
    p = fma(p, r, 1.0f / 120 - vf{});
    p = fma(p, r, 1.0f / 24 - vf{});
    p = fma(p, r, 1.0f / 6 - vf{});
    p = fma(p, r, 0.5f - vf{});
    p = fma(p, r, 1.0f - vf{});
    p = fma(p, r, 1.0f - vf{});
    vf const scale = (vf)(((vu)shifted << 23) + (127u << 23));  // 2^n from the integer in shifted's low bits
    v.r[i] = x < -87.3f ? vf{} : p * scale;
  }
  return v;
}

// Returns cap * tanh(x / cap), cap > 0, within 2^-23 of the cap; NaN stays NaN.
BUNTING_INLINE f32x16 soft_cap(f32x16 x, float cap) {
  f32x16 const one = set1(1.0f), two = set1(2.0f);
  return set1(cap) * (one - two / (one + exp(x * set1(2.0f / cap))));
}

}  // namespace bunting::BUNTING_ISA
