// widened_inputs.h - how the kernels for many rows multiply a format, and the inputs in the form they read.
//
// Without VPDPBUSD inputs are prepared once for all panels of a chunk. Weights of 8 bits are multiplied in 16
// bits, so their inputs are widened too. Sums of pairs begin with the excess of unsigned weights.
#pragma once

#include "cpu/kernels/gemm_grouped.h"

namespace bunting::BUNTING_ISA {

// Kinds of dot products: dot.h has a class for each.
enum class Product { bytes, pairs, wide };
#if defined(BUNTING_HAS_MADDUBS)
template <Dtype W>
inline constexpr Product kProduct = product_bits(W) == 8 ? Product::wide : Product::pairs;
template <Dtype W>
using WidenedDot = std::conditional_t<kProduct<W> == Product::wide, WideDot<W>, PairDot<W>>;
#else
template <Dtype W>
inline constexpr Product kProduct = Product::bytes;
template <Dtype W>
using WidenedDot = Dot<W>;
#endif

// Parts of kGroup k with sums of their own, and steps of a part.
template <Dtype W>
inline constexpr int kWidenedParts = WidenedDot<W>::kParts;
template <Dtype W>
inline constexpr int kWidenedSteps = kSteps * (kProduct<W> == Product::wide ? 2 : 1) / kWidenedParts<W>;
// Bytes of kGroup k of an unpacked panel.
template <Dtype W>
inline constexpr int kWidenedBytes = kWidenedParts<W> * kWidenedSteps<W> * kIntegerLineBytes;

template <Dtype W>
inline constexpr bool kHasStarts = kProduct<W> == Product::pairs && !has_minimum(W);
template <Dtype W>
inline constexpr bool kPreparesInputs = kHasStarts<W> || kProduct<W> == Product::wide;

// Prepared inputs of a row for kGroup k.
template <Dtype W>
struct PreparedInput {
  union {
    // Widened: pairs of even k, then of odd k, as WideDot stores weights.
    int16_t q[kProduct<W> == Product::wide ? kGroup : 1];
    // Initial values of the sums of the parts, a 16-bit half for each of the pairs that are added in it.
    int32_t starts[kWidenedParts<W>];
  };

  BUNTING_INLINE void prepare([[maybe_unused]] InputGroup const& x) {
#if defined(BUNTING_HAS_MADDUBS)
    if constexpr (kProduct<W> == Product::wide) {
      typedef int16_t vs __attribute__((vector_size(kGroup)));
      vs all;
      std::memcpy(&all, x.q, sizeof all);
      vs const halves[2] = {all << 8 >> 8, all >> 8};
      std::memcpy(q, halves, sizeof halves);
    } else if constexpr (kHasStarts<W>) {
      static_assert(kWidenedParts<W> <= 2);
      // A step per 32 bits.
      __m256i const steps = _mm256_maddubs_epi16(_mm256_set1_epi8(product_zero(W)),
                                                 _mm256_loadu_si256(reinterpret_cast<__m256i const*>(x.q)));
      __m256i const twos = _mm256_add_epi16(steps, _mm256_shuffle_epi32(steps, 0x4e));
      __m256i const sums = _mm256_sub_epi16(
          __m256i{}, _mm256_add_epi16(twos, _mm256_shuffle_epi32(twos, 0xb1)));  // of each half of the steps
      __m128i const low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
      if constexpr (kWidenedParts<W> == 1) {
        starts[0] = _mm_cvtsi128_si32(_mm_add_epi16(low, high));
      } else {
        starts[0] = _mm_cvtsi128_si32(low);
        starts[1] = _mm_cvtsi128_si32(high);
      }
    }
#endif
  }
};

// Inputs of a block of rows.
template <Dtype W, int64_t kStride>
struct WidenedInputs {
  InputGroup const* x;
  int64_t ldx;
  PreparedInput<W> const* prepared;  // rows kStride apart; null if the kind needs none

  // Returns the inputs from a later group on.
  BUNTING_INLINE WidenedInputs from(int64_t groups) const { return {x + groups, ldx, prepared + groups}; }
  // Returns the inputs of a step of part `part` of the first group.
  BUNTING_INLINE int32_t of_step(int row, int part, int step) const {
    step += part * kWidenedSteps<W>;
    if constexpr (kProduct<W> != Product::wide) return four_of(x[row * ldx], step);
    int32_t two;
    std::memcpy(&two, prepared[row * kStride].q + 2 * step, sizeof two);
    return two;
  }
  // Returns the initial value of the sum of a part.
  BUNTING_INLINE vi start_of(int row, int part) const {
    if constexpr (kProduct<W> == Product::wide)
      return vi{};
    else if constexpr (kHasStarts<W>)
      return broadcast(prepared[row * kStride].starts[part]);
    else
      return excess_of<W>(x[row * ldx], part);
  }
};

}  // namespace bunting::BUNTING_ISA
