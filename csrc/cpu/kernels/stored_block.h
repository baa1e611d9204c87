// stored_block.h - unpacks blocks of numbers as files store them: integers and their scales. The format's row
// describes their places in a file's block (block_formats.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/kernels/integer_layout.h"

namespace bunting {

// Numbers per block in a file: a group, or a superblock.
constexpr int64_t stored_block_length(Dtype dtype) {
  return is_super(dtype) ? kSuper : kGroup;
}
// Bytes per block in a file; 0: files do not store this type.
constexpr int64_t stored_block_bytes(Dtype dtype) {
  return weight_format(dtype).file.bytes;
}
// Offset of the f16 scales in a block; there are scale_halves() of them.
constexpr int64_t stored_halves_at(Dtype dtype) {
  return weight_format(dtype).file.halves_at;
}

struct StoredBlock {
  GroupScales scales;
  int8_t q[kSuper];  // level indices in formats with levels
};

// Unpacks the block at `from`, which needs no alignment.
//
// Checked:  against reference::stored_value, which reads number by number.
template <Dtype W>
StoredBlock read_stored_block(char const* from) {
  constexpr FileBlock file = weight_format(W).file;
  auto const* const block = reinterpret_cast<uint8_t const*>(from);
  StoredBlock to{};
  std::memcpy(to.scales.halves, block + file.halves_at, scale_halves(W) * 2);
  for (int i = 0; i < scale_bytes(W); ++i)
    to.scales.bytes[i] = uint8_t(
        (in_plane(file.scale, block, i) | in_plane(file.scale_high, block, i) << file.scale.bits % 8) -
        file.scale_zero);
  for (int i = 0; i < stored_block_length(W); ++i) {
    int const integer = in_plane(file.low, block, i) | in_plane(file.high, block, i) << file.low.bits % 8;
    to.q[i] = int8_t(integer_bits(W) == 8 ? integer : integer - integer_zero(W));
  }
  return to;
}

// Packs rows of blocks of the matrix's own type for panels [begin, end).
void pack_stored_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end);

}  // namespace bunting
