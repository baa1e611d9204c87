// peak.cpp - loop of independent multiply-adds in registers, with the instruction by which a level multiplies
// numbers of one type. Its rate is the ceiling of every kernel of that type.
#include "cpu/kernels/dot.h"

namespace bunting::BUNTING_ISA {
namespace {

constexpr int kRounds = 1 << 16, kChains = 12;

// Keeps a value in a register of its own, and the compiler from merging rounds.
template <class Vector>
BUNTING_INLINE void keep(Vector& x) {
#if defined(__aarch64__)
  asm volatile("" : "+w"(x));
#else
  asm volatile("" : "+v"(x));
#endif
}

// Runs `step` on each sum in each round.
template <class Vector, class Step>
BUNTING_INLINE void run(Step const& step) {
  Vector sums[kChains] = {};
  for (int i = 0; i < kRounds; ++i)
    for (Vector& sum : sums) {
      step(sum);
      keep(sum);
    }
}

// Operations of a run, of which each step does `of_step`: a multiplication and an addition are two.
constexpr double operations(double of_step) {
  return double(kRounds) * kChains * of_step;
}

#if defined(__AMX_BF16__)
// Six sums, so that products do not wait for each other.
template <bool kBytes>
double tiles() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Config config;
  asm volatile("ldtilecfg %0" ::"m"(config));
  asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3\n\ttilezero %tmm4");
  asm volatile("tilezero %tmm5\n\ttilezero %tmm6\n\ttilezero %tmm7");
  for (int i = 0; i < kRounds; ++i) {
    if (kBytes)
      asm volatile(
          "tdpbusd %tmm7, %tmm6, %tmm0\n\ttdpbusd %tmm7, %tmm6, %tmm1\n\ttdpbusd %tmm7, %tmm6, %tmm2\n\t"
          "tdpbusd %tmm7, %tmm6, %tmm3\n\ttdpbusd %tmm7, %tmm6, %tmm4\n\ttdpbusd %tmm7, %tmm6, %tmm5");
    else
      asm volatile(
          "tdpbf16ps %tmm7, %tmm6, %tmm0\n\ttdpbf16ps %tmm7, %tmm6, %tmm1\n\t"
          "tdpbf16ps %tmm7, %tmm6, %tmm2\n\ttdpbf16ps %tmm7, %tmm6, %tmm3\n\t"
          "tdpbf16ps %tmm7, %tmm6, %tmm4\n\ttdpbf16ps %tmm7, %tmm6, %tmm5");
  }
  asm volatile("tilerelease");
  return double(kRounds) * 6 * 16 * 16 * (kBytes ? 128 : 64);
}
#endif

double floats() {
  vf const x = 1.0f - vf{};
  run<vf>([&](vf& sum) __attribute__((always_inline)) { sum = fma(x, x, sum); });
  return operations(2 * kLanes);
}

#if !defined(__AMX_BF16__)
// k of a sum that an instruction adds up.
#if defined(BUNTING_HAS_USMMLA)
constexpr int kBytesK = 8;
#else
constexpr int kBytesK = 4;
#endif

// The loop knows neither factor, so no product is computed before it.
double bytes() {
  vi w = broadcast(0x01010101), x = w;
  run<vi>([&](vi& sum) __attribute__((always_inline)) {
    keep(x);
#if defined(BUNTING_HAS_USMMLA)
    sum = dot_of_two(sum, (vu)w, x);
#elif defined(BUNTING_HAS_VNNI) || defined(BUNTING_HAS_SDOT)
    sum = dot(sum, (vu)w, x);
#elif defined(BUNTING_HAS_MADDUBS)
    sum += madd16(pairs_of(w, x), broadcast(0x00010001));
#else
    sum += pairs_of((vs)(w & 0x00ff00ff), (vs)x) + pairs_of((vs)(w >> 8 & 0x00ff00ff), (vs)x);
#endif
  });
  return operations(2 * kBytesK * kLanes);
}
#endif

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
double pairs() {
  __m512bh const x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  run<__m512>([&](__m512& sum) __attribute__((always_inline)) { sum = _mm512_dpbf16_ps(sum, x, x); });
  return operations(2 * 2 * kLanes);
}
#endif

}  // namespace

double peak(Dtype dtype) {
  if (dtype == Dtype::f32) return floats();
#if defined(__AMX_BF16__)
  return dtype == Dtype::bf16 ? tiles<false>() : tiles<true>();
#elif defined(__AVX512BF16__)
  return dtype == Dtype::bf16 ? pairs() : bytes();
#else
  return dtype == Dtype::bf16 ? floats() : bytes();
#endif
}

}  // namespace bunting::BUNTING_ISA
