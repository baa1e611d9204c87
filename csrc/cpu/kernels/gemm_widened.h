// gemm_widened.h - the GEMM micro-kernel for grouped weights and many rows, on vector registers.
//
// A block of integers is unpacked once, into a byte each, with the scales of its groups as f32. All rows then
// pass over the bytes, which stay in the L1 cache: what the few rows of gemm_grouped.h pay for each line of
// weights (shifts, masks, the product of two scales) is paid once here, however many rows there are. The sums
// are those of gemm_grouped.h, in the same order, and so are the bits.
//
// Loops, outermost first: chunks of panels, whose sums stay in the L2 cache while the blocks of k pass;
// blocks of k, whose inputs stay there while the panels pass; pairs of panels, unpacked here; blocks of rows.
// These fetch the packed weights that are unpacked next, in equal parts.
#pragma once

#include "cpu/kernels/gemm_grouped.h"

namespace bunting::BUNTING_ISA {

inline constexpr int64_t kWidenedRowsLeast = 13;
inline constexpr int kWidenedPanels = 2;
inline constexpr int64_t kWidenedK = 512;    // of a block of k: 16 KB of bytes
inline constexpr int64_t kWidenedChunk = 8;  // panels

// A block of k of some panels, unpacked.
template <Dtype W>
struct Widened {
  static constexpr int64_t kGroups = kWidenedK / weight_group(W);
  struct Panel {
    alignas(64) uint8_t q[kWidenedK * kPanel];  // lines of four k of every column
    float scales[kGroups * kPanel];
    float minimums[has_minimum(W) ? kGroups * kPanel : kPanel];  // one row of nothing, if there are none
  };
  Panel panels[kWidenedPanels];
};

// k of a panel from `at` on.
template <Dtype W>
BUNTING_INLINE void widen_panel(typename Widened<W>::Panel& to, char const* at, int64_t k) {
  using D = Dot<W>;
  using Header = BlockHeader<W>;
  uint8_t* q = to.q;
  for (int64_t first = 0; first < k; first += kGroup, at += D::kBytes) {
    int64_t const in_block = first % Header::kBlock;
    if (in_block == 0) {
      int64_t const groups =
          std::min<int64_t>(Header::kBlock, round_up(k - first, weight_group(W))) / weight_group(W);
      for (int64_t i = 0, group = first / weight_group(W); i < groups; ++i, ++group) {
        store(to.scales + group * kPanel, Header::scales(at, i));
        if constexpr (has_minimum(W)) store(to.minimums + group * kPanel, Header::minimums(at, i));
      }
      at += Header::kBytes;
    }
    for (int step = 0; step < kSteps; ++step, q += kIntegerLineBytes) {
      auto const weight = D::load(at, step);
      std::memcpy(q, &weight, sizeof weight);
    }
  }
}

// R rows times N panels over s.k, a multiple of 2 kGroup. The slice's weights are not looked at.
template <Dtype W, int R, int N>
void multiply_widened(Widened<W> const& weights, InputGroup const* x, int64_t ldx, Slice const& s) {
  using D = Dot<W>;
  constexpr int kPartSteps = kSteps / kParts<W>;
  // How many kGroup share a scale.
  constexpr int64_t kTogether = weight_group(W) > kGroup ? weight_group(W) / kGroup : 1;
  constexpr int64_t kInputs = kInputsTogether<W>;
  constexpr bool kAdds = kTogether < kInputs;
  f32x16 sums[R][N];
  begin_sums(sums, s);
  asm volatile("" : : "r"(&sums) : "memory");  // out of the registers, which hold products instead
  int64_t const depth = s.k / kGroup;
  int64_t line = 0, group = 0;
  for (int64_t i = 0; i < depth;) {
    int64_t const end = kInputs == 1 ? i + 1 : std::min(i + kInputs, depth);
    f32x16 products[R][N];
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N && kAdds; ++n) products[r][n] = zero();
    do {
      for (int part = 0; part < kParts<W>; ++part, ++group) {
        D dots[R][N];
        for (int r = 0; r < R; ++r) {
          vi const excess = excess_of<W>(x[r * ldx], part);
          for (int n = 0; n < N; ++n) dots[r][n].start(excess);
        }
        int64_t left = kTogether;
        do {
#pragma GCC unroll 8
          for (int step = 0; step < kPartSteps; ++step) {
            typename D::Weight w[N];
            for (int n = 0; n < N; ++n)
              w[n] = D::load_widened(weights.panels[n].q + (line + step) * kIntegerLineBytes);
            for (int r = 0; r < R; ++r) {
              int32_t const four = four_of(x[r * ldx], part * kPartSteps + step);
              for (int n = 0; n < N; ++n) dots[r][n].add(w[n], four);
            }
          }
          for (int r = 0; r < R; ++r)
            for (int n = 0; n < N; ++n) dots[r][n].end_steps();
          line += kPartSteps;
          if (kTogether > 1) ++i, ++x;
        } while (kTogether > 1 && --left > 0 && i < end);
        for (int n = 0; n < N; ++n) {
          f32x16 const scales = load(weights.panels[n].scales + group * kPanel);
          for (int r = 0; r < R; ++r) {
            f32x16 const integers = dots[r][n].finish();
            products[r][n] = kAdds ? fma(integers, scales, products[r][n]) : integers * scales;
          }
        }
        for (int n = 0; n < N && has_minimum(W); ++n) {
          f32x16 const minimums = load(weights.panels[n].minimums + group * kPanel);
          for (int r = 0; r < R; ++r)
            products[r][n] = fma(minus_sum_of<W>(x[r * ldx], part), minimums, products[r][n]);
        }
      }
      if (kTogether == 1) ++i, ++x;
    } while (kAdds && i < end);
    for (int r = 0; r < R; ++r) {
      f32x16 const scale = set1(x[r * ldx - 1].scale);
      for (int n = 0; n < N; ++n) sums[r][n] = fma(products[r][n], scale, sums[r][n]);
    }
    asm volatile("" : : "r"(&sums) : "memory");
  }
  end_sums(sums, s);
}

template <Dtype W>
struct WidenedMicro {
  static constexpr int kRows = kGroupedRows;
  using Block = void (*)(Widened<W> const&, InputGroup const*, int64_t, Slice const&);
  template <int R, int N>
  static constexpr Block kBlock = multiply_widened<W, R, N>;
  static constexpr int panels_of(int) { return kWidenedPanels; }

  static void multiply(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
    static constexpr BlockTable<WidenedMicro, kRows, kWidenedPanels> kBlocks;
    PackedMatrix const& w = *g.w;
    bool const add_to_y = g.accumulate || g.bias != nullptr;
    if (g.bias != nullptr) begin_with_bias(g, panel_begin, panel_end);
    int64_t const row_blocks = (g.tokens + kRows - 1) / kRows;
    Widened<W> weights;
    for (int64_t chunk = panel_begin; chunk < panel_end; chunk += kWidenedChunk) {
      int64_t const chunk_end = std::min(chunk + kWidenedChunk, panel_end);
      int64_t k0 = 0;
      do {  // once even for K = 0, which makes y zero
        int64_t const k = std::min(kWidenedK, w.kp() - k0);
        for (int64_t panel = chunk, panels; panel < chunk_end; panel += panels) {
          panels = std::min<int64_t>(kWidenedPanels, chunk_end - panel);
          for (int64_t n = 0; n < panels; ++n)
            widen_panel<W>(weights.panels[n], w.panel(panel + n) + w.depth_bytes(k0), k);
          // Those that are unpacked next.
          char const* const next = panel + panels < chunk_end ? w.panel(panel + panels) + w.depth_bytes(k0)
                                   : k0 + k < w.kp()          ? w.panel(chunk) + w.depth_bytes(k0 + k)
                                   : chunk_end < panel_end    ? w.panel(chunk_end)
                                                              : g.next;
          int64_t const lines = next == nullptr ? 0 : w.depth_bytes(k) / kLine;
          int64_t row_block = 0;
          for (int64_t t = 0, rows; t < g.tokens; t += rows, ++row_block) {
            rows = next_group(g.tokens - t, kRows);
            for (int64_t i = row_block * lines / row_blocks; i < (row_block + 1) * lines / row_blocks; ++i)
              for (int64_t n = 0; n < panels; ++n)
                __builtin_prefetch(next + n * w.panel_bytes() + i * kLine, 0, 2);
            InputGroup const* const x = static_cast<InputGroup const*>(g.x) + t * g.ldx + k0 / kGroup;
            kBlocks.at[rows - 1][panels - 1](
                weights, x, g.ldx,
                {.y = g.y + t * g.ldy + panel * kPanel,
                 .ldy = g.ldy,
                 .w = nullptr,
                 .panel_stride = 0,
                 .k = k,
                 .last_columns = std::min<int64_t>(kPanel, w.n - (panel + panels - 1) * kPanel),
                 .start_at_zero = k0 == 0 && !add_to_y,
                 .fetch = {}});
          }
        }
        k0 += k;
      } while (k0 < w.kp());
    }
  }
};

}  // namespace bunting::BUNTING_ISA
