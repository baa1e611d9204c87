// gemm_widened.h - GEMM micro-kernel for grouped weights and many rows, on vector registers.
//
// The kernel unpacks a block of integers once, into one or two bytes each, with the scales of its groups as
// f32. All rows then pass over these bytes, which stay in the L1 cache. gemm_grouped.h pays for shifts, masks
// and the product of two scales once per line and few rows; here they are paid once for all rows. The sums
// are those of gemm_grouped.h and gemm_super.h, in the same order, so the bits are the same.
//
// Loops, outermost first: chunks of panels, whose sums stay in the L2 cache while the blocks of k pass;
// blocks of k, whose inputs stay there while the panels pass; strips of rows, if inputs are prepared
// (widened_inputs.h); panels, unpacked here; blocks of rows. The unpacking and the blocks of rows prefetch
// the packed weights to unpack next, in equal parts.
#pragma once

#include "cpu/kernels/widened_inputs.h"

namespace bunting::BUNTING_ISA {

// Least number of rows for which unpacking into memory is cheaper than unpacking again for every few rows. It
// depends on how many rows the registers hold at once.
struct WidenedFrom {
  int64_t groups_of_16, four_bits, two_planes, eight_bits;
};
#if defined(__AVX512VNNI__)
// Zen 5 unpacks beside the multiply units, so weights of 4 bits gain only from very many rows.
inline constexpr WidenedFrom kWidenedFrom = {41, 513, 65, 1 << 30};
#elif defined(__AVX512F__)
inline constexpr WidenedFrom kWidenedFrom = {13, 33, 25, 16};
#elif defined(__AVXVNNI__)
inline constexpr WidenedFrom kWidenedFrom = {8, 33, 11, 1 << 30};
#else
inline constexpr WidenedFrom kWidenedFrom = {3, 6, 3, 8};
#endif
template <Dtype W>
inline constexpr int64_t kWidenedRowsLeast = weight_group(W) < kGroup ? kWidenedFrom.groups_of_16
                                             : integer_bits(W) == 4   ? kWidenedFrom.four_bits
                                             : integer_bits(W) == 8   ? kWidenedFrom.eight_bits
                                                                      : kWidenedFrom.two_planes;
inline constexpr int kWidenedPanels = kGroupedSums / kGroupedRows;  // as many as have their sums in registers
// Rows of a block. A group fills the registers with its own sums; earlier sums wait in memory. With two rows
// each multiplication of 32 bytes needs a load, and the processor has only two loads per cycle. Superblocks
// also add up their groups in memory, for which four rows take less than six.
#if defined(BUNTING_HAS_MADDUBS) && !defined(__AVX512F__)
template <Dtype W>
inline constexpr int kWidenedRows = is_super(W) ? 4 : 6;
#elif defined(__AVX2__) && !defined(__AVX512F__)
template <Dtype W>
inline constexpr int kWidenedRows = is_super(W) ? kGroupedRows + 2 : kGroupedRows;
#else
template <Dtype W>
inline constexpr int kWidenedRows = kGroupedRows;
#endif
// Length of a block of k: 16 KB of bytes. With AVX-512 it is 32 KB, because the fixed cost of a call for 512
// k is noticeable.
#if defined(__AVX512VNNI__)
inline constexpr int64_t kWidenedK = 1024;
#else
inline constexpr int64_t kWidenedK = 512;
#endif
inline constexpr int64_t kWidenedChunk = 8;  // in panels

// Unpacked scales and minimums of groups. In superblocks they are integers, with the minimums of two groups
// together, beside the superblock's factors.
template <Dtype W>
struct WidenedScale {
  using Of = f32x16;
  using Minimum = f32x16;
  static constexpr int64_t kGroupsOfMinimum = 1;
  static BUNTING_INLINE Of at(char const* header, int64_t group) {
    return BlockHeader<W>::scales(header, group);
  }
  static BUNTING_INLINE Minimum minimum_at(char const* header, int64_t group) {
    return BlockHeader<W>::minimums(header, group);
  }
};
template <Dtype W>
  requires(is_super(W))
struct WidenedScale<W> {
  using Of = typename ScaledSum<W>::Scales;
  using Minimum = typename MinimumSum<W>::Pair;
  static constexpr int64_t kGroupsOfMinimum = 2;
  static BUNTING_INLINE Of at(char const* header, int64_t group) {
    return ScaledSum<W>::scales(header, group);
  }
  static BUNTING_INLINE Minimum minimum_at(char const* header, int64_t group) {
    return MinimumSum<W>::minimums(header, group);
  }
};

template <Dtype W>
using Inputs = WidenedInputs<W, kWidenedK / kGroup>;

// An unpacked block of k of some panels.
template <Dtype W>
struct Widened {
  static constexpr int64_t kGroups = kWidenedK / weight_group(W);
  struct Panel {
    alignas(64) uint8_t q[kWidenedK / kGroup * kWidenedBytes<W>];  // lines of two or four k of every column
    typename WidenedScale<W>::Of scales[kGroups];
    struct {
      f32x16 scales, minimums;
    } factors[is_super(W) ? kWidenedK / kSuper : 1];
    typename WidenedScale<W>::Minimum
        minimums[has_minimum(W) ? kGroups / WidenedScale<W>::kGroupsOfMinimum : 1];
  };
  Panel panels[kWidenedPanels];
};

// Unpacks k of a panel from `at` on. Meanwhile it prefetches `lines` lines from `fetch` on.
template <Dtype W>
BUNTING_INLINE void widen_panel(typename Widened<W>::Panel& to, char const* at, int64_t k, char const* fetch,
                                int64_t lines) {
  using D = Dot<W>;
  using Header = BlockHeader<W>;
  constexpr int64_t kTogether = WidenedScale<W>::kGroupsOfMinimum;
  uint8_t* q = to.q;
  for (int64_t first = 0, fetched = 0; first < k; first += kGroup, at += D::kBytes) {
    for (; fetched * k < lines * (first + kGroup); ++fetched)
      __builtin_prefetch(fetch + fetched * kLine, 0, 2);
    int64_t const in_block = first % Header::kBlock;
    if (in_block == 0) {
      int64_t const groups =
          std::min<int64_t>(Header::kBlock, round_up(k - first, weight_group(W))) / weight_group(W);
      for (int64_t i = 0, group = first / weight_group(W); i < groups; ++i, ++group) {
        to.scales[group] = WidenedScale<W>::at(at, i);
        if (has_minimum(W) && group % kTogether == 0)
          to.minimums[group / kTogether] = WidenedScale<W>::minimum_at(at, i);
      }
      if constexpr (is_super(W)) to.factors[first / kSuper].scales = Header::factors(at);
      if constexpr (is_super(W) && has_minimum(W))
        to.factors[first / kSuper].minimums = Header::minimum_factors(at);
      at += Header::kBytes;
    }
#if defined(BUNTING_HAS_USMMLA)
    for (int step = 0; step < kSteps; step += 2) {
      typename D::Weight low = D::load(at, step), high = D::load(at, step + 1);
      D::interleave(low, high);
      D::store_widened(q + step * kIntegerLineBytes, low);
      D::store_widened(q + (step + 1) * kIntegerLineBytes, high);
    }
#else
    for (int step = 0; step < kSteps; ++step)
      WidenedDot<W>::store_widened(q + step * kIntegerLineBytes, D::load(at, step));
#endif
    q += kWidenedBytes<W>;
  }
}

// Prefetches a step of the slice's lines of N panels, up to `after`, while kGroupMax k are multiplied.
template <int N>
BUNTING_INLINE void fetch_step(char const*& from, Slice const& s) {
  char const* const end = std::min(from + s.fetch.step, s.fetch.after);
  for (; from < end; from += kLine)
    for (int n = 0; n < N; ++n) __builtin_prefetch(from + n * s.panel_stride, 0, 2);
}

// Exact sum of the parts of a group of weights, of sixteen columns.
template <Dtype W>
class IntegerSum {
 public:
  BUNTING_INLINE void add(WidenedDot<W> const& dot) {
    for (int i = 0; i < kRegisters; ++i) {
      if constexpr (kProduct<W> == Product::pairs)
        sums_[i] = add_pairs(sums_[i], dot.pairs(i), broadcast(0x00010001));
      else
        sums_[i] += dot.integers(i);
    }
  }
  // Returns the sum as f32; it is below 2^24, so exact.
  BUNTING_INLINE f32x16 value() const {
    f32x16 y;
    for (int i = 0; i < kRegisters; ++i) y.r[i] = __builtin_convertvector(sums_[i], vf);
    return y;
  }

 private:
  vi sums_[kRegisters] = {};
};

// Adds the products of kGroup k of the inputs to the sums of R rows and N panels.
template <Dtype W, int R, int kRows, int N>
BUNTING_INLINE void add_part(WidenedDot<W> (&dots)[kRows][N], Widened<W> const& weights, int64_t line,
                             Inputs<W> const& x, int part) {
  using D = WidenedDot<W>;
#if defined(BUNTING_HAS_USMMLA)
#pragma GCC unroll 16
  for (int step = 0; step < kWidenedSteps<W>; step += 2) {
    typename D::Weight low[N], high[N];
    for (int n = 0; n < N; ++n) {
      uint8_t const* const from = weights.panels[n].q + (line + step) * kIntegerLineBytes;
      low[n] = D::load_widened(from);
      high[n] = D::load_widened(from + kIntegerLineBytes);
    }
    add_two_steps<R>(dots, low, high, x.x, x.ldx, part * kWidenedSteps<W> + step);
  }
#else
#pragma GCC unroll 16
  for (int step = 0; step < kWidenedSteps<W>; ++step) {
    typename D::Weight w[N];
    for (int n = 0; n < N; ++n)
      w[n] = D::load_widened(weights.panels[n].q + (line + step) * kIntegerLineBytes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t const inputs = x.of_step(r, part, step);
      for (int n = 0; n < N; ++n) dots[r][n].add(w[n], inputs, step);
    }
  }
#endif
}

// Multiplies R rows by N panels over s.k, a multiple of 2 kGroup. It ignores the slice's weights; the slice's
// panel stride is that of the lines to prefetch.
template <Dtype W, int R, int N>
void multiply_widened(Widened<W> const& weights, InputGroup const* rows, int64_t ldx,
                      PreparedInput<W> const* prepared, Slice const& s) {
  Inputs<W> x{rows, ldx, prepared};
  int64_t line = 0;
  using D = WidenedDot<W>;
  constexpr int64_t kInputs = kInputsTogether<W>, kWeights = kWeightsTogether<W>;
  static_assert(kInputs == 1 || kWeights == 1 || kInputs == kWeights);
  f32x16 sums[R][N];
  begin_sums(sums, s);
  asm volatile("" : : "r"(&sums) : "memory");  // keeps the sums out of the registers, which hold products
  int64_t const depth = s.k / kGroup;
  char const* fetch = s.fetch.from;
  for (int64_t group = 0; group < depth;) {
    if (group % kInputGroups == 0) fetch_step<N>(fetch, s);
    int64_t const end = kInputs == 1 ? group + 1 : std::min(group + kInputs, depth);
    f32x16 products[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) products[r][n] = zero();
    while (group < end) {
      IntegerSum<W> integers[R][N];
      int64_t const first = group;
      do {
        for (int part = 0; part < kWidenedParts<W>; ++part, line += kWidenedSteps<W>) {
          D dots[kDotRows<R, true>][N];
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            vi const start = x.start_of(r, part);
            for (int n = 0; n < N; ++n) dots[r][n].start(start);
          }
          begin_rows<R>(dots);
          add_part<W, R>(dots, weights, line, x, part);
          end_rows(dots);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r)
            for (int n = 0; n < N; ++n) integers[r][n].add(dots[r][n]);
        }
        ++group;
        x = x.from(1);
      } while (kWeights > 1 && group < end);
      for (int n = 0; n < N; ++n) {
        f32x16 const scales = weights.panels[n].scales[first / kWeights];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          f32x16 const sum = integers[r][n].value();
          products[r][n] = kInputs > kWeights ? fma(sum, scales, products[r][n]) : sum * scales;
        }
      }
      for (int n = 0; n < N && has_minimum(W); ++n) {
        f32x16 const minimums = weights.panels[n].minimums[first];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          products[r][n] = fma(set1(x.x[r * x.ldx - 1].minus_sum_f32), minimums, products[r][n]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      f32x16 const scale = set1(x.x[r * x.ldx - 1].scale);
      for (int n = 0; n < N; ++n) sums[r][n] = fma(products[r][n], scale, sums[r][n]);
    }
    asm volatile("" : : "r"(&sums) : "memory");
  }
  end_sums(sums, s);
}

// Multiplies superblocks in the same way (gemm_super.h).
template <Dtype W, int R, int N>
void multiply_widened_superblocks(Widened<W> const& weights, InputGroup const* rows, int64_t ldx,
                                  PreparedInput<W> const* prepared, Slice const& s) {
  using D = WidenedDot<W>;
  constexpr int kInputParts = int(kInputGroups) * kWidenedParts<W>;
  f32x16 sums[R][N];
  begin_sums(sums, s);
  asm volatile("" : : "r"(&sums) : "memory");
  char const* fetch = s.fetch.from;
  Inputs<W> x{rows, ldx, prepared};
  int64_t line = 0, group = 0;  // of weights
  for (int64_t k = 0; k < s.k; k += kGroupMax, x = x.from(kInputGroups), group += kInputGroups * kParts<W>) {
    fetch_step<N>(fetch, s);
    ScaledSum<W> scaled[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      for (int n = 0; n < N; ++n) scaled[r][n].start();
    for (int i = 0; i < kInputParts; ++i, line += kWidenedSteps<W>) {
      int const part = i % kWidenedParts<W>;
      Inputs<W> const here = x.from(i / kWidenedParts<W>);
      D dots[kDotRows<R, true>][N];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        vi const start = here.start_of(r, part);
        for (int n = 0; n < N; ++n) dots[r][n].start(start);
      }
      begin_rows<R>(dots);
      add_part<W, R>(dots, weights, line, here, part);
      end_rows(dots);
      for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          scaled[r][n].add(dots[r][n], weights.panels[n].scales[group + i * kParts<W> / kWidenedParts<W>]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      InputGroup const* const from = x.x + r * x.ldx;
      f32x16 const scale = set1(from->scale);
      for (int n = 0; n < N; ++n) {
        auto const& panel = weights.panels[n];
        auto const& factors = panel.factors[k / kSuper];
        f32x16 product;
        if constexpr (has_minimum(W)) {
          MinimumSum<W> minimum_sum;
          minimum_sum.start();
          for (int pair = 0; pair < MinimumSum<W>::kPairs; ++pair)
            minimum_sum.add(panel.minimums[group / 2 + pair], MinimumSum<W>::minus_sums(from, pair));
          product = fma(scaled[r][n].value(), factors.scales, minimum_sum.value() * factors.minimums);
        } else {
          product = scaled[r][n].value() * factors.scales;
        }
        sums[r][n] = fma(product, scale, sums[r][n]);
      }
    }
    asm volatile("" : : "r"(&sums) : "memory");
  }
  end_sums(sums, s);
}

template <Dtype W>
struct WidenedMicro {
  static constexpr int kRows = kWidenedRows<W>;
  using Block = void (*)(Widened<W> const&, InputGroup const*, int64_t, PreparedInput<W> const*,
                         Slice const&);
  template <int R, int N>
  static constexpr Block kBlock = [] {
    if constexpr (is_super(W))
      return multiply_widened_superblocks<W, R, N>;
    else
      return multiply_widened<W, R, N>;
  }();
  static constexpr int panels_of(int) { return kWidenedPanels; }

  // Rows whose prepared inputs stay in the L2 cache while the panels of a chunk pass.
  static constexpr int64_t kStripRows = kPreparesInputs<W> ? 96 : int64_t{1} << 40;
  struct Strip {
    PreparedInput<W> rows[kPreparesInputs<W> ? kStripRows : 1][kWidenedK / kGroup];
  };
  static void prepare(Strip& strip, InputGroup const* x, int64_t ldx, int64_t rows, int64_t groups) {
    for (int64_t r = 0; r < rows && kPreparesInputs<W>; ++r)
      for (int64_t i = 0; i < groups; ++i) strip.rows[r][i].prepare(x[r * ldx + i]);
  }

  static void multiply(Gemm const& g, int64_t panel_begin, int64_t panel_end) {
    static constexpr BlockTable<WidenedMicro, kRows, kWidenedPanels> kBlocks;
    PackedMatrix const& w = *g.w;
    bool const add_to_y = g.accumulate || g.bias != nullptr;
    if (g.bias != nullptr) begin_with_bias(g, panel_begin, panel_end);
    Widened<W> weights;
    Strip strip;
    for (int64_t chunk = panel_begin; chunk < panel_end; chunk += kWidenedChunk) {
      int64_t const chunk_end = std::min(chunk + kWidenedChunk, panel_end);
      int64_t k0 = 0;
      do {  // runs once even for K = 0, which sets y to zero
        int64_t const k = std::min(kWidenedK, w.kp() - k0);
        for (int64_t first = 0; first < g.tokens; first += kStripRows) {
          int64_t const rows_end = std::min(first + kStripRows, g.tokens);
          auto const x_of = [&](int64_t t) {
            return static_cast<InputGroup const*>(g.x) + t * g.ldx + k0 / kGroup;
          };
          prepare(strip, x_of(first), g.ldx, rows_end - first, k / kGroup);
          // Lines to prefetch of a panel to unpack next: while one panel is unpacked, while each block of
          // rows passes, and of those per kGroupMax k. Later strips find the panels of the chunk in the
          // cache.
          int64_t const row_blocks = (rows_end - first + kRows - 1) / kRows;
          int64_t const lines = w.depth_bytes(k) / kLine, unpacking = lines / (row_blocks + 1);
          int64_t const block_lines = (lines - unpacking + row_blocks - 1) / row_blocks;
          int64_t const step_lines = (block_lines * kGroupMax + k - 1) / std::max<int64_t>(1, k);
          for (int64_t panel = chunk, panels; panel < chunk_end; panel += panels) {
            panels = std::min<int64_t>(kWidenedPanels, chunk_end - panel);
            char const* const from = w.panel(panel) + w.depth_bytes(k0);
            char const* const next = panel + panels < chunk_end ? w.panel(panel + panels) + w.depth_bytes(k0)
                                     : rows_end < g.tokens      ? w.panel(chunk) + w.depth_bytes(k0)
                                     : k0 + k < w.kp()          ? w.panel(chunk) + w.depth_bytes(k0 + k)
                                     : chunk_end < panel_end    ? w.panel(chunk_end)
                                     : g.next != nullptr        ? g.next
                                                                : from;
            for (int64_t n = 0; n < panels; ++n)
              widen_panel<W>(weights.panels[n], from + n * w.panel_bytes(), k, next + n * w.panel_bytes(),
                             unpacking);
            Groups blocks(rows_end - first, kRows);
            char const *fetch = next + unpacking * kLine, *const fetch_end = next + lines * kLine;
            for (int64_t t = first, rows; t < rows_end; t += rows, fetch += block_lines * kLine) {
              rows = blocks.next();
              kBlocks.at[rows - 1][panels - 1](
                  weights, x_of(t), g.ldx, strip.rows[kPreparesInputs<W> ? t - first : 0],
                  {.y = g.y + t * g.ldy + panel * kPanel,
                   .ldy = g.ldy,
                   .w = nullptr,
                   .panel_stride = w.panel_bytes(),
                   .k = k,
                   .last_columns = std::min<int64_t>(kPanel, w.n - (panel + panels - 1) * kPanel),
                   .start_at_zero = k0 == 0 && !add_to_y,
                   .fetch = {.from = fetch,
                             .step = step_lines * kLine,
                             .turn = 0,
                             .after = std::min(fetch + block_lines * kLine, fetch_end)}});
            }
          }
        }
        k0 += k;
      } while (k0 < w.kp());
    }
  }
};

}  // namespace bunting::BUNTING_ISA
