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

// Adds a bit plane of a block to its unsigned integers, from bit `to_bit` on, run by run.
template <Plane kPlane, int64_t kLength>
inline __attribute__((always_inline)) void read_plane(uint8_t const* block, int to_bit, uint8_t* integers) {
  if constexpr (kPlane.bits != 0) {
    constexpr int kInByte = 8 / kPlane.bits, kMask = (1 << kPlane.bits) - 1;
    for (int run = 0; run < kLength / (kPlane.run * kInByte); ++run)
      for (int part = 0; part < kInByte; ++part)
        for (int i = 0; i < kPlane.run; ++i)
          integers[(run * kInByte + part) * kPlane.run + i] |=
              uint8_t((block[kPlane.at + run * kPlane.run + i] >> (part * kPlane.bits) & kMask) << to_bit);
  }
}

// Reads a block's integers as memory has them: unsigned, plus integer_zero().
template <Dtype W>
inline __attribute__((always_inline)) void read_stored_integers(uint8_t const* block, uint8_t* integers) {
  constexpr FileBlock file = weight_format(W).file;
  constexpr int64_t kLength = stored_block_length(W);
  if constexpr (integer_bits(W) == 8) {  // signed in files
    for (int i = 0; i < kLength; ++i) integers[i] = block[file.low.at + i] ^ 0x80;
  } else {
    std::memset(integers, 0, kLength);
    read_plane<file.low, kLength>(block, 0, integers);
    read_plane<file.high, kLength>(block, file.low.bits, integers);
  }
}

template <Dtype W>
inline __attribute__((always_inline)) GroupScales read_stored_scales(uint8_t const* block) {
  constexpr FileBlock file = weight_format(W).file;
  GroupScales scales{};
  std::memcpy(scales.halves, block + file.halves_at, scale_halves(W) * 2);
  for (int i = 0; i < scale_bytes(W); ++i)
    scales.bytes[i] = uint8_t(
        (in_plane(file.scale, block, i) | in_plane(file.scale_high, block, i) << file.scale.bits % 8) -
        file.scale_zero);
  return scales;
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
  auto const* const block = reinterpret_cast<uint8_t const*>(from);
  uint8_t integers[stored_block_length(W)];
  read_stored_integers<W>(block, integers);
  StoredBlock to{};
  to.scales = read_stored_scales<W>(block);
  for (int i = 0; i < stored_block_length(W); ++i) to.q[i] = int8_t(integers[i] - integer_zero(W));
  return to;
}

// Packs rows of blocks of the matrix's own type for panels [begin, end).
void pack_stored_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end);

}  // namespace bunting
