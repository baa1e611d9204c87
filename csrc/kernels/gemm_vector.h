// gemm_vector.h - GEMM micro-kernels on vector registers: R rows times N panels, all R*N sums in registers.
//
// One step is 64 bytes of each panel. Every weight loaded serves R rows and every input broadcast serves N
// panels; R*N sums hide the latency of the multiply-add. Three kinds of arithmetic share the kernel:
//   PairBf16     bf16 pairs by VDPBF16PS (AVX512-BF16)
//   WidenedBf16  bf16 weights widened to f32 in registers; the rows are widened once per block, into a buffer
//   PlainF32     f32
#pragma once

#include <utility>

#include "kernels/gemm_block.h"

namespace bunting::BUNTING_ISA {

#if defined(__AVX512BF16__)
struct PairBf16 {
  using Input = bf16;
  static constexpr int kStep = 2, kParts = 1;
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

struct WidenedBf16 {
  using Input = float;
  static constexpr int kStep = 2, kParts = 2;  // the even k of the pairs, then the odd ones
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

struct PlainF32 {
  using Input = float;
  static constexpr int kStep = 1, kParts = 1;
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

// Sums that fit the register file beside a group's weights and one input, and the most rows and panels of a
// group.
#if defined(__AVX512F__)
inline constexpr int kSums = 24, kRowsMost = 8, kPanelsMost = 8;
#elif defined(__AVX2__)
inline constexpr int kSums = 5, kRowsMost = 5, kPanelsMost = 4;
#elif defined(__aarch64__)
inline constexpr int kSums = 5, kRowsMost = 5, kPanelsMost = 4;
#else
inline constexpr int kSums = 2, kRowsMost = 2, kPanelsMost = 2;
#endif

constexpr int most_panels(int rows) {
  int const panels = kSums / rows;
  return panels < kPanelsMost ? panels : kPanelsMost;
}

template <class A, int R, int N, int Part>
BUNTING_INLINE void step(f32x16 (&sums)[R][N], typename A::Input const* x, int64_t ldx, char const* w,
                         int64_t panel_stride) {
  if constexpr (R >= N) {
    typename A::Weight weights[N];
    for (int n = 0; n < N; ++n) weights[n] = A::template weight<Part>(w + n * panel_stride);
    for (int r = 0; r < R; ++r) {
      auto const input = A::template input<Part>(x + r * ldx);
      for (int n = 0; n < N; ++n) sums[r][n] = A::multiply_add(input, weights[n], sums[r][n]);
    }
  } else {
    decltype(A::template input<Part>(x)) inputs[R];
    for (int r = 0; r < R; ++r) inputs[r] = A::template input<Part>(x + r * ldx);
    for (int n = 0; n < N; ++n) {
      auto const weight = A::template weight<Part>(w + n * panel_stride);
      for (int r = 0; r < R; ++r) sums[r][n] = A::multiply_add(inputs[r], weight, sums[r][n]);
    }
  }
}

template <class A, int R, int N>
void multiply_block(typename A::Input const* x, int64_t ldx, Slice const& s) {
  f32x16 sums[R][N];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      float const* y = s.y + r * s.ldy + n * kPanel;
      sums[r][n] = s.start_at_zero ? zero() : n + 1 < N ? load(y) : load_first(y, s.last_columns);
    }
  }
  char const* w = s.w;
  for (int64_t k = 0; k < s.k; k += A::kStep, x += A::kStep, w += kStepBytes) {
    for (int n = 0; n < N; ++n) __builtin_prefetch(w + n * s.panel_stride + kPrefetchBytes);
    step<A, R, N, 0>(sums, x, ldx, w, s.panel_stride);
    if constexpr (A::kParts == 2) step<A, R, N, 1>(sums, x, ldx, w, s.panel_stride);
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      float* y = s.y + r * s.ldy + n * kPanel;
      if (n + 1 < N)
        store(y, sums[r][n]);
      else
        store_first(y, sums[r][n], s.last_columns);
    }
  }
}

template <class A>
struct VectorMicro {
  static constexpr int kRows = kRowsMost, kStep = A::kStep;
  static constexpr int64_t kStepBytes = BUNTING_ISA::kStepBytes;
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
  static int64_t panels(int64_t rows) { return most_panels(int(rows)); }

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

  template <int Row, int... Panel>
  static constexpr void fill(Block (&row)[kPanelsMost], std::integer_sequence<int, Panel...>) {
    ((row[Panel] = multiply_block<A, Row + 1, Panel + 1>), ...);
  }
  template <int... Row>
  static constexpr auto table(std::integer_sequence<int, Row...>) {
    struct {
      Block at[kRowsMost][kPanelsMost] = {};
    } all;
    (fill<Row>(all.at[Row], std::make_integer_sequence<int, most_panels(Row + 1)>{}), ...);
    return all;
  }

  static void multiply(State const& state, int64_t rows, int64_t panels, Slice const& slice) {
    static constexpr auto kBlocks = table(std::make_integer_sequence<int, kRowsMost>{});
    kBlocks.at[rows - 1][panels - 1](state.x, state.ldx, slice);
  }
};

}  // namespace bunting::BUNTING_ISA
