// stored_block.h - blocks of numbers as files store them, taken apart: integers and their scales.
#pragma once

#include <cstdint>

#include "cpu/kernels/integer_layout.h"

namespace bunting {

// Numbers of a block in a file: a group, or a superblock.
constexpr int64_t stored_block_length(Dtype dtype) {
  return is_super(dtype) ? kSuper : kGroup;
}

struct StoredBlock {
  GroupScales scales;
  int8_t q[kSuper];  // of a format with levels their indices
};

// Bytes of a block in a file; 0: files do not store this type.
int64_t stored_block_bytes(Dtype dtype);
// Where in a block its f16 scales begin, scale_halves() of them.
constexpr int64_t stored_halves_at(Dtype dtype) {
  return dtype == Dtype::q6_k ? 208 : dtype == Dtype::q3_k ? 108 : dtype == Dtype::q2_k ? 80 : 0;
}
// The block at any address.
StoredBlock read_stored_block(Dtype dtype, char const* from);

// Packs rows of blocks of the matrix's own type for panels [begin, end).
void pack_stored_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end);

}  // namespace bunting
