// dot_rows.h - sums of several rows and panels: one row after the other or, with USMMLA, two rows at a time.
//
// USMMLA multiplies two columns by two rows over eight k. A packed line has four k of each column, so the
// kernels interleave two steps of weights in registers: one instruction for each register, for all rows. The
// sums of two rows are interleaved from the begin of a group to its end. They are the same integers.
#pragma once

#include "cpu/kernels/dot.h"

namespace bunting::BUNTING_ISA {

#if defined(BUNTING_HAS_USMMLA)
inline constexpr bool kHasPairs = true;
#else
inline constexpr bool kHasPairs = false;
#endif

// Number of sums for R rows: an odd row has a spare sum beside it. A single row alone needs no pair, unless
// its weights are interleaved already.
template <int R, bool kAreInterleaved = false>
inline constexpr int kDotRows = kHasPairs && (R > 1 || kAreInterleaved) ? R + R % 2 : R;
template <int kRows>
inline constexpr bool kArePaired = kHasPairs && kRows > 1;

// Prepares sums with their initial values for products, and sums of products for their use.
template <int R, class D, int kRows, int N>
BUNTING_INLINE void begin_rows([[maybe_unused]] D (&dots)[kRows][N]) {
#if defined(BUNTING_HAS_USMMLA)
#pragma GCC unroll 8
  for (int r = 0; r + 1 < kRows; r += 2)
    for (int n = 0; n < N; ++n) {
      if (r + 1 == R) dots[r + 1][n] = dots[r][n];
      dots[r][n].interleave(dots[r + 1][n]);
    }
#endif
}
template <class D, int kRows, int N>
BUNTING_INLINE void end_rows([[maybe_unused]] D (&dots)[kRows][N]) {
#if defined(BUNTING_HAS_USMMLA)
#pragma GCC unroll 8
  for (int r = 0; r + 1 < kRows; r += 2)
    for (int n = 0; n < N; ++n) dots[r][n].separate(dots[r + 1][n]);
#endif
}

#if defined(BUNTING_HAS_USMMLA)
// Adds the products of the interleaved weights of steps `step` and `step` + 1.
template <int R, class D, int kRows, int N>
BUNTING_INLINE void add_two_steps(D (&dots)[kRows][N], typename D::Weight const (&low)[N],
                                  typename D::Weight const (&high)[N], InputGroup const* x, int64_t ldx,
                                  int step) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; r += 2) {
    auto const eight_of = [&](int row)
                              __attribute__((always_inline)) { return vld1_s8(x[row * ldx].q + 4 * step); };
    vi const inputs = (vi)vcombine_s8(eight_of(r), eight_of(r + 1 < R ? r + 1 : r));
    for (int n = 0; n < N; ++n) dots[r][n].add_two(dots[r + 1][n], low[n], high[n], inputs);
  }
}
#endif

// Adds the products of a step of packed weights; with pairs of rows those of two steps at the second one.
template <int R, class D, int kRows, int N>
BUNTING_INLINE void add_step(D (&dots)[kRows][N], char const* at, int64_t const& panel_stride,
                             InputGroup const* x, int64_t ldx, int step) {
  typename D::Weight weights[N];
#if defined(BUNTING_HAS_USMMLA)
  if constexpr (kArePaired<kRows>) {
    if (step % 2 == 0) return;
    typename D::Weight low[N];
    for (int n = 0; n < N; ++n) {
      low[n] = D::load(at + n * panel_stride, step - 1);
      weights[n] = D::load(at + n * panel_stride, step);
      D::interleave(low[n], weights[n]);
    }
    return add_two_steps<R>(dots, low, weights, x, ldx, step - 1);
  }
#endif
  for (int n = 0; n < N; ++n) weights[n] = D::load(at + n * panel_stride, step);
  for (int r = 0; r < R; ++r) {
    int32_t const four = four_of(x[r * ldx], step);
    for (int n = 0; n < N; ++n) dots[r][n].add(weights[n], four, step);
  }
}

}  // namespace bunting::BUNTING_ISA
