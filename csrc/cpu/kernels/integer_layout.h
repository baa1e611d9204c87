// integer_layout.h - where the weights of a matrix of integers lie inside a block of a panel; the same for
// every instruction set. A block begins with the scales of its groups (PackedMatrix); of each kGroup k of
// the 16 columns follow lines of 64 bytes, which have four k of every column, byte (column * 4 + k % 4):
//
//   q8   8 lines: of k = 4s .. 4s+3 in line s; q + 128, -128 <= q < 128
//   q4   4 lines: the low nibbles as lines 0 .. 3 of q8, the high ones as lines 4 .. 7; q + 8, -8 <= q < 8
//   q6   as q4, the low four bits of q + 32, -32 <= q < 32; then 2 lines with the others: line s of q8 has
//   its two
//        in line s % 2, at bit s / 2 * 2
//
// Four k of a column are what VPDPBUSD and tiles multiply at once.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

// What is added to an integer in memory.
constexpr int integer_zero(Dtype dtype) {
  return 1 << (integer_bits(dtype) - 1);
}

// kGroup integers of row n from k on, k a multiple of kGroup.
void write_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t const* q);
void read_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t* q);

// The scale, as f16, of row n in the group with k. The second one of a last block that has none is there too.
void write_scale(PackedMatrix const& w, int64_t n, int64_t k, uint16_t scale);
uint16_t read_scale(PackedMatrix const& w, int64_t n, int64_t k);

}  // namespace bunting
