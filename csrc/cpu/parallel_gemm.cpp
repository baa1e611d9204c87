#include "cpu/parallel_gemm.h"

#include <algorithm>

#include "cpu/kernels/kv_layout.h"

namespace bunting {
namespace {

// Rows and panels that a micro-kernel needs to reach its speed: two AMX tiles, and two groups of panels.
constexpr int64_t kRowsLeast = 32, kPanelsLeast = 8;

int64_t ceil_div(int64_t x, int64_t by) {
  return (x + by - 1) / by;
}

}  // namespace

GemmCut cut_gemm(int64_t panels, int64_t tokens, int64_t pieces) {
  if (tokens <= kRowsLeast)
    return {std::max<int64_t>(1, ceil_div(panels, pieces)), std::max<int64_t>(1, tokens)};
  int64_t const width = std::max(kPanelsLeast, ceil_div(panels, pieces));
  int64_t const columns = std::max<int64_t>(1, ceil_div(panels, width));
  int64_t const row_pieces = std::min(ceil_div(pieces, columns), ceil_div(tokens, kRowsLeast));
  return {width, round_up(ceil_div(tokens, row_pieces), kRowsLeast)};
}

void parallel_gemm(ThreadPool& pool, Kernels const& kernels, Gemm const& g, int64_t pieces) {
  int64_t const panels = g.w->panels();
  GemmCut const cut = cut_gemm(panels, g.tokens, pieces);
  int64_t const row_pieces = ceil_div(g.tokens, cut.rows);
  int64_t const x_row_bytes = g.ldx * input_bytes(g.w->dtype);
  int64_t const count = ceil_div(panels, cut.panels) * row_pieces;
  // Pieces of the same panels are consecutive, so that threads share their weights in the last-level cache.
  pool.run(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      int64_t const panel = piece / row_pieces * cut.panels, row = piece % row_pieces * cut.rows;
      Gemm part = g;
      part.x = static_cast<char const*>(g.x) + row * x_row_bytes;
      part.y = g.y + row * g.ldy;
      part.tokens = std::min(cut.rows, g.tokens - row);
      if (row_pieces == 1 && piece + pool.threads() < count)
        part.next = g.w->panel(panel + pool.threads() * cut.panels);
      kernels.gemm(part, panel, std::min(panel + cut.panels, panels));
    }
  });
}

namespace {

// View of panels [begin, begin + count) as a matrix.
PackedMatrix panels_of(PackedMatrix const& w, int64_t begin, int64_t count) {
  PackedMatrix part = w;
  part.n = count * kPanel;
  part.data = w.panel(begin);
  return part;
}

}  // namespace

void parallel_gated(ThreadPool& pool, Kernels const& kernels, GatedGemm const& g, int64_t pieces) {
  int64_t const halves = g.is_plain ? 1 : 2, panels = g.w->panels() / halves;
  // Few rows are not cut, so that the weights are read once; blocks of many rows are as narrow as is still
  // fast.
  bool const is_few = g.tokens <= kRowsLeast;
  int64_t const rows = is_few ? kRowsLeast : std::min<int64_t>(256, cut_gemm(panels, g.tokens, pieces).rows);
  int64_t const width_most = kGateScratch / (2 * kPanel * rows);
  // Groups come in pairs at least, and groups that share a scale are made together.
  bool const grouped = is_grouped(g.out.dtype);
  int64_t const width_least = grouped ? std::max<int64_t>(2 * kGroup, input_group(g.out.dtype)) / kPanel : 1;
  static_assert(kPanelsLeast % (kGroupMax / kPanel) == 0);
  int64_t const width_few = round_up(ceil_div(panels, pieces), width_least);
  int64_t const width = is_few ? std::clamp(width_few, width_least, width_most) : kPanelsLeast;
  int64_t const row_blocks = ceil_div(g.tokens, rows);
  int64_t const x_row_bytes = g.ldx * input_bytes(g.w->dtype);
  // Distance to the piece that this thread will probably run next.
  int64_t const ahead = pool.threads() * width;
  auto const piece = [&](int64_t panel, int64_t row, float* gates) {
    int64_t const count = std::min(width, panels - panel), columns = count * kPanel;
    PackedMatrix const gate = panels_of(*g.w, panel, count);
    PackedMatrix const up = g.is_plain ? gate : panels_of(*g.w, panels + panel, count);
    Gemm part{.x = static_cast<char const*>(g.x) + row * x_row_bytes,
              .ldx = g.ldx,
              .w = &gate,
              .bias = g.bias ? g.bias + panel * kPanel : nullptr,
              .y = gates,
              .ldy = halves * columns,
              .tokens = std::min(rows, g.tokens - row),
              .may_have_outliers = g.may_have_outliers,
              .next = up.panel(0)};
    char const* const ahead_of = is_few && panel + ahead < panels ? g.w->panel(panel + ahead) : nullptr;
    if (g.is_plain) part.next = ahead_of;
    auto const multiply = [&](int64_t first_panel) {
      kernels.gemm(part, 0, count);
      if (g.low_rank)
        g.low_rank->expand(*g.w, row, row + part.tokens, first_panel, first_panel + count, part.y, part.ldy);
    };
    multiply(panel);
    int64_t const column = panel * kPanel / (grouped ? kGroup : 1);
    Operand out = g.out;
    out.rows = g.out.row(row) + column * g.out.element_bytes();
    if (g.is_plain)
      return kernels.activate(out, gates, columns, columns, g.activation, g.xielu, 0, part.tokens);
    part.w = &up;
    part.bias = g.bias ? g.bias + (panels + panel) * kPanel : nullptr;
    part.y = gates + columns;
    part.next = ahead_of;
    multiply(panels + panel);
    kernels.gate(out, gates, 2 * columns, columns, g.activation, 0, part.tokens);
  };
  pool.run(ceil_div(panels, width) * row_blocks, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i)
      piece(i / row_blocks * width, i % row_blocks * rows, g.scratch + thread * kGateScratch);
  });
}

}  // namespace bunting
