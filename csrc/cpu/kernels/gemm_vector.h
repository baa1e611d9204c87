// gemm_vector.h - GEMM micro-kernels on vector registers: R rows times N panels, all R*N sums in registers.
// The arithmetic is one of the kinds of multiply_add.h. If that kind widens bf16 weights, the kernel widens
// the rows into a buffer once per block.
#pragma once

#include "cpu/kernels/gemm_block.h"
#include "cpu/kernels/multiply_add.h"

namespace bunting::BUNTING_ISA {

// Sums that fit the register file beside a group's weights and one input, and the most rows and panels of a
// group. Each panel is a stream from memory. More than four streams are slower, and so is a third one with
// seven or eight rows.
#if defined(__AVX512F__)
inline constexpr int kSums = 24, kRowsMost = 8, kPanelsMost = 4;
#elif defined(__AVX2__)
inline constexpr int kSums = 5, kRowsMost = 5, kPanelsMost = 4;
#elif defined(__aarch64__)
inline constexpr int kSums = 5, kRowsMost = 5, kPanelsMost = 4;
#else
inline constexpr int kSums = 2, kRowsMost = 2, kPanelsMost = 2;
#endif

constexpr int most_panels(int rows) {
  int const panels = rows > 6 ? 2 : kSums / rows;
  return panels < kPanelsMost ? panels : kPanelsMost;
}

template <class A, int R, int N>
void multiply_block(typename A::Input const* x, int64_t ldx, Slice const& s) {
  f32x16 sums[R][N];
  begin_sums(sums, s);
  // Two separate loops, so that the compiler keeps the sums of each in registers.
  int64_t at = 0;
  auto const multiply_to = [&](int64_t end, char const* fetch) __attribute__((always_inline)) {
    for (; at < end; at += kStepBytes, x += A::kStep, fetch += s.fetch.step) {
      char const* panels[N];
      for (int n = 0; n < N; ++n) {
        panels[n] = s.w + at + n * s.panel_stride;
        __builtin_prefetch(fetch + n * s.panel_stride);
      }
      step<A>(sums, x, ldx, panels);
    }
  };
  multiply_to(s.fetch.turn, s.fetch.from);
  multiply_to(s.k / A::kStep * kStepBytes, s.fetch.after);
  end_sums(sums, s);
}

template <class A>
struct VectorMicro {
  static constexpr int kRows = kRowsMost;
  static constexpr bool kWiden = A::kParts == 2;
  static constexpr int64_t kWidened = 8192;  // floats; 32 KB

  struct State {
    typename A::Input const* x;
    int64_t ldx;
    alignas(64) float widened[kWiden ? kWidened : 1];
  };

  static int64_t k_block(int64_t tokens) {
    if (tokens > kRows) return 1024;
    return kWiden ? kWidened / tokens / kKAlign * kKAlign : int64_t{1} << 40;
  }

  static int64_t next_rows(int64_t left) { return next_group(left, kRows); }
  static int64_t panels(int64_t rows) { return panels_of(int(rows)); }

  static void prepare(State& state, Gemm const& g, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    if constexpr (kWiden) {
      bf16 const* x = static_cast<bf16 const*>(g.x) + first * g.ldx + k0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < k; i += 16) store(state.widened + r * k + i, load_bf16(x + r * g.ldx + i));
      state.x = state.widened;
      state.ldx = k;
    } else {
      state.x = static_cast<typename A::Input const*>(g.x) + first * g.ldx + k0;
      state.ldx = g.ldx;
    }
  }

  using Block = void (*)(typename A::Input const*, int64_t, Slice const&);
  template <int R, int N>
  static constexpr Block kBlock = multiply_block<A, R, N>;
  static constexpr int panels_of(int rows) { return most_panels(rows); }

  static void multiply(State const& state, int64_t rows, int64_t panels, Slice const& slice) {
    static constexpr BlockTable<VectorMicro, kRowsMost, kPanelsMost> kBlocks;
    kBlocks.at[rows - 1][panels - 1](state.x, state.ldx, slice);
  }
};

}  // namespace bunting::BUNTING_ISA
