// integer_layout.h - where the weights of a matrix of integers lie inside a block of a panel; the same for
// every instruction set. A block begins with the scales of its groups (PackedMatrix); of each kGroup k of
// the 16 columns follow lines of 64 bytes, which have four k of every column, byte (column * 4 + k % 4):
//
//   8 bits   8 lines: of step s, k = 4s .. 4s+3, in line s; q + 128, -128 <= q < 128
//   4 bits   4 lines: the low nibbles as lines 0 .. 3 of 8 bits, the high ones as lines 4 .. 7;
//            q + 8, -8 <= q < 8
//
//   5 bits   as 4 bits, the low four bits of q + 16, -16 <= q < 16; then 1 line with the fifth ones: those of
//            step s at bit s
//
//   6 bits   as 4 bits, the low four bits of q + 32, -32 <= q < 32; then 2 lines with the others: those of
//            step s in line s % 2, at bit s / 2 * 2
//
// Numbers with a minimum are q themselves, 0 <= q.
//
// Four k of a column are what VPDPBUSD and tiles multiply at once.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

inline constexpr int kSteps = kGroup / 4;  // of kGroup k
inline constexpr int kIntegerLineBytes = 4 * kPanel;

// What is added to an integer in memory.
constexpr int integer_zero(Dtype dtype) {
  return has_minimum(dtype) ? 0 : 1 << (integer_bits(dtype) - 1);
}

// The unsigned integers of a step, a column's in each 32 bits. line(i) is line i: a column's 32 bits, or a
// vector of several.
template <int Bits, class Line>
inline __attribute__((always_inline)) auto integers_of_step(Line const& line, int step) {
  if constexpr (Bits == 8) {
    return line(step);
  } else {
    auto integers = line(step % 4) >> (step / 4 * 4) & 0x0f0f0f0fu;
    if constexpr (Bits == 5) {
      auto const fifth = line(4) >> step & 0x01010101u;
      integers |= fifth << 4;
    }
    if constexpr (Bits == 6) {
      auto const others = line(4 + step % 2);
      int const bit = step / 2 * 2;
      integers |= (bit > 4 ? others >> (bit - 4) : others << (4 - bit)) & 0x30303030u;
    }
    return integers;
  }
}

// kGroup integers of row n from k on, k a multiple of kGroup.
void write_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t const* q);
void read_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t* q);

// The scale, as f16, of row n in the group with k. The second one of a last block that has none is there too.
void write_scale(PackedMatrix const& w, int64_t n, int64_t k, uint16_t scale);
uint16_t read_scale(PackedMatrix const& w, int64_t n, int64_t k);

// A column's scales in a superblock: w = d scale[group] q - e minimum[group].
struct SuperScales {
  uint16_t d, e;  // f16; e is 0 in q6_k
  int8_t scale[kSuper / 16];
  uint8_t minimum[kSuper / kGroup];
};

// Those of row n in the superblock with k. None is below zero but in q6_k.
void write_super_scales(PackedMatrix const& w, int64_t n, int64_t k, SuperScales const& scales);
SuperScales read_super_scales(PackedMatrix const& w, int64_t n, int64_t k);

}  // namespace bunting
