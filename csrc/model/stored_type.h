// stored_type.h - storage types of numbers in files, and their conversion to f32.
//
// Safetensors hold plain numbers. GGUF files also hold blocks: a few numbers in a few bits each that share
// one or more scales (cpu/kernels/stored_block.h). Numbers become f32 on the way if the matrix does not keep
// the blocks.
#pragma once

#include <cstdint>

namespace bunting {

struct StoredType {
  char const* name;  // like "Q4_0"
  int64_t block;     // numbers per block; a row is a whole number of blocks
  int64_t bytes;     // bytes per block
  // Converts `blocks` blocks, at any address, to blocks * block numbers. Every bit pattern is legal.
  void (*decode)(char const* from, int64_t blocks, float* to);
  // Returns true if the numbers and scales of `blocks` blocks include neither infinities nor NaN.
  bool (*is_finite)(char const* from, int64_t blocks);

  // Bytes of `count` numbers; count is a multiple of `block`.
  int64_t bytes_of(int64_t count) const { return count / block * bytes; }
};

// Returns the type with this number of engine.h (without flags), which is Dtype's or a codebook's; null if
// there is none.
StoredType const* stored_type(int32_t type);

// Converts blocks of Q4_0 to Q8_0, with the same scales and integers, so the same numbers.
void widen_q4_0(char const* from, int64_t blocks, char* to);

}  // namespace bunting
