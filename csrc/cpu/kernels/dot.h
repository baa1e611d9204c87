// dot.h - sixteen columns of grouped weights times four k of one row, exactly, for every instruction set.
//
// Dot<Bits>, of weights with so many, has
//   kBytes                       of kGroup k in a panel (integer_layout.h)
//   Weight load(values, step)    step s (k = 4s .. 4s+3 of them) of 16 columns
//   Sum start(minus_sum)         of a row and a group; minus_sum is InputGroup's
//   Sum add(sum, weight, x4)     += w * x, x4 the four int8 of the row at that step
//   Sum end_steps(sum)           after the steps of each kGroup
//   f32x16 finish(sum)           the sums of the products, as f32 (they are below 2^24: exact)
//
// Weights are stored as unsigned numbers, q + 128, q + 32 or q + 8. VPDPBUSD multiplies unsigned weights by
// signed inputs, and minus_sum times the zero takes the excess away. Without it, VPMADDUBSW adds pairs of
// products in 16 bits: for q4 eight of them fit (8 * 2 * 15 * 127 < 2^15), for q6 two (2 * 2 * 63 * 127); for
// q8 the weights are made signed first, and their signs are moved to the inputs (2 * 128 * 127 < 2^15).
// Elsewhere products of 16 bits are added in pairs.
#pragma once

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

inline constexpr int kSteps = kGroup / 4;  // of kGroup k

#if defined(__AVX2__)

// One machine register of bytes, and what is done with it.
#if defined(__AVX512BW__)
struct Bytes {
  using Vector = __m512i;
  static constexpr int kCount = 1;  // registers for 16 columns
  struct Signed {
    Vector magnitude;
    __mmask64 negative;
  };
  static BUNTING_INLINE Vector load(char const* p) { return _mm512_loadu_si512(p); }
  static BUNTING_INLINE Vector set(int32_t x4) { return _mm512_set1_epi32(x4); }
  static BUNTING_INLINE Vector zero() { return _mm512_setzero_si512(); }
  static BUNTING_INLINE Vector low(Vector x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static BUNTING_INLINE Vector high(Vector x) { return low(_mm512_srli_epi16(x, 4)); }
  // The two bits from kBit on of every byte of y, above the four of x.
  template <int kBit>
  static BUNTING_INLINE Vector join(Vector x, Vector y) {
    Vector const moved = kBit > 4 ? _mm512_srli_epi16(y, kBit - 4) : _mm512_slli_epi16(y, 4 - kBit);
    return _mm512_ternarylogic_epi32(x, moved, _mm512_set1_epi8(0x30), 0xf8);  // x | moved & 0x30
  }
  static BUNTING_INLINE Signed to_signed(Vector x) {  // from q + 128
    Vector const q = _mm512_xor_si512(x, _mm512_set1_epi8(-128));
    return {_mm512_abs_epi8(q), _mm512_movepi8_mask(q)};
  }
  static BUNTING_INLINE Vector with_sign(Vector x, Signed of) {
    return _mm512_mask_sub_epi8(x, of.negative, zero(), x);
  }
  static BUNTING_INLINE Vector pairs(Vector unsigned_w, Vector x) {
    return _mm512_maddubs_epi16(unsigned_w, x);
  }
  static BUNTING_INLINE Vector add16(Vector a, Vector b) { return _mm512_add_epi16(a, b); }
  static BUNTING_INLINE Vector add32(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
  static BUNTING_INLINE Vector widen(Vector x) { return _mm512_madd_epi16(x, _mm512_set1_epi16(1)); }
  static BUNTING_INLINE vf to_f32(Vector x) { return __builtin_convertvector((vi)x, vf); }
#if defined(__AVX512VNNI__)
  // Shifted before they are broadcast, numbers would go through a general register.
  template <int Bits>
  static BUNTING_INLINE Vector shift_left(Vector x) {
    asm("" : "+v"(x));
    return (Vector)((vi)x << Bits);
  }
  // Compilers copy the sums of a loop from one register to another around the intrinsic.
  static BUNTING_INLINE Vector dot(Vector sum, Vector unsigned_w, Vector x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_w), "v"(x));
    return sum;
  }
#endif
};
#else
struct Bytes {
  using Vector = __m256i;
  static constexpr int kCount = 2;
  struct Signed {
    Vector magnitude, q;
  };
  static BUNTING_INLINE Vector load(char const* p) {
    return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(p));
  }
  static BUNTING_INLINE Vector set(int32_t x4) { return _mm256_set1_epi32(x4); }
  static BUNTING_INLINE Vector zero() { return _mm256_setzero_si256(); }
  static BUNTING_INLINE Vector low(Vector x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
  static BUNTING_INLINE Vector high(Vector x) { return low(_mm256_srli_epi16(x, 4)); }
  template <int kBit>
  static BUNTING_INLINE Vector join(Vector x, Vector y) {
    Vector const moved = kBit > 4 ? _mm256_srli_epi16(y, kBit - 4) : _mm256_slli_epi16(y, 4 - kBit);
    return _mm256_or_si256(x, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }
  static BUNTING_INLINE Signed to_signed(Vector x) {
    Vector const q = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
    return {_mm256_abs_epi8(q), q};
  }
  static BUNTING_INLINE Vector with_sign(Vector x, Signed of) { return _mm256_sign_epi8(x, of.q); }
  static BUNTING_INLINE Vector pairs(Vector unsigned_w, Vector x) {
    return _mm256_maddubs_epi16(unsigned_w, x);
  }
  static BUNTING_INLINE Vector add16(Vector a, Vector b) { return _mm256_add_epi16(a, b); }
  static BUNTING_INLINE Vector add32(Vector a, Vector b) { return _mm256_add_epi32(a, b); }
  static BUNTING_INLINE Vector widen(Vector x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }
  static BUNTING_INLINE vf to_f32(Vector x) { return _mm256_cvtepi32_ps(x); }
#if defined(__AVXVNNI__)
  template <int Bits>
  static BUNTING_INLINE Vector shift_left(Vector x) {
    return (Vector)((vi)x << Bits);
  }
  static BUNTING_INLINE Vector dot(Vector sum, Vector unsigned_w, Vector x) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_w), "x"(x));
    return sum;
  }
#endif
};
#endif

// Bytes of 16 columns.
struct ColumnBytes {
  Bytes::Vector part[Bytes::kCount];
};
inline constexpr int kRegisterBytes = int(sizeof(Bytes::Vector));

// A step of unsigned numbers of so many bits.
template <int Bits>
BUNTING_INLINE ColumnBytes load_unsigned(char const* values, int step) {
  auto const line = [&](int index, int i) __attribute__((always_inline)) {
    return Bytes::load(values + index * 64 + i * kRegisterBytes);
  };
  ColumnBytes w;
  for (int i = 0; i < Bytes::kCount; ++i) {
    auto& part = w.part[i];
    if constexpr (Bits == 8) {
      part = line(step, i);
      continue;
    }
    part = step < 4 ? Bytes::low(line(step, i)) : Bytes::high(line(step - 4, i));
    if constexpr (Bits == 6) {
      auto const others = line(4 + step % 2, i);
      part = step < 2   ? Bytes::join<0>(part, others)
             : step < 4 ? Bytes::join<2>(part, others)
             : step < 6 ? Bytes::join<4>(part, others)
                        : Bytes::join<6>(part, others);
    }
  }
  return w;
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)

template <int Bits>
struct Dot {
  static constexpr int kBytes = kGroup * kPanel * Bits / 8;
  using Weight = ColumnBytes;
  using Sum = ColumnBytes;

  static BUNTING_INLINE Weight load(char const* values, int step) {
    return load_unsigned<Bits>(values, step);
  }
  static BUNTING_INLINE Sum start(int32_t minus_sum) {
    Sum sum;
    for (auto& part : sum.part) part = Bytes::shift_left<Bits - 1>(Bytes::set(minus_sum));
    return sum;
  }
  static BUNTING_INLINE Sum add(Sum sum, Weight const& w, int32_t x4) {
    Bytes::Vector const x = Bytes::set(x4);
    for (int i = 0; i < Bytes::kCount; ++i) sum.part[i] = Bytes::dot(sum.part[i], w.part[i], x);
    return sum;
  }
  static BUNTING_INLINE Sum end_steps(Sum sum) { return sum; }
  static BUNTING_INLINE f32x16 finish(Sum const& sum) {
    f32x16 y;
    for (int i = 0; i < Bytes::kCount; ++i) y.r[i] = Bytes::to_f32(sum.part[i]);
    return y;
  }
};

#else

template <int Bits>
struct Dot {
  static constexpr int kBytes = kGroup * kPanel * Bits / 8;
  struct SumQ4 {
    Bytes::Vector part[Bytes::kCount];   // 32 bits: of the groups before
    Bytes::Vector pairs[Bytes::kCount];  // 16 bits: of this one
  };
  using Sum = std::conditional_t<Bits == 4, SumQ4, ColumnBytes>;
  struct WeightQ8 {
    Bytes::Signed part[Bytes::kCount];
  };
  using Weight = std::conditional_t<Bits == 8, WeightQ8, ColumnBytes>;

  static BUNTING_INLINE Weight load(char const* values, int step) {
    ColumnBytes const bytes = load_unsigned<Bits>(values, step);
    if constexpr (Bits == 8) {
      Weight w;
      for (int i = 0; i < Bytes::kCount; ++i) w.part[i] = Bytes::to_signed(bytes.part[i]);
      return w;
    } else {
      return bytes;
    }
  }
  static BUNTING_INLINE Sum start(int32_t minus_sum) {
    Sum sum;
    for (int i = 0; i < Bytes::kCount; ++i) {
      sum.part[i] = Bits == 8 ? Bytes::zero() : Bytes::set(minus_sum << (Bits - 1));
      if constexpr (Bits == 4) sum.pairs[i] = Bytes::zero();
    }
    return sum;
  }
  static BUNTING_INLINE Sum add(Sum sum, Weight const& w, int32_t x4) {
    Bytes::Vector const x = Bytes::set(x4);
    for (int i = 0; i < Bytes::kCount; ++i) {
      if constexpr (Bits == 4) {
        sum.pairs[i] = Bytes::add16(sum.pairs[i], Bytes::pairs(w.part[i], x));
      } else if constexpr (Bits == 6) {
        sum.part[i] = Bytes::add32(sum.part[i], Bytes::widen(Bytes::pairs(w.part[i], x)));
      } else {
        Bytes::Vector const products = Bytes::pairs(w.part[i].magnitude, Bytes::with_sign(x, w.part[i]));
        sum.part[i] = Bytes::add32(sum.part[i], Bytes::widen(products));
      }
    }
    return sum;
  }
  static BUNTING_INLINE Sum end_steps(Sum sum) {
    if constexpr (Bits == 4) {
      for (int i = 0; i < Bytes::kCount; ++i) {
        sum.part[i] = Bytes::add32(sum.part[i], Bytes::widen(sum.pairs[i]));
        sum.pairs[i] = Bytes::zero();
      }
    }
    return sum;
  }
  static BUNTING_INLINE f32x16 finish(Sum const& sum) {
    f32x16 y;
    for (int i = 0; i < Bytes::kCount; ++i) y.r[i] = Bytes::to_f32(sum.part[i]);
    return y;
  }
};

#endif

#else

// Registers of four 32-bit lanes. Eight products of 16 bits are the four k of two columns; two neighbours are
// added in the halves of a 32-bit lane, so that two lanes make a column.
template <int Bits>
struct Dot {
  static constexpr int kBytes = kGroup * kPanel * Bits / 8;
  static constexpr int kColumnPairs = kPanel / 2;
  typedef int16_t vs __attribute__((vector_size(16)));
  typedef uint8_t vb __attribute__((vector_size(8)));
  struct Weight {
    vs pair[kColumnPairs];
  };
  struct Sum {
    vi pair[kColumnPairs];
  };

  static BUNTING_INLINE vs widened(char const* from) {
    vb bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, vs);
  }
  static BUNTING_INLINE Weight load(char const* values, int step) {
    Weight w;
    for (int i = 0; i < kColumnPairs; ++i) {
      vs& pair = w.pair[i];
      pair = widened(values + (Bits == 8 ? step : step % 4) * 64 + i * 8);
      if (Bits < 8) pair = pair >> (step / 4 * 4) & 15;
      if (Bits == 6) pair |= (widened(values + (4 + step % 2) * 64 + i * 8) >> (step / 2 * 2) & 3) << 4;
      pair -= int16_t(1 << (Bits - 1));
    }
    return w;
  }
  static BUNTING_INLINE Sum start(int32_t) { return {}; }
  static BUNTING_INLINE Sum add(Sum sum, Weight const& w, int32_t x4) {
    int16_t const x0 = int8_t(x4), x1 = int8_t(x4 >> 8), x2 = int8_t(x4 >> 16), x3 = int8_t(x4 >> 24);
    vs const x = {x0, x1, x2, x3, x0, x1, x2, x3};
    for (int i = 0; i < kColumnPairs; ++i) {
#if defined(__SSE2__)
      sum.pair[i] += (vi)_mm_madd_epi16((__m128i)w.pair[i], (__m128i)x);
#else
      vi const products = (vi)(w.pair[i] * x);
      sum.pair[i] += ((products << 16) >> 16) + (products >> 16);
#endif
    }
    return sum;
  }
  static BUNTING_INLINE Sum end_steps(Sum sum) { return sum; }
  static BUNTING_INLINE f32x16 finish(Sum const& sum) {
    float columns[kPanel];
    for (int i = 0; i < kColumnPairs; ++i) {
      columns[2 * i] = float(sum.pair[i][0] + sum.pair[i][1]);
      columns[2 * i + 1] = float(sum.pair[i][2] + sum.pair[i][3]);
    }
    return ::bunting::BUNTING_ISA::load(columns);
  }
};

#endif

}  // namespace bunting::BUNTING_ISA
