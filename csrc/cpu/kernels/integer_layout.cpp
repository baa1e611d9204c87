// integer_layout.cpp - integers of one row into the lines of a panel, and out of them.
//
// Work:     kGroup of a row, which are four bytes in each of their lines.
// Checked:  against reference::pack and reference::weight, which find every integer by itself.
#include "cpu/kernels/integer_layout.h"

#include <cstring>

namespace bunting {
namespace {

// The first k of the block with k.
int64_t block_of(PackedMatrix const& w, int64_t k) {
  return k / w.block() * w.block();
}

// The scale of row n in the group with k.
char* scale_at(PackedMatrix const& w, int64_t n, int64_t k) {
  int64_t const scale = k / w.group() % 2 * kPanel + n % kPanel;
  return w.panel(n / kPanel) + w.depth_bytes(block_of(w, k)) + scale * 2;
}

// The first line's four k of row n, of the kGroup from k on.
char* integers_at(PackedMatrix const& w, int64_t n, int64_t k) {
  int64_t const before = (k - block_of(w, k)) * kPanel * integer_bits(w.dtype) / 8;
  return w.panel(n / kPanel) + w.depth_bytes(block_of(w, k)) + w.block_scale_bytes() + before +
         n % kPanel * 4;
}

// The words of steps, unsigned, as a column's part of the lines.
template <int Bits>
void write_lines(char* column, uint32_t const (&words)[kSteps]) {
  uint32_t lines[Bits] = {};
  for (int s = 0; s < kSteps; ++s) {
    if constexpr (Bits == 8) {
      lines[s] = words[s];
    } else {
      lines[s % 4] |= (words[s] & 0x0f0f0f0f) << (s / 4 * 4);
      if constexpr (Bits == 5) lines[4] |= (words[s] >> 4 & 0x01010101) << s;
      if constexpr (Bits == 6) lines[4 + s % 2] |= (words[s] >> 4 & 0x03030303) << (s / 2 * 2);
    }
  }
  for (int i = 0; i < Bits; ++i) std::memcpy(column + i * kIntegerLineBytes, lines + i, 4);
}

template <int Bits>
void read_lines(char const* column, uint32_t (&words)[kSteps]) {
  auto const line = [&](int i) {
    uint32_t word;
    std::memcpy(&word, column + i * kIntegerLineBytes, 4);
    return word;
  };
  for (int s = 0; s < kSteps; ++s) words[s] = integers_of_step<Bits>(line, s);
}

}  // namespace

void write_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t const* q) {
  uint32_t words[kSteps] = {};
  for (int i = 0; i < kGroup; ++i) words[i / 4] |= uint32_t(q[i] + integer_zero(w.dtype)) << (i % 4 * 8);
  auto const write = [bits = integer_bits(w.dtype)] {
    return bits == 8   ? write_lines<8>
           : bits == 6 ? write_lines<6>
           : bits == 5 ? write_lines<5>
                       : write_lines<4>;
  }();
  write(integers_at(w, n, k), words);
}

void read_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t* q) {
  uint32_t words[kSteps];
  auto const read = [bits = integer_bits(w.dtype)] {
    return bits == 8 ? read_lines<8> : bits == 6 ? read_lines<6> : bits == 5 ? read_lines<5> : read_lines<4>;
  }();
  read(integers_at(w, n, k), words);
  for (int i = 0; i < kGroup; ++i)
    q[i] = int8_t(int(words[i / 4] >> (i % 4 * 8) & 255) - integer_zero(w.dtype));
}

void write_scale(PackedMatrix const& w, int64_t n, int64_t k, uint16_t scale) {
  std::memcpy(scale_at(w, n, k), &scale, sizeof scale);
}

uint16_t read_scale(PackedMatrix const& w, int64_t n, int64_t k) {
  uint16_t scale;
  std::memcpy(&scale, scale_at(w, n, k), sizeof scale);
  return scale;
}

namespace {

// A panel's part of the superblock with k, as kernels.h tells it.
struct SuperPlaces {
  char *d, *e, *scales, *minimums;
};
SuperPlaces super_places(PackedMatrix const& w, int64_t n, int64_t k) {
  char* const d = w.panel(n / kPanel) + w.depth_bytes(block_of(w, k)) + n % kPanel * 2;
  char* const bytes = d - n % kPanel * 2 + kPanel * (has_minimum(w.dtype) ? 4 : 2) + n % kPanel;
  return {d, d + kPanel * 2, bytes, bytes + kSuper / kGroup * kPanel};
}

}  // namespace

void write_super_scales(PackedMatrix const& w, int64_t n, int64_t k, SuperScales const& from) {
  SuperPlaces const to = super_places(w, n, k);
  std::memcpy(to.d, &from.d, 2);
  for (int64_t i = 0; i < kSuper / w.group(); ++i) to.scales[i * kPanel] = char(from.scale[i]);
  if (!has_minimum(w.dtype)) return;
  std::memcpy(to.e, &from.e, 2);
  for (int i = 0; i < kSuper / kGroup; ++i) to.minimums[i * kPanel] = char(from.minimum[i]);
}

SuperScales read_super_scales(PackedMatrix const& w, int64_t n, int64_t k) {
  SuperPlaces const from = super_places(w, n, k);
  SuperScales to{};
  std::memcpy(&to.d, from.d, 2);
  for (int64_t i = 0; i < kSuper / w.group(); ++i) to.scale[i] = int8_t(from.scales[i * kPanel]);
  if (!has_minimum(w.dtype)) return to;
  std::memcpy(&to.e, from.e, 2);
  for (int i = 0; i < kSuper / kGroup; ++i) to.minimum[i] = uint8_t(from.minimums[i * kPanel]);
  return to;
}

}  // namespace bunting
