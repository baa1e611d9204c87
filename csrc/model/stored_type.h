// stored_type.h - how files store numbers, and how each way turns into f32.
//
// Safetensors hold plain numbers. GGUF files also hold blocks: a few numbers in a few bits each that share
// one or more scales (cpu/kernels/stored_block.h). Where a matrix does not keep them as they are, they become
// f32 on the way.
#pragma once

#include <cstdint>

namespace bunting {

struct StoredType {
  char const* name;  // "Q4_0"
  int64_t block;     // numbers that are stored together; a row is a whole number of blocks
  int64_t bytes;     // of a block
  // Turns `blocks` blocks, at any address, into blocks * block numbers. Every bit pattern is legal.
  void (*decode)(char const* from, int64_t blocks, float* to);
  // Whether neither infinities nor NaN are among the numbers, or the scales, of so many blocks.
  bool (*is_finite)(char const* from, int64_t blocks);

  // Bytes of `count` numbers; count is a multiple of `block`.
  int64_t bytes_of(int64_t count) const { return count / block * bytes; }
};

// By its number in engine.h (without flags), which is Dtype's or of a code book; null if there
// is none.
StoredType const* stored_type(int32_t type);

// Blocks of Q4_0 as blocks of Q8_0: the same scales and integers, so the same numbers.
void widen_q4_0(char const* from, int64_t blocks, char* to);

}  // namespace bunting
