// gemm_super.h - GEMM micro-kernel for grouped weights in superblocks on vector registers, R rows times N
// panels. It defines the order of sums that every other kernel for such weights keeps:
//
//   y[t, n] += over rising kGroupMax k, fused:  scale_x * p
//          p = d * float(sum over groups of scale * (sum of q_x q_w)), plus, fused,
//              e * float(sum over groups of minimum * -(sum of q_x)), if groups have minimums
//
// d and e are the superblock's f16 values; scale and minimum of a group are integers. So both sums are exact,
// and a kernel may compute them in any way. The tile kernel folds scales into the weights
// (gemm_folded_tile.h). With VPMADDUBSW scales multiply while sums of pairs are widened. Elsewhere sums that
// f32 cannot hold exactly (Q5_K, Q6_K) are still added in f32, by rising group in every kernel.
#pragma once

#include <type_traits>

#include "cpu/kernels/block_header.h"
#include "cpu/kernels/dot_rows.h"
#include "cpu/kernels/gemm_block.h"

namespace bunting::BUNTING_ISA {

// Number of kGroup that share a scale of the inputs.
inline constexpr int64_t kInputGroups = kGroupMax / kGroup;

// Dot product of a format: with sums of pairs in 16 bits where they fit.
#if defined(BUNTING_HAS_MADDUBS)
template <Dtype W>
inline constexpr bool kScalesPairs = product_bits(W) <= 6;
template <Dtype W>
using SuperDot = std::conditional_t<kScalesPairs<W>, PairDot<W>, Dot<W>>;
#else
template <Dtype W>
inline constexpr bool kScalesPairs = false;
template <Dtype W>
using SuperDot = Dot<W>;
#endif

// Initial values of the sums of parts of kGroupMax k, for R rows.
template <Dtype W, int R>
class Starts {
 public:
  // x: the first of the inputs
  BUNTING_INLINE void find([[maybe_unused]] InputGroup const* x, [[maybe_unused]] int64_t ldx) {
#if defined(BUNTING_HAS_MADDUBS)
    if constexpr (kIsOfPairs) {
      static_assert(PairDot<W>::kParts == 2 && kInputGroups == 4);
      for (int r = 0; r < R; ++r, x += ldx) {
        // Sums of pairs times the zero: one step per 32 bits, one part per 16-bit half.
        __m256i of[4];
        for (int i = 0; i < 4; ++i)
          of[i] = _mm256_maddubs_epi16(_mm256_set1_epi8(product_zero(W)),
                                       _mm256_loadu_si256(reinterpret_cast<__m256i const*>(x[i].q)));
        auto const add_halves = [](__m256i a, __m256i b) __attribute__((always_inline)) {
          return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        };
        __m256i const first = add_halves(of[0], of[1]), second = add_halves(of[2], of[3]);
        __m256i const sums =
            _mm256_add_epi16(_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second));
        __m256i const minus_sums = _mm256_sub_epi16(__m256i{}, sums);
        std::memcpy(pairs_[r], &minus_sums, sizeof minus_sums);
      }
    }
#endif
  }
  // Returns the initial value for row `row`, group `group` and part `part` of x.
  BUNTING_INLINE vi of(InputGroup const& x, int row, int group, int part) const {
    if constexpr (has_minimum(W))
      return vi{};
    else if constexpr (kIsOfPairs)
      return broadcast(pairs_[row][part][group]);
    else
      return excess_of<W>(x, part);
  }

 private:
  static constexpr bool kIsOfPairs = kScalesPairs<W> && !has_minimum(W);
  int32_t pairs_[kIsOfPairs ? R : 1][2][4];
};

// Sum over groups of scale * (sum of q_x q_w), of sixteen columns and kGroupMax k.
template <Dtype W>
class ScaledSum {
 public:
  // In f32 one fused multiply-add replaces three instructions. With tiles the sum is in f32 only if f32 holds
  // every possible value exactly.
#if defined(BUNTING_AMX_EMULATED) || defined(__AMX_INT8__)
  static constexpr bool kIsFloat = int64_t{largest_scaled(W)} * 127 * kGroupMax <= 1 << 24;
#else
  static constexpr bool kIsFloat = !kScalesPairs<W>;
#endif
  using Lanes = std::conditional_t<kIsFloat, vf, vi>;

  // Integer scales of a group in the type of the multiplication.
  struct Scales {
    Lanes r[kRegisters];
  };
  static BUNTING_INLINE Scales scales(char const* header, int64_t group) {
    vi integers[kRegisters];
    BlockHeader<W>::integer_scales(header, group, integers);
    Scales s;
    for (int i = 0; i < kRegisters; ++i) {
      if constexpr (kIsFloat)
        s.r[i] = __builtin_convertvector(integers[i], vf);
      else if constexpr (kScalesPairs<W>)
        s.r[i] = (integers[i] & 0xffff) | integers[i] << 16;
      else
        s.r[i] = integers[i];
    }
    return s;
  }

  BUNTING_INLINE void start() {
    for (int i = 0; i < kRegisters; ++i) sums_[i] = Lanes{};
  }
  template <class D>
  BUNTING_INLINE void add(D const& dot, Scales const& scales) {
    for (int i = 0; i < kRegisters; ++i) {
      if constexpr (kScalesPairs<W>)
        sums_[i] = add_pairs(sums_[i], dot.pairs(i), scales.r[i]);
      else if constexpr (kIsFloat)
        sums_[i] = fma(__builtin_convertvector(dot.integers(i), vf), scales.r[i], sums_[i]);
      else
        sums_[i] += dot.integers(i) * scales.r[i];
    }
  }
  BUNTING_INLINE f32x16 value() const {
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) {
      if constexpr (kIsFloat)
        y.r[i] = sums_[i];
      else
        y.r[i] = __builtin_convertvector(sums_[i], vf);
    }
    return y;
  }

 private:
  Lanes sums_[kRegisters];
};

// Sum over groups of minimum * -(sum of q_x), of sixteen columns and kGroupMax k, two groups at a time.
template <Dtype W>
class MinimumSum {
 public:
  static constexpr int kPairs = int(kInputGroups) * kParts<W> / 2;  // pairs of groups

  // Integer minimums of groups `group` and `group` + 1, in pairs of 16 bits.
  struct Pair {
    vi r[kRegisters];
  };
  static BUNTING_INLINE Pair minimums(char const* header, int64_t group) {
    vi first[kRegisters], second[kRegisters];
    BlockHeader<W>::integer_minimums(header, group, first);
    BlockHeader<W>::integer_minimums(header, group + 1, second);
    Pair pair;
    for (int i = 0; i < kRegisters; ++i) pair.r[i] = first[i] | second[i] << 16;
    return pair;
  }
  // Returns the factor of pair `pair`.
  static BUNTING_INLINE vi minus_sums(InputGroup const* x, int pair) {
    int32_t two;
    std::memcpy(&two, x[pair * 2 / kParts<W>].minus_sums, sizeof two);
    return broadcast(two);
  }

  BUNTING_INLINE void start() {
    for (vi& sum : sums_) sum = vi{};
  }
  BUNTING_INLINE void add(Pair const& minimums, vi minus_sums) {
    for (int i = 0; i < kRegisters; ++i) sums_[i] = add_pairs(sums_[i], minimums.r[i], minus_sums);
  }
  // Returns the sum as f32; it is far below 2^24, so exact.
  BUNTING_INLINE f32x16 value() const {
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) y.r[i] = __builtin_convertvector(sums_[i], vf);
    return y;
  }

 private:
  vi sums_[kRegisters];
};

template <Dtype W, int R, int N>
void multiply_superblocks(InputGroup const* x, int64_t ldx, Slice const& s) {
  using D = SuperDot<W>;
  using Header = BlockHeader<W>;
  constexpr int kPartSteps = kSteps / D::kParts, kGroups = int(kInputGroups) * kParts<W>;
  f32x16 sums[R][N];
  begin_sums(sums, s);
  asm volatile("" : : "r"(&sums) : "memory");  // keeps the sums out of the registers, which hold integers
  char const *at = s.w, *header = s.w, *fetch = s.fetch.from, *turn = s.w + s.fetch.turn;
  auto const fetch_line = [&]() __attribute__((always_inline)) {
    for (int n = 0; n < N; ++n) __builtin_prefetch(fetch + n * s.panel_stride);
    fetch += s.fetch.step;
  };
  for (int64_t k = 0; k < s.k; k += kGroupMax) {
    bool const begins_block = k % kSuper == 0;
    if (begins_block) {
      header = at;
      at += Header::kBytes;
      for (int line = 0; line < Header::kBytes / kLine; ++line) fetch_line();
    }
    int64_t const first_group = begins_block ? 0 : kGroups;
    ScaledSum<W> scaled[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) scaled[r][n].start();
    Starts<W, R> starts;
    starts.find(x, ldx);
    for (int i = 0; i < kInputGroups; ++i, ++x, at += D::kBytes) {
      if (at >= turn) {
        fetch = s.fetch.after;
        turn = s.w + s.panel_stride;
      }
#pragma GCC unroll 2  // makes steps and shifts constants
      for (int part = 0; part < D::kParts; ++part) {
        D dots[kDotRows<R>][N];
        for (int r = 0; r < R; ++r) {
          vi const start = starts.of(x[r * ldx], r, i, part);
          for (int n = 0; n < N; ++n) dots[r][n].start(start);
        }
        begin_rows<R>(dots);
#pragma GCC unroll 8
        for (int step = part * kPartSteps; step < (part + 1) * kPartSteps; ++step) {
          if (step < D::kBytes / kLine) fetch_line();
          add_step<R>(dots, at, s.panel_stride, x, ldx, step);
        }
        end_rows(dots);
        for (int n = 0; n < N; ++n) {
          int const group = (i * D::kParts + part) * kParts<W> / D::kParts;
          auto const scales = ScaledSum<W>::scales(header + n * s.panel_stride, first_group + group);
          for (int r = 0; r < R; ++r) scaled[r][n].add(dots[r][n], scales);
        }
      }
    }
    f32x16 products[R][N];
    MinimumSum<W> minimum_sums[R][N];
    for (int r = 0; r < R && has_minimum(W); ++r)
      for (int n = 0; n < N; ++n) minimum_sums[r][n].start();
    for (int pair = 0; pair < MinimumSum<W>::kPairs && has_minimum(W); ++pair)
      for (int n = 0; n < N; ++n) {
        auto const minimums = MinimumSum<W>::minimums(header + n * s.panel_stride, first_group + 2 * pair);
        for (int r = 0; r < R; ++r)
          minimum_sums[r][n].add(minimums, MinimumSum<W>::minus_sums(x + r * ldx - kInputGroups, pair));
      }
    for (int n = 0; n < N; ++n) {
      f32x16 const factors = Header::factors(header + n * s.panel_stride);
      if constexpr (has_minimum(W)) {
        f32x16 const minimum_factors = Header::minimum_factors(header + n * s.panel_stride);
        for (int r = 0; r < R; ++r)
          products[r][n] = fma(scaled[r][n].value(), factors, minimum_sums[r][n].value() * minimum_factors);
      } else {
        for (int r = 0; r < R; ++r) products[r][n] = scaled[r][n].value() * factors;
      }
    }
    for (int r = 0; r < R; ++r) {
      f32x16 const scale = set1(x[r * ldx - 1].scale);
      for (int n = 0; n < N; ++n) sums[r][n] = fma(products[r][n], scale, sums[r][n]);
    }
    asm volatile("" : : "r"(&sums) : "memory");
  }
  end_sums(sums, s);
}

}  // namespace bunting::BUNTING_ISA
