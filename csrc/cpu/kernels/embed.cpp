// embed.cpp: x[t, :] = row ids[t] of the embedding, as f32.
//
//   x     [T, ldx] f32, columns 0 .. H-1 written
//   table [V, H] packed; grouped values become scale * q - minimum
//   ids   [T], 0 <= id < V
//
// Work:     token rows [begin, end). A row of the table is one column of a panel: H/2 pairs (or H values) 64
//           bytes apart, so each fetched cache line serves one of them. In return the packed table also
//           serves the vocabulary projection and is not stored twice.
// Roofline: memory latency, T*H*32 bytes of lines for bf16.
// Checked:  bit for bit against reference::embed.
#include <algorithm>

#include "cpu/kernels/half.h"
#include "cpu/kernels/integer_layout.h"

namespace bunting::BUNTING_ISA {
namespace {

// Writes row `id` of a grouped table.
void embed_grouped(float* row, PackedMatrix const& table, int32_t id) {
  Dtype const type = table.dtype;
  int64_t const group = std::min<int64_t>(table.group(), kGroup);
  auto const to_f32 = [](uint16_t half) __attribute__((always_inline)) { return f16_to_f32(half); };
  Levels const& levels = weight_format(type).levels;
  for (int64_t h = 0; h < table.k; h += kGroup) {
    GroupScales const scales = read_scales(table, id, h);
    int8_t q[kGroup];
    read_integers(table, id, h, q);
    int64_t const count = std::min<int64_t>(kGroup, table.k - h);
    for (int64_t i = 0; i < count; ++i) {
      int const at = is_super(type) ? int((h % kSuper + i) / group) : 0;
      float const scaled =
          scale_of(type, scales, at, to_f32) * float(has_levels(type) ? levels.of[q[i]] : q[i]);
      row[h + i] = has_minimum(type) ? scaled - minimum_of(type, scales, at, to_f32) : scaled;
    }
  }
}

}  // namespace

void embed(float* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t begin, int64_t end) {
  if (table.grouped()) {
    for (int64_t t = begin; t < end; ++t) embed_grouped(x + t * ldx, table, ids[t]);
    return;
  }
  int64_t const panel_values = table.kp() * kPanel;
  for (int64_t t = begin; t < end; ++t) {
    int64_t const panel = ids[t] / kPanel, column = ids[t] % kPanel;
    float* row = x + t * ldx;
    if (table.dtype == Dtype::f32) {
      float const* from = static_cast<float const*>(table.data) + panel * panel_values + column;
      for (int64_t h = 0; h < table.k; ++h) row[h] = from[h * kPanel];
    } else {
      bf16 const* from = static_cast<bf16 const*>(table.data) + panel * panel_values + 2 * column;
      for (int64_t h = 0; h < table.k; ++h) row[h] = to_f32(from[(h & ~int64_t{1}) * kPanel + (h & 1)]);
    }
  }
}

}  // namespace bunting::BUNTING_ISA
