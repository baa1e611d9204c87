// integer_layout.cpp - integers of one row into the lines of a panel, and out of them.
//
// Work:     kGroup of a row, which are four bytes in each of their lines.
// Checked:  against reference::pack and reference::weight, which find every integer by itself.
#include "cpu/kernels/integer_layout.h"

#include <cstring>

namespace bunting {
namespace {

constexpr int kSteps = kGroup / 4, kStepBytes = 4 * kPanel;
constexpr uint32_t kLowBits = 0x0f0f0f0f;

// The first k of the block with k.
int64_t block_of(PackedMatrix const& w, int64_t k) {
  return k / (2 * w.group) * (2 * w.group);
}

// Bytes from the start of a panel to the scale of a column in the group with k, and to the first line's four
// k of it.
int64_t scale_at(PackedMatrix const& w, int64_t column, int64_t k) {
  return w.depth_bytes(block_of(w, k)) + (k / w.group % 2 * kPanel + column) * 2;
}
int64_t integers_at(PackedMatrix const& w, int64_t column, int64_t k) {
  int64_t const before = (k - block_of(w, k)) * kPanel * integer_bits(w.dtype) / 8;
  return w.depth_bytes(block_of(w, k)) + kScaleBytes + before + column * 4;
}

// The four k of each step as a word of unsigned bytes.
struct Words {
  uint32_t of_step[kSteps];
};

template <int kStored>
void write_words(char* column, Words const& words) {
  uint32_t lines[kStored] = {};
  for (int s = 0; s < kSteps; ++s) {
    uint32_t const word = words.of_step[s];
    if constexpr (kStored == kSteps) {
      lines[s] = word;
    } else {
      lines[s % 4] |= (word & kLowBits) << (s / 4 * 4);
      if constexpr (kStored == 6) lines[4 + s % 2] |= (word >> 4 & 0x03030303) << (s / 2 * 2);
    }
  }
  for (int i = 0; i < kStored; ++i) std::memcpy(column + i * kStepBytes, lines + i, 4);
}

template <int kStored>
Words read_words(char const* column) {
  uint32_t lines[kStored];
  for (int i = 0; i < kStored; ++i) std::memcpy(lines + i, column + i * kStepBytes, 4);
  Words words;
  for (int s = 0; s < kSteps; ++s) {
    uint32_t& word = words.of_step[s];
    if constexpr (kStored == kSteps) {
      word = lines[s];
    } else {
      word = lines[s % 4] >> (s / 4 * 4) & kLowBits;
      if constexpr (kStored == 6) word |= (lines[4 + s % 2] >> (s / 2 * 2) & 0x03030303) << 4;
    }
  }
  return words;
}

}  // namespace

void write_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t const* q) {
  Words words;
  for (int s = 0; s < kSteps; ++s) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t(q[s * 4 + i] + integer_zero(w.dtype)) << (8 * i);
    words.of_step[s] = word;
  }
  char* const column = w.panel(n / kPanel) + integers_at(w, n % kPanel, k);
  if (w.dtype == Dtype::q8)
    write_words<8>(column, words);
  else if (w.dtype == Dtype::q6)
    write_words<6>(column, words);
  else
    write_words<4>(column, words);
}

void read_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t* q) {
  char const* const column = w.panel(n / kPanel) + integers_at(w, n % kPanel, k);
  Words const words = w.dtype == Dtype::q8   ? read_words<8>(column)
                      : w.dtype == Dtype::q6 ? read_words<6>(column)
                                             : read_words<4>(column);
  for (int s = 0; s < kSteps; ++s)
    for (int i = 0; i < 4; ++i)
      q[s * 4 + i] = int8_t(int(words.of_step[s] >> (8 * i) & 255) - integer_zero(w.dtype));
}

void write_scale(PackedMatrix const& w, int64_t n, int64_t k, uint16_t scale) {
  std::memcpy(w.panel(n / kPanel) + scale_at(w, n % kPanel, k), &scale, sizeof scale);
}

uint16_t read_scale(PackedMatrix const& w, int64_t n, int64_t k) {
  uint16_t scale;
  std::memcpy(&scale, w.panel(n / kPanel) + scale_at(w, n % kPanel, k), sizeof scale);
  return scale;
}

}  // namespace bunting
