// multiply_add.h - blocks of sums on vector registers: R rows times N runs of 16 columns, one step of k at a
// time. The GEMM and both products of attention are loops around step().
//
// A step is 64 bytes of each run of columns (two k of bf16 or one of f32), or 32 bytes (two k of int8). Every
// loaded weight serves R rows and every broadcast input serves N runs. R*N independent sums hide the latency
// of the multiply-add. Kinds of arithmetic:
//   PairBf16      bf16 pairs by VDPBF16PS (AVX512-BF16); inputs are bf16 too
//   PairInt8      pairs of 16 bits by VPDPWSSD (AVX512-VNNI): int8 weights, inputs of 16 bits, and exact sums
//   WidenedBf16   bf16 weights widened to f32 in registers; inputs are f32
//   WidenedInt8   int8 weights likewise, with the same sums as for equal numbers in bf16
//   PlainF32      f32
// Each sum is one chain over k, the same for every R and N.
#pragma once

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

#if defined(__AVX512BF16__)
struct PairBf16 {
  using Input = bf16;
  using Sum = f32x16;
  static constexpr int kStep = 2, kStepBytes = 64, kParts = 1;
  using Weight = __m512bh;
  template <int Part>
  static BUNTING_INLINE Weight weight(char const* w) {
    return (__m512bh)_mm512_loadu_si512(w);
  }
  template <int Part>
  static BUNTING_INLINE Weight input(Input const* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  static BUNTING_INLINE f32x16 multiply_add(Weight x, Weight w, f32x16 sum) {
    return {{_mm512_dpbf16_ps(sum.r[0], x, w)}};
  }
};
#endif

#if defined(__AVX512VNNI__)
struct PairInt8 {
  using Input = int16_t;
  using Sum = vi;
  static constexpr int kStep = 2, kStepBytes = 32, kParts = 1;
  using Weight = __m512i;
  template <int Part>
  static BUNTING_INLINE Weight weight(char const* w) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(w)));
  }
  template <int Part>
  static BUNTING_INLINE Weight input(Input const* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static BUNTING_INLINE Sum multiply_add(Weight x, Weight w, Sum sum) {
    return (Sum)_mm512_dpwssd_epi32((__m512i)sum, x, w);
  }
};
#endif

struct WidenedBf16 {
  using Input = float;
  using Sum = f32x16;
  static constexpr int kStep = 2, kStepBytes = 64, kParts = 2;  // the even k of the pairs, then the odd ones
  using Weight = f32x16;
  template <int Part>
  static BUNTING_INLINE Weight weight(char const* w) {
    f32x16_pair const pair = load_bf16_pairs(reinterpret_cast<bf16 const*>(w));
    return Part == 0 ? pair.even : pair.odd;
  }
  template <int Part>
  static BUNTING_INLINE vf input(Input const* x) {
    return x[Part] - vf{};
  }
  static BUNTING_INLINE f32x16 multiply_add(vf x, Weight w, f32x16 sum) {
    for (int i = 0; i < kRegisters; ++i) sum.r[i] = fma(x, w.r[i], sum.r[i]);
    return sum;
  }
};

struct WidenedInt8 : WidenedBf16 {
  static constexpr int kStepBytes = 32;
  template <int Part>
  static BUNTING_INLINE Weight weight(char const* w) {
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) {
      vh pairs;
      std::memcpy(&pairs, w + 2 * i * kLanes, sizeof pairs);
      vu const wide = __builtin_convertvector(pairs, vu);
      y.r[i] = __builtin_convertvector((vi)(wide << (Part == 0 ? 24 : 16)) >> 24, vf);
    }
    return y;
  }
};

struct PlainF32 {
  using Input = float;
  using Sum = f32x16;
  static constexpr int kStep = 1, kStepBytes = 64, kParts = 1;
  using Weight = f32x16;
  template <int Part>
  static BUNTING_INLINE Weight weight(char const* w) {
    return load(reinterpret_cast<float const*>(w));
  }
  template <int Part>
  static BUNTING_INLINE vf input(Input const* x) {
    return *x - vf{};
  }
  static BUNTING_INLINE f32x16 multiply_add(vf x, Weight w, f32x16 sum) {
    return WidenedBf16::multiply_add(x, w, sum);
  }
};

template <class A, int Part, int R, int N>
BUNTING_INLINE void step_part(typename A::Sum (&sums)[R][N], typename A::Input const* x, int64_t ldx,
                              char const* const (&w)[N]) {
  if constexpr (R >= N) {
    typename A::Weight weights[N];
    for (int n = 0; n < N; ++n) weights[n] = A::template weight<Part>(w[n]);
    for (int r = 0; r < R; ++r) {
      auto const input = A::template input<Part>(x + r * ldx);
      for (int n = 0; n < N; ++n) sums[r][n] = A::multiply_add(input, weights[n], sums[r][n]);
    }
  } else {
    decltype(A::template input<Part>(x)) inputs[R];
    for (int r = 0; r < R; ++r) inputs[r] = A::template input<Part>(x + r * ldx);
    for (int n = 0; n < N; ++n) {
      auto const weight = A::template weight<Part>(w[n]);
      for (int r = 0; r < R; ++r) sums[r][n] = A::multiply_add(inputs[r], weight, sums[r][n]);
    }
  }
}

// Adds x[r, step] * w[n, step] to sums[r][n]. x points to kStep inputs of the first row, with rows ldx apart.
// w points to kStepBytes of each run of columns.
template <class A, int R, int N>
BUNTING_INLINE void step(typename A::Sum (&sums)[R][N], typename A::Input const* x, int64_t ldx,
                         char const* const (&w)[N]) {
  step_part<A, 0>(sums, x, ldx, w);
  if constexpr (A::kParts == 2) step_part<A, 1>(sums, x, ldx, w);
}

}  // namespace bunting::BUNTING_ISA
