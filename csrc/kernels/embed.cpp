// embed.cpp: x[t, :] = row ids[t] of the embedding, as f32.
//
//   x     [T, ldx] f32, columns 0 .. H-1 written
//   table [V, H] packed; grouped values become scale * q
//   ids   [T], 0 <= id < V
//
// Work:     token rows [begin, end). A row of the table is one column of a panel: H/2 pairs (or H values)
//           64 bytes apart, so each line fetched serves one of them. In return the packed table serves
//           the vocabulary projection too and is not stored twice.
// Roofline: memory latency, T*H*32 bytes of lines for bf16.
// Checked:  bit for bit against reference::embed.
#include "kernels/half.h"

namespace bunting::BUNTING_ISA {
namespace {

// Row `id` of a grouped table; the order of a block is told in kernels.h.
void embed_grouped(float* row, PackedMatrix const& table, int32_t id) {
  bool const is_q8 = table.dtype == Dtype::q8;
  int64_t const column = id % kPanel, group_bytes = kGroup * kPanel / (is_q8 ? 1 : 2);
  char const* const panel = static_cast<char const*>(table.data) + id / kPanel * table.panel_bytes();
  for (int64_t h = 0; h < table.k; ++h) {
    int64_t const group = h / kGroup % 2, i = h % kGroup, in_nibbles = is_q8 ? i : i % (kGroup / 2);
    char const* const block = panel + h / (2 * kGroup) * table.block_bytes();
    char const* const values = block + 2 * kPanel * 2 + group * group_bytes;
    uint16_t scale;
    std::memcpy(&scale, block + (group * kPanel + column) * 2, 2);
    int const byte = uint8_t(values[(in_nibbles / 4 * kPanel + column) * 4 + i % 4]);
    int const q = is_q8 ? byte - 128 : (i == in_nibbles ? byte & 15 : byte >> 4) - 8;
    row[h] = f16_to_f32(scale) * float(q);
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
