// stored_block.cpp - packs rows of a file's blocks into the panels of a matrix.
//
// Work:     one panel after another, a block of one column at a time.
// Checked:  bit for bit against reference::pack.
#include "cpu/kernels/stored_block.h"

namespace bunting {
namespace {

// Writes the scales of a column's group, or superblock, `in_block` numbers after the beginning of the block.
template <Dtype W>
void put_scales(char* block, int64_t in_block, int64_t column, GroupScales const& scales) {
  constexpr int64_t kGroups = block_scales(W);
  constexpr int kHalves = scale_halves(W);
  int64_t const group = is_super(W) ? 0 : in_block / weight_group(W);
  for (int i = 0; i < kHalves; ++i)
    std::memcpy(block + ((i * kGroups + group) * kPanel + column) * 2, &scales.halves[i], 2);
  char* const bytes = block + kGroups * kHalves * kPanel * 2;
  for (int i = 0; i < scale_bytes(W); ++i)
    bytes[(i * kGroups + group) * kPanel + column] = char(scales.bytes[i]);
}

template <Dtype W>
void pack_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  constexpr int64_t kLength = stored_block_length(W), kBytes = stored_block_bytes(W);
  constexpr int kBits = integer_bits(W);
  constexpr int64_t kGroupBytes = kGroup * kPanel * kBits / 8;
  int64_t const row_bytes = w.k / kLength * kBytes;
  uint8_t nothing[kLength];  // of rows and columns that pad the matrix
  std::memset(nothing, integer_zero(W), sizeof nothing);
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t k = 0; k < w.kp(); k += kLength) {
      int64_t const in_block = k % block_length(W);
      char* const block = w.panel(panel) + w.depth_bytes(k - in_block);
      char* const lines = block + w.block_scale_bytes() + in_block / kGroup * kGroupBytes;
      if (in_block == 0) std::memset(block, 0, size_t(w.block_scale_bytes()));
      for (int64_t column = 0; column < kPanel; ++column) {
        int64_t const n = panel * kPanel + column;
        bool const is_stored = n < w.n && k < w.k;
        auto const* const from = reinterpret_cast<uint8_t const*>(src + n * row_bytes + k / kLength * kBytes);
        uint8_t integers[kLength];
        if (is_stored) {
          put_scales<W>(block, in_block, column, read_stored_scales<W>(from));
          read_stored_integers<W>(from, integers);
        }
        uint8_t const* const written = is_stored ? integers : nothing;
        for (int64_t i = 0; i < kLength / kGroup; ++i)
          write_lines<kBits>(lines + i * kGroupBytes + column * 4, written + i * kGroup);
      }
    }
  }
}

}  // namespace

void pack_stored_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  with_grouped_format(w.dtype, [&]<Dtype W>() {
    if constexpr (stored_block_bytes(W) > 0) pack_blocks<W>(w, src, begin, end);
  });
}

}  // namespace bunting
