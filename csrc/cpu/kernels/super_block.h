// super_block.h - GGUF's superblocks of 256 numbers taken apart: integers and their scales.
#pragma once

#include <cstdint>

#include "cpu/kernels/integer_layout.h"

namespace bunting {

// A superblock as it is stored: number i is d scale[i / group] q[i] - e minimum[i / 32].
struct SuperBlock {
  SuperScales scales;
  int8_t q[kSuper];  // q4_k: 0 .. 15, q5_k: 0 .. 31, q6_k: -32 .. 31
};

// The superblock of a type of which is_super() holds, at any address.
SuperBlock read_super_block(Dtype type, char const* from);
// Its bytes in a file.
int64_t super_block_bytes(Dtype type);

// Packs rows of superblocks, w.k a multiple of kSuper, for panels [begin, end).
void pack_super_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end);

}  // namespace bunting
