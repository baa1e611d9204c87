// dot.h - sixteen columns of grouped weights times four k of one row, exactly, for every instruction set.
//
// Weights are unsigned here, q + product_zero(); minus_sum times that zero removes the excess. Formats with a
// minimum use q itself. Formats with levels look q up in a table of bytes. Instructions that multiply them by
// signed inputs:
//
//   VPDPBUSD     four products at once.
//   VPMADDUBSW   pairs of products in 16 bits. Up to 5 bits, four pairs are added in 16 bits before they are
//                widened (4 * 2 * 31 * 127 < 2^15); with 6 bits, two pairs. Weights of 8 bits are made signed
//                first, and their signs are moved to the inputs (2 * 128 * 127 < 2^15).
//   SDOT         four products at once, of signed numbers: weights of 8 bits are made signed.
//   USDOT        as VPDPBUSD.
//   USMMLA       eight products of each of two columns and two rows (dot_rows.h).
//   VPMADDWD     the same weights for many rows, when both factors were widened to 16 bits before.
//   16 bits      the even and the odd bytes of weights separately, each product in 16 bits.
#pragma once

#include <cstring>

#include "cpu/kernels/integer_layout.h"
#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

BUNTING_INLINE vi broadcast(int32_t x) {
  return x - vi{};
}

// Adds pairs of 16-bit products in 32 bits.
#if defined(__AVX512BW__)
BUNTING_INLINE vi madd16(vi a, vi b) {
  return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
BUNTING_INLINE vi madd16(vi a, vi b) {
  return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define BUNTING_HAS_VNNI
// The assembly avoids register copies of the sums, which compilers insert around the intrinsic in a loop.
BUNTING_INLINE vi dot(vi sum, vu unsigned_w, vi x) {
#if defined(__AVX512VNNI__)
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_w), "v"(x));
#else
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_w), "x"(x));
#endif
  return sum;
}
#elif defined(__AVX512BW__)
#define BUNTING_HAS_MADDUBS
// Adds pairs of byte products in 16 bits.
BUNTING_INLINE vi pairs_of(vi unsigned_w, vi x) {
  return (vi)_mm512_maddubs_epi16((__m512i)unsigned_w, (__m512i)x);
}
BUNTING_INLINE vi add16(vi a, vi b) {
  return (vi)_mm512_add_epi16((__m512i)a, (__m512i)b);
}
BUNTING_INLINE vi magnitude(vi q) {
  return (vi)_mm512_abs_epi8((__m512i)q);
}
// Returns x with its sign flipped where q is negative.
BUNTING_INLINE vi with_sign(vi x, vi q) {
  return (vi)_mm512_mask_sub_epi8((__m512i)x, _mm512_movepi8_mask((__m512i)q), __m512i{}, (__m512i)x);
}
#elif defined(__AVX2__)
#define BUNTING_HAS_MADDUBS
BUNTING_INLINE vi pairs_of(vi unsigned_w, vi x) {
  return (vi)_mm256_maddubs_epi16((__m256i)unsigned_w, (__m256i)x);
}
BUNTING_INLINE vi add16(vi a, vi b) {
  return (vi)_mm256_add_epi16((__m256i)a, (__m256i)b);
}
BUNTING_INLINE vi magnitude(vi q) {
  return (vi)_mm256_abs_epi8((__m256i)q);
}
BUNTING_INLINE vi with_sign(vi x, vi q) {
  return (vi)_mm256_sign_epi8((__m256i)x, (__m256i)q);
}
#else
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define BUNTING_HAS_USMMLA
BUNTING_INLINE vi dot(vi sum, vu unsigned_w, vi x) {
  return (vi)vusdotq_s32((int32x4_t)sum, (uint8x16_t)unsigned_w, (int8x16_t)x);
}
// Adds the products of eight k: sums[2i + j] is of column i of w and row j of x.
BUNTING_INLINE vi dot_of_two(vi sums, vu unsigned_w, vi x) {
  return (vi)vusmmlaq_s32((int32x4_t)sums, (uint8x16_t)unsigned_w, (int8x16_t)x);
}
// Replaces the lanes a0 a1 a2 a3 and b0 b1 b2 b3 by a0 b0 a1 b1 and a2 b2 a3 b3; and back.
template <class Vector>
BUNTING_INLINE void interleave(Vector& a, Vector& b) {
  int32x4_t const x = (int32x4_t)a, y = (int32x4_t)b;
  a = (Vector)vzip1q_s32(x, y);
  b = (Vector)vzip2q_s32(x, y);
}
BUNTING_INLINE void separate(vi& a, vi& b) {
  int32x4_t const x = (int32x4_t)a, y = (int32x4_t)b;
  a = (vi)vuzp1q_s32(x, y);
  b = (vi)vuzp2q_s32(x, y);
}
#elif defined(__ARM_FEATURE_DOTPROD)
#define BUNTING_HAS_SDOT
BUNTING_INLINE vi dot(vi sum, vu signed_w, vi x) {
  return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)signed_w, (int8x16_t)x);
}
#endif
typedef int16_t vs __attribute__((vector_size(kLanes * 4)));
// Adds pairs of 16-bit products in 32 bits.
BUNTING_INLINE vi pairs_of(vs a, vs b) {
#if defined(__SSE2__)
  return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
  int16x8_t const x = (int16x8_t)a, y = (int16x8_t)b;
  return (vi)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
#else
  vi const x = (vi)a, y = (vi)b;
  return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}
// Returns two of the four bytes, widened to 16 bits each.
BUNTING_INLINE vs two_of(int32_t x4) {
  return (vs)broadcast((int32_t(int8_t(x4)) & 0xffff) | int32_t(uint32_t(int32_t(int8_t(x4 >> 16))) << 16));
}
#endif

// Returns the sum plus two such products.
BUNTING_INLINE vi add_pairs(vi sum, vi a, vi b) {
#if defined(__AVX512VNNI__)
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#elif defined(__AVXVNNI__)
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
#elif defined(__AVX2__)
  return sum + madd16(a, b);
#else
  return sum + pairs_of((vs)a, (vs)b);
#endif
}

#if defined(BUNTING_HAS_MADDUBS)
// Prevents reassociation. Compilers may turn ((a + b) + c) + d into (a + b) + (c + d) and keep all products
// until then. That needs more registers than there are.
BUNTING_INLINE void keep_order(vi& sum) {
  asm("" : "+v"(sum));
}
#endif

// Looks up the unsigned numbers of 4-bit indices, one index per byte.
template <Dtype W>
BUNTING_INLINE vu look_up(vu indices) {
  // Repeats the table for each 16 bytes of a vector, because the shuffle works within 16 bytes.
  alignas(64) static constexpr struct Table {
    uint8_t of[64];
    constexpr Table() : of() {
      for (int i = 0; i < 64; ++i) of[i] = uint8_t(weight_format(W).levels.of[i % 16] + product_zero(W));
    }
  } kTable;
#if defined(__AVX512BW__)
  return (vu)_mm512_shuffle_epi8(_mm512_load_si512(kTable.of), (__m512i)indices);
#elif defined(__AVX2__)
  __m256i const table = _mm256_load_si256(reinterpret_cast<__m256i const*>(kTable.of));
  return (vu)_mm256_shuffle_epi8(table, (__m256i)indices);
#else
  uint8_t bytes[sizeof indices];
  std::memcpy(bytes, &indices, sizeof bytes);
  for (uint8_t& byte : bytes) byte = kTable.of[byte];
  std::memcpy(&indices, bytes, sizeof bytes);
  return indices;
#endif
}

// Groups per kGroup k, if a group is smaller than kGroup.
template <Dtype W>
inline constexpr int kParts = weight_group(W) < kGroup ? int(kGroup / weight_group(W)) : 1;

// Sums of sixteen columns, for weights of one format and one row.
template <Dtype W>
class Dot {
 public:
  static constexpr int kParts = bunting::BUNTING_ISA::kParts<W>;
  static constexpr int kBytes = kGroup * kPanel * integer_bits(W) / 8;  // bytes of kGroup k in a panel
  struct Weight {
    vu r[kRegisters];
  };

  // Loads step s of kGroup k: k = 4s .. 4s+3 of the columns.
  static BUNTING_INLINE Weight load(char const* values, int step) {
    Weight w;
    for (int i = 0; i < kRegisters; ++i) {
      auto const line = [&](int index) __attribute__((always_inline)) {
        vu bytes;
        std::memcpy(&bytes, values + index * kIntegerLineBytes + i * sizeof bytes, sizeof bytes);
        return bytes;
      };
      w.r[i] = integers_of_step<integer_bits(W)>(line, step);
      if constexpr (has_levels(W)) w.r[i] = look_up<W>(w.r[i]);
    }
    return w;
  }

  // Loads a step of integers that are stored as bytes, register by register. The compiler would copy a struct
  // of several registers through the stack in smaller pieces, and the loads would wait for those stores.
  static BUNTING_INLINE Weight load_widened(uint8_t const* line) {
    Weight w;
    for (vu& r : w.r) {
      std::memcpy(&r, line, sizeof r);
      line += sizeof r;
    }
    return w;
  }
  static BUNTING_INLINE void store_widened(uint8_t* line, Weight const& w) {
    for (vu const& r : w.r) {
      std::memcpy(line, &r, sizeof r);
      line += sizeof r;
    }
  }

  // Initial value of the sums of a group of weights; minus_sum is InputGroup's.
  static BUNTING_INLINE vi excess(int32_t minus_sum) {
    vi x = broadcast(minus_sum);
#if defined(__AVX512VNNI__)
    asm("" : "+v"(x));  // prevents a shift before the broadcast, which would go through a general register
#endif
    return kIsSigned ? vi{} : x << (product_bits(W) - 1);
  }
  // Initial value for one of two parts.
  static BUNTING_INLINE vi excess_of_part(int16_t const (&minus_sums)[2], int part) {
#if defined(__AVX2__)
    if (kIsSigned) return vi{};
    int32_t both;
    std::memcpy(&both, minus_sums, sizeof both);
#if defined(__AVX512VNNI__)
    // Shifts do not wait for the multiply units.
    vi x = broadcast(both);
    asm("" : "+v"(x));  // as in excess()
    constexpr int kShift = 16 - (product_bits(W) - 1);
    return part == 0 ? x << 16 >> kShift : (x & -0x10000) >> kShift;
#else
    // A single multiplication selects and shifts, and leaves the broadcast to the load.
    return madd16(broadcast(both), broadcast(1 << (product_bits(W) - 1 + 16 * part)));
#endif
#else
    return excess(minus_sums[part]);
#endif
  }

  // Starts the sums with that value, or with zero for weights without an excess.
  BUNTING_INLINE void start(vi sum) {
    for (vi& s : sums_) s = sum;
#if defined(BUNTING_HAS_MADDUBS)
    for (vi& pairs : pairs_) pairs = vi{};
#endif
  }

  // Adds w * x; x4 is the row's four int8 at step `step`. Steps come in order, all of a group.
  BUNTING_INLINE void add(Weight const& w, int32_t x4, [[maybe_unused]] int step) {
    for (int i = 0; i < kRegisters; ++i) {
#if defined(BUNTING_HAS_VNNI) || defined(BUNTING_HAS_USMMLA)
      sums_[i] = dot(sums_[i], w.r[i], broadcast(x4));
#elif defined(BUNTING_HAS_SDOT)
      sums_[i] = dot(sums_[i], kIsSigned ? w.r[i] ^ 0x80808080u : w.r[i], broadcast(x4));
#elif defined(BUNTING_HAS_MADDUBS)
      vi const x = broadcast(x4), ones = broadcast(0x00010001);
      if constexpr (kIsSigned) {
        vi const q = (vi)(w.r[i] ^ 0x80808080u);
        sums_[i] += madd16(pairs_of(magnitude(q), with_sign(x, q)), ones);
        keep_order(sums_[i]);
      } else {
        pairs_[i] = add16(pairs_[i], pairs_of((vi)w.r[i], x));
        if (step % kPairSteps == kPairSteps - 1) {
          sums_[i] += madd16(pairs_[i], ones);
          pairs_[i] = vi{};
        }
      }
#else
      sums_[i] += pairs_of((vs)(w.r[i] & 0x00ff00ffu), two_of(x4)) +
                  pairs_of((vs)(w.r[i] >> 8 & 0x00ff00ffu), two_of(x4 >> 8));
#endif
    }
  }

#if defined(BUNTING_HAS_USMMLA)
  // Interleaves the weights of two steps: `low` gets eight k of each of columns 0, 1, 4, 5 …, `high` of the
  // others.
  static BUNTING_INLINE void interleave(Weight& low, Weight& high) {
    for (int i = 0; i < kRegisters; ++i) BUNTING_ISA::interleave(low.r[i], high.r[i]);
  }
  // Interleaves the sums of two rows, as `add_two` needs them; and separates them.
  BUNTING_INLINE void interleave(Dot& other) {
    for (int i = 0; i < kRegisters; ++i) BUNTING_ISA::interleave(sums_[i], other.sums_[i]);
  }
  BUNTING_INLINE void separate(Dot& other) {
    for (int i = 0; i < kRegisters; ++i) BUNTING_ISA::separate(sums_[i], other.sums_[i]);
  }
  // Adds the products of interleaved weights and two rows, of which x has eight k each.
  BUNTING_INLINE void add_two(Dot& other, Weight const& low, Weight const& high, vi x) {
    for (int i = 0; i < kRegisters; ++i) {
      sums_[i] = dot_of_two(sums_[i], low.r[i], x);
      other.sums_[i] = dot_of_two(other.sums_[i], high.r[i], x);
    }
  }
#endif

  // Returns the sums as f32; they are below 2^24, so exact.
  BUNTING_INLINE f32x16 finish() const {
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) y.r[i] = __builtin_convertvector(sums_[i], vf);
    return y;
  }
  // Returns the integer sums of a register.
  BUNTING_INLINE vi integers(int i) const { return sums_[i]; }

 private:
#if defined(BUNTING_HAS_MADDUBS)
  static constexpr bool kIsSigned = product_bits(W) == 8;
  // Steps of a group whose pairs fit 16 bits together. It is at most four, for which registers suffice in any
  // order.
  static constexpr int kPairStepsMost = 4;
  static constexpr int kPairSteps = [] {
    int steps = kPairStepsMost;
    while (steps > 1 && steps * 2 * ((1 << product_bits(W)) - 1) * 127 >= 1 << 15) steps /= 2;
    return steps;
  }();
  vi pairs_[kRegisters];
#elif defined(BUNTING_HAS_SDOT)
  static constexpr bool kIsSigned = product_bits(W) == 8;
#else
  static constexpr bool kIsSigned = false;
#endif
  vi sums_[kRegisters];
};

#if defined(BUNTING_HAS_MADDUBS)
// 16-bit sums of pairs, for weights in superblocks. VPMADDWD multiplies them by the scale of their group
// while it widens them (gemm_super.h), so applying a scale needs no instruction of its own. A part is as many
// steps as fit 16 bits. Formats without a minimum start the sums with the excess of each 16-bit half. Then
// sums of signed weights fit where those of unsigned ones do not, and intermediate overflow wraps back.
template <Dtype W>
class PairDot : public Dot<W> {
 public:
  using typename Dot<W>::Weight;
  static constexpr int kParts = [] {
    int const bits = product_bits(W), most = has_minimum(W) ? (1 << bits) - 1 : 1 << (bits - 1);
    int parts = bunting::BUNTING_ISA::kParts<W>;
    while (kSteps / parts * 2 * 127 * most >= 1 << 15) parts *= 2;
    return parts;
  }();

  BUNTING_INLINE void start(vi excess) {
    for (vi& pairs : pairs_) pairs = excess;
  }
  BUNTING_INLINE void add(Weight const& w, int32_t x4, int) {
    vi const x = broadcast(x4);
    for (int i = 0; i < kRegisters; ++i) {
      pairs_[i] = add16(pairs_[i], pairs_of((vi)w.r[i], x));
      keep_order(pairs_[i]);
    }
  }
  BUNTING_INLINE vi pairs(int i) const { return pairs_[i]; }

 private:
  vi pairs_[kRegisters];
};

// 32-bit sums of weights and inputs of 16 bits, for weights of 8 bits. A step is two k: a line of the even k
// of four, and kSteps lines later one of the odd k.
template <Dtype W>
class WideDot : public Dot<W> {
 public:
  using typename Dot<W>::Weight;
  static constexpr int kLines = 2 * kSteps;  // of kGroup k

  // Stores two lines for four k.
  static BUNTING_INLINE void store_widened(uint8_t* line, Weight const& w) {
    typedef int16_t vs __attribute__((vector_size(kLanes * 4)));
    for (int i = 0; i < kRegisters; ++i, line += sizeof(vs)) {
      vs const q = (vs)(w.r[i] ^ 0x80808080u), even = q << 8 >> 8, odd = q >> 8;
      std::memcpy(line, &even, sizeof even);
      std::memcpy(line + kSteps * kIntegerLineBytes, &odd, sizeof odd);
    }
  }

  BUNTING_INLINE void start(vi start) {
    for (vi& sum : sums_) sum = start;
  }
  BUNTING_INLINE void add(Weight const& w, int32_t x2, int) {
    for (int i = 0; i < kRegisters; ++i) {
      sums_[i] += madd16((vi)w.r[i], broadcast(x2));
      keep_order(sums_[i]);
    }
  }
  BUNTING_INLINE vi integers(int i) const { return sums_[i]; }

 private:
  vi sums_[kRegisters];
};
#endif

BUNTING_INLINE int32_t four_of(InputGroup const& x, int step) {
  int32_t four;
  std::memcpy(&four, x.q + 4 * step, sizeof four);
  return four;
}

// Initial value of the sums of part `part` of kGroup k.
template <Dtype W>
BUNTING_INLINE vi excess_of(InputGroup const& x, int part) {
  if constexpr (has_minimum(W)) return vi{};
  if constexpr (kParts<W> > 1) return Dot<W>::excess_of_part(x.minus_sums, part);
  return Dot<W>::excess(x.minus_sum);
}

}  // namespace bunting::BUNTING_ISA
