// formats.h - widening of weights between memory and the matrix instruction. For each format (quantise.h):
// the sixteen bytes that a lane holds of a row, and the conversion of eight adjacent k to bf16.
//
// All conversions are exact. A bf16 has eight significant bits including the implicit one, so 128 + q has the
// bits 0x4300 | q for q below 128. An e4m3 shifted into a bf16 has the right fraction and an exponent that is
// 120 too small.
#pragma once

#include "cuda/gpu.h"
#include "cuda/kernels/kernels.h"
#include "cuda/quantise.h"

namespace bunting::cuda {

// Four e4m3 as two words of bf16: bytes 0 and 2, bytes 1 and 3. `multipliers` are bf16 of 2^120 times the
// scale. The result is exact if the scale is a power of two, otherwise rounded.
struct PairOfWords {
  uint32_t even, odd;
};
inline constexpr uint32_t kUnitE4m3 = 0x7b807b80;  // 2^120 twice
GPU_DEVICE PairOfWords widen_e4m3(uint32_t bytes, uint32_t even_multipliers, uint32_t odd_multipliers) {
  constexpr uint32_t kSigns = 0x80008000, kRest = 0x07f007f0, kMinusZeros = 0x80008000;
  uint32_t const even = (bytes << 8 & kSigns) | (bytes << 4 & kRest);
  uint32_t const odd = (bytes & kSigns) | (bytes >> 4 & kRest);
  return {gpu::multiply_add_pairs(even, even_multipliers, kMinusZeros),
          gpu::multiply_add_pairs(odd, odd_multipliers, kMinusZeros)};
}

// Properties of a format in a kernel.
//
//   kSlabs          slabs of 32 k in a lane's sixteen bytes
//   kGrouped        true: each slab of a row has a scale; kChannels: true: each row has one, in f32
//   slab(v, i)      k 8t .. 8t+7 of slab i of lane (g, t), two per word
template <Format kFormat>
struct Weights;

template <>
struct Weights<Format::plain> {
  static constexpr int kSlabs = 1;
  static constexpr bool kGrouped = false, kChannels = false;
  GPU_DEVICE static gpu::Vec slab(gpu::Vec const& v, int) { return v; }
};

struct Int8Weights {
  static constexpr int kSlabs = 2;
  static constexpr bool kGrouped = true, kChannels = false;
  // Widens two's complement: the seven low bits, less 128 if the highest bit is set.
  GPU_DEVICE static uint32_t widen(uint32_t bytes) {
    constexpr uint32_t kOnes = 0x3f803f80;
    uint32_t const low = (bytes & 0x007f007f) | 0x43004300;    // 128 + low bits
    uint32_t const minus = (bytes & 0x00800080) | 0xc300c300;  // -128 or -256
    return gpu::multiply_add_pairs(low, kOnes, minus);
  }
  GPU_DEVICE static gpu::Vec slab(gpu::Vec const& v, int i) {
    uint32_t const first = v.word[2 * i], second = v.word[2 * i + 1];
    return {{widen(first), widen(first >> 8), widen(second), widen(second >> 8)}};
  }
};

template <>
struct Weights<Format::int8_128> : Int8Weights {};
template <>
struct Weights<Format::int8_32> : Int8Weights {};

template <>
struct Weights<Format::int4_32> {
  static constexpr int kSlabs = 4;
  static constexpr bool kGrouped = true, kChannels = false;
  GPU_DEVICE static uint32_t widen(uint32_t nibbles) {
    constexpr uint32_t kOnes = 0x3f803f80, kMinus136 = 0xc308c308;
    return gpu::multiply_add_pairs((nibbles & 0x000f000f) | 0x43004300, kOnes, kMinus136);
  }
  GPU_DEVICE static gpu::Vec slab(gpu::Vec const& v, int i) {
    uint32_t const w = v.word[i];
    return {{widen(w), widen(w >> 4), widen(w >> 8), widen(w >> 12)}};
  }
};

// e2m1: exponent and fraction, shifted into a bf16, give an exponent that is 126 too small.
template <>
struct Weights<Format::mxfp4> {
  static constexpr int kSlabs = 4;
  static constexpr bool kGrouped = true, kChannels = false;
  GPU_DEVICE static uint32_t widen(uint32_t nibbles) {
    constexpr uint32_t kFactor = 0x7e807e80, kMinusZeros = 0x80008000;  // 2^126 twice
    uint32_t const bits = (nibbles & 0x00080008) << 12 | (nibbles & 0x00070007) << 6;
    return gpu::multiply_add_pairs(bits, kFactor, kMinusZeros);
  }
  GPU_DEVICE static gpu::Vec slab(gpu::Vec const& v, int i) {
    uint32_t const w = v.word[i];
    return {{widen(w), widen(w >> 4), widen(w >> 8), widen(w >> 12)}};
  }
};

template <>
struct Weights<Format::fp8> {
  static constexpr int kSlabs = 2;
  static constexpr bool kGrouped = false, kChannels = true;
  GPU_DEVICE static gpu::Vec slab(gpu::Vec const& v, int i) {
    PairOfWords const first = widen_e4m3(v.word[2 * i], kUnitE4m3, kUnitE4m3);
    PairOfWords const second = widen_e4m3(v.word[2 * i + 1], kUnitE4m3, kUnitE4m3);
    return {{first.even, first.odd, second.even, second.odd}};
  }
};

// Scales per piece (a lane's sixteen bytes of one row), each for an equal number of slabs; and pieces per
// scale.
constexpr int scales_of_piece(Format format) {
  return scale_k(format) > 0 && scale_k(format) < piece_k(format) ? piece_k(format) / scale_k(format) : 1;
}
constexpr int pieces_of_scale(Format format) {
  return scale_k(format) > piece_k(format) ? scale_k(format) / piece_k(format) : 1;
}

template <Format kFormat>
struct alignas(scales_of_piece(kFormat) * 2) SlabScales {
  static constexpr int kCount = scales_of_piece(kFormat), kPieces = pieces_of_scale(kFormat);
  uint16_t half[kCount];
  GPU_DEVICE float of(int slab) const {
    uint16_t const scale = half[slab * kCount / Weights<kFormat>::kSlabs];
    return kFormat == Format::mxfp4 ? gpu::widen(scale) : gpu::widen_half(scale);
  }
};

// Calls launch.operator()<format>() for the matrix.
template <class Launch>
void with_format(WeightMatrix const& w, Launch const& launch) {
  switch (w.format) {
    case Format::plain:
      return launch.template operator()<Format::plain>();
    case Format::int8_128:
      return launch.template operator()<Format::int8_128>();
    case Format::int8_32:
      return launch.template operator()<Format::int8_32>();
    case Format::int4_32:
      return launch.template operator()<Format::int4_32>();
    case Format::fp8:
      return launch.template operator()<Format::fp8>();
    case Format::mxfp4:
      return launch.template operator()<Format::mxfp4>();
  }
}

// Adds a slab's product to the sums; the scales are those of rows g and g + 8.
GPU_DEVICE void add_slab(float (&sums)[4], float const (&slab)[4], float low, float high) {
  sums[0] = fmaf(low, slab[0], sums[0]);
  sums[1] = fmaf(low, slab[1], sums[1]);
  sums[2] = fmaf(high, slab[2], sums[2]);
  sums[3] = fmaf(high, slab[3], sums[3]);
}

}  // namespace bunting::cuda
