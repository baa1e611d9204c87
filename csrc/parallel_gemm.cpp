#include "parallel_gemm.h"

#include <algorithm>

namespace bunting {
namespace {

// Rows and panels below which a micro-kernel would not reach its speed: two AMX tiles, and two groups of
// panels.
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
  // Pieces of the same panels follow each other, so that threads share their weights in the last-level cache.
  pool.run(ceil_div(panels, cut.panels) * row_pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      int64_t const panel = piece / row_pieces * cut.panels, row = piece % row_pieces * cut.rows;
      Gemm part = g;
      part.x = static_cast<char const*>(g.x) + row * x_row_bytes;
      part.y = g.y + row * g.ldy;
      part.tokens = std::min(cut.rows, g.tokens - row);
      kernels.gemm(part, panel, std::min(panel + cut.panels, panels));
    }
  });
}

}  // namespace bunting
