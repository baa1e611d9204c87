// integer_layout.cpp - writes integers of one row into the lines of a panel, and reads them back.
//
// Work:     kGroup of a row, which are four bytes in each of their lines.
// Checked:  against reference::pack and reference::weight, which locate every integer separately.
#include "cpu/kernels/integer_layout.h"

#include <cstring>
#include <type_traits>

namespace bunting {
namespace {

// Returns the block with k in the panel of row n.
char* block_at(PackedMatrix const& w, int64_t n, int64_t k) {
  return w.panel(n / kPanel) + w.depth_bytes(k / w.block() * w.block());
}

// Returns the first line's four k of row n, of the kGroup from k on.
char* integers_at(PackedMatrix const& w, int64_t n, int64_t k) {
  int64_t const before = k % w.block() * kPanel * integer_bits(w.dtype) / 8;
  return block_at(w, n, k) + w.block_scale_bytes() + before + n % kPanel * 4;
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

// Calls function(std::integral_constant<int, Bits>) with the format's bits.
template <class Function>
void with_bits(Dtype dtype, Function const& function) {
  switch (integer_bits(dtype)) {
    case 8:
      return function(std::integral_constant<int, 8>{});
    case 6:
      return function(std::integral_constant<int, 6>{});
    case 5:
      return function(std::integral_constant<int, 5>{});
    case 4:
      return function(std::integral_constant<int, 4>{});
    case 3:
      return function(std::integral_constant<int, 3>{});
    default:
      return function(std::integral_constant<int, 2>{});
  }
}

}  // namespace

void write_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t const* q) {
  uint8_t integers[kGroup];
  for (int i = 0; i < kGroup; ++i) integers[i] = uint8_t(q[i] + integer_zero(w.dtype));
  with_bits(w.dtype, [&](auto bits) { write_lines<bits.value>(integers_at(w, n, k), integers); });
}

void read_integers(PackedMatrix const& w, int64_t n, int64_t k, int8_t* q) {
  uint32_t words[kSteps];
  with_bits(w.dtype, [&](auto bits) { read_lines<bits.value>(integers_at(w, n, k), words); });
  for (int i = 0; i < kGroup; ++i)
    q[i] = int8_t(int(words[i / 4] >> (i % 4 * 8) & 255) - integer_zero(w.dtype));
}

namespace {

// Calls function(value's address in the panel, its index in GroupScales) for each f16, then for each byte.
template <class Halves, class Bytes>
void each_scale(PackedMatrix const& w, int64_t n, int64_t k, Halves const& half, Bytes const& byte) {
  char* const block = block_at(w, n, k);
  int64_t const groups = block_scales(w.dtype), group = is_super(w.dtype) ? 0 : k % w.block() / w.group();
  int const halves = scale_halves(w.dtype);
  char* const bytes = block + groups * halves * kPanel * 2;
  for (int i = 0; i < halves; ++i) half(block + (i * groups + group) * kPanel * 2 + n % kPanel * 2, i);
  for (int i = 0; i < scale_bytes(w.dtype); ++i) byte(bytes + (i * groups + group) * kPanel + n % kPanel, i);
}

}  // namespace

void write_scales(PackedMatrix const& w, int64_t n, int64_t k, GroupScales const& scales) {
  each_scale(
      w, n, k, [&](char* at, int i) { std::memcpy(at, &scales.halves[i], 2); },
      [&](char* at, int i) { *at = char(scales.bytes[i]); });
}

GroupScales read_scales(PackedMatrix const& w, int64_t n, int64_t k) {
  GroupScales scales{};
  each_scale(
      w, n, k, [&](char const* at, int i) { std::memcpy(&scales.halves[i], at, 2); },
      [&](char const* at, int i) { scales.bytes[i] = uint8_t(*at); });
  return scales;
}

}  // namespace bunting
