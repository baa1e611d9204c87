// integer_layout.h - layout of the integers and scales inside a block of a panel, the same for every
// instruction set. A block begins with the scales of its groups (weight_format.h). Then each kGroup k of the
// 16 columns has lines of 64 bytes. A line has four k of every column, at byte (column * 4 + k % 4). Stored
// integers are unsigned: q + integer_zero(). Step s is k = 4s .. 4s+3:
//
//   8 bits     8 lines, step s in line s
//   4 bits     4 lines: the low nibbles as lines 0 .. 3 of 8 bits, the high ones as lines 4 .. 7
//   5 bits     as 4 bits, then 1 line with the fifth bits, step s at bit s
//   6 bits     as 4 bits, then 2 lines with the upper two bits: step s in line s % 2, at bit s / 2 * 2
//   2 bits     2 lines, as those upper two
//   3 bits     as 2 bits, then 1 line with the third bits, step s at bit s
//
// VPDPBUSD and tiles multiply four k of a column at once.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

inline constexpr int kSteps = kGroup / 4;  // steps of kGroup k
inline constexpr int kIntegerLineBytes = 4 * kPanel;

// Returns the unsigned integers of a step, one column per 32 bits. line(i) returns line i: a column's 32
// bits, or a vector of several columns.
template <int Bits, class Line>
inline __attribute__((always_inline)) auto integers_of_step(Line const& line, int step) {
  if constexpr (Bits == 8) {
    return line(step);
  } else if constexpr (Bits < 4) {
    auto integers = line(step % 2) >> (step / 2 * 2) & 0x03030303u;
    if constexpr (Bits == 3) {
      auto const third = line(2) >> step & 0x01010101u;
      integers |= third << 2;
    }
    return integers;
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

// Writes kGroup unsigned integers, in the order of k, as a column's four bytes of each of their lines.
template <int Bits>
inline __attribute__((always_inline)) void write_lines(char* column, uint8_t const* integers) {
  uint8_t lines[4 * Bits];
  if constexpr (Bits == 8) {
    __builtin_memcpy(lines, integers, sizeof lines);
  } else {
    if constexpr (Bits >= 4)
      for (int i = 0; i < 16; ++i) lines[i] = uint8_t((integers[i] & 15) | integers[16 + i] << 4);
    if constexpr (Bits < 4 || Bits == 6) {  // planes of two bits
      constexpr int kAt = Bits < 4 ? 0 : 16, kFrom = Bits < 4 ? 0 : 4;
      for (int i = 0; i < 8; ++i) {
        auto const two = [&](int j) { return (integers[8 * j + i] >> kFrom & 3) << (2 * j); };
        lines[kAt + i] = uint8_t(two(0) | two(1) | two(2) | two(3));
      }
    }
    if constexpr (Bits % 2 == 1) {  // planes of one bit
      constexpr int kAt = Bits == 3 ? 8 : 16, kFrom = Bits == 3 ? 2 : 4;
      for (int i = 0; i < 4; ++i) {
        int bits = 0;
        for (int step = 0; step < kSteps; ++step) bits |= (integers[4 * step + i] >> kFrom & 1) << step;
        lines[kAt + i] = uint8_t(bits);
      }
    }
  }
  for (int i = 0; i < Bits; ++i) __builtin_memcpy(column + i * kIntegerLineBytes, lines + 4 * i, 4);
}

// Write and read kGroup integers of row n from k on, k a multiple of kGroup. Formats with levels store their
// indices.
void write_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t const* q);
void read_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t* q);

// A column's scales of a group, or of a superblock, in the same form in file and memory: scale_halves() and
// scale_bytes() values.
struct GroupScales {
  uint16_t halves[2];
  uint8_t bytes[kSuper / 16];
};

// Write and read the scales of row n, of the group or superblock with k. A last block also has scales of
// groups without numbers.
void write_scales(PackedMatrix const& w, int64_t n, int64_t k, GroupScales const& scales);
GroupScales read_scales(PackedMatrix const& w, int64_t n, int64_t k);

// Returns 2^(e - 128).
inline __attribute__((always_inline)) float exponent_scale(uint8_t e) {
  uint32_t const bits = e >= 2 ? uint32_t(e - 1) << 23 : 0x00200000u << e;
  float scale;
  __builtin_memcpy(&scale, &bits, 4);
  return scale;
}

// Return the scale of group `group` (0 outside superblocks) and its minimum or 0, in f32. to_f32 converts an
// f16.
template <class Half>
inline __attribute__((always_inline)) float scale_of(Dtype dtype, GroupScales const& scales, int group,
                                                     Half const& to_f32) {
  switch (weight_format(dtype).scales) {
    case Scales::exponent:
      return exponent_scale(scales.bytes[0]);
    case Scales::super:
      return to_f32(scales.halves[0]) * float(int8_t(scales.bytes[group]));
    case Scales::super_minimum:
      return to_f32(scales.halves[0]) * float(scales.bytes[group]);
    case Scales::super_nibbles:
      return to_f32(scales.halves[0]) * float(scales.bytes[group] & 15);
    default:
      return to_f32(scales.halves[0]);
  }
}
template <class Half>
inline __attribute__((always_inline)) float minimum_of(Dtype dtype, GroupScales const& scales, int group,
                                                       Half const& to_f32) {
  switch (weight_format(dtype).scales) {
    case Scales::half_minimum:
      return -to_f32(scales.halves[1]);
    case Scales::super_minimum:
      return to_f32(scales.halves[1]) * float(scales.bytes[kSuper / weight_group(dtype) + group]);
    case Scales::super_nibbles:
      return to_f32(scales.halves[1]) * float(scales.bytes[group] >> 4);
    default:
      return 0;
  }
}

}  // namespace bunting
