// stored_block.cpp - how GGUF files order the bits of a block. Little-endian; d and e are f16.
//
//   type    numbers  bytes  layout, in order
//   Q4_0         32     18  d; nibbles
//   Q4_1         32     20  d, m; nibbles
//   Q5_0         32     22  d; u32 fifth bits; nibbles
//   Q5_1         32     24  d, m; u32 fifth bits; nibbles
//   Q8_0         32     34  d; 32 i8
//   IQ4_NL       32     18  d; nibbles, indices of levels
//   MXFP4        32     17  u8 exponent; nibbles, indices of levels
//   Q2_K        256     84  16 bytes of a scale and a minimum; pairs; d, e
//   Q3_K        256    110  32 bytes of third bits; pairs; 12 bytes of 16 six-bit scales; d
//   Q4_K        256    144  d, e; 12 bytes of 8 six-bit scales and minimums; nibbles
//   Q5_K        256    176  d, e; the same 12 bytes; 32 bytes of fifth bits; nibbles
//   Q6_K        256    210  nibbles; pairs; 16 i8 scales; d
//   IQ4_XS      256    136  d; u16 of upper pairs of 8 scales; 4 bytes of their nibbles; nibbles, indices
//
// Nibbles lie in runs, the low ones of a run before its high ones: of 16 bytes; in Q4_K and Q5_K of 32, in
// Q6_K of 64. Pairs lie in runs of 32 bytes: numbers 32 j to 32 j + 31 of a run are at bit 2 j. Bits lie in
// a run of 32 bytes: numbers 32 j to 32 j + 31 are at bit j.
//
// Checked:  against reference::stored_value, which reads the same table number by number.
#include "cpu/kernels/stored_block.h"

#include <cstring>

namespace bunting {
namespace {

// Number i of nibbles in runs of `run` bytes, of pairs, and of bits in 32 bytes.
int nibble(uint8_t const* from, int i, int run) {
  uint8_t const byte = from[i / (2 * run) * run + i % run];
  return i / run % 2 == 0 ? byte & 15 : byte >> 4;
}
int pair(uint8_t const* from, int i) {
  return from[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}
int bit(uint8_t const* from, int i) {
  return from[i % 32] >> (i / 32) & 1;
}

uint32_t word_at(uint8_t const* from) {
  uint32_t word;
  std::memcpy(&word, from, 4);
  return word;
}

// Simple blocks: `head` bytes of scales, then maybe fifth bits, then nibbles.
void read_simple(Dtype dtype, uint8_t const* from, int head, StoredBlock& to) {
  bool const has_fifth = integer_bits(dtype) == 5;
  uint32_t const fifth = has_fifth ? word_at(from + head) : 0;
  uint8_t const* const nibbles = from + head + (has_fifth ? 4 : 0);
  for (int i = 0; i < kGroup; i++)
    to.q[i] = int8_t((nibble(nibbles, i, 16) | int(fifth >> i & 1) << 4) - integer_zero(dtype));
}

void read_q4_k_or_q5_k(uint8_t const* from, bool has_fifth, StoredBlock& to) {
  std::memcpy(to.scales.halves, from, 4);
  uint8_t const* const packed = from + 4;
  uint8_t const *const fifth = packed + 12, *const nibbles = fifth + (has_fifth ? 32 : 0);
  for (int group = 0; group < 8; group++) {
    // The first four groups have the lower six bits of bytes 0-3 and 4-7; the others have a nibble of bytes
    // 8-11 each, and above it the two bits left over.
    int const upper = group < 4 ? 0 : group - 4;
    to.scales.bytes[group] =
        uint8_t(group < 4 ? packed[group] & 63 : (packed[group + 4] & 15) | packed[upper] >> 6 << 4);
    to.scales.bytes[8 + group] =
        uint8_t(group < 4 ? packed[group + 4] & 63 : packed[group + 4] >> 4 | packed[group] >> 6 << 4);
  }
  for (int i = 0; i < kSuper; i++)
    to.q[i] = int8_t(nibble(nibbles, i, 32) | (has_fifth ? bit(fifth, i) << 4 : 0));
}

void read_q6_k(uint8_t const* from, StoredBlock& to) {
  std::memcpy(to.scales.bytes, from + 192, 16);
  std::memcpy(to.scales.halves, from + stored_halves_at(Dtype::q6_k), 2);
  for (int i = 0; i < kSuper; i++) to.q[i] = int8_t((nibble(from, i, 64) | pair(from + 128, i) << 4) - 32);
}

void read_q3_k(uint8_t const* from, StoredBlock& to) {
  uint8_t const *const pairs = from + 32, *const packed = from + 96;
  std::memcpy(to.scales.halves, from + stored_halves_at(Dtype::q3_k), 2);
  // The low four bits of scales 0-7 are the low nibbles of the first eight bytes, of 8-15 the high ones; the
  // upper two are pairs of the last four.
  for (int i = 0; i < 16; i++) {
    int const low = packed[i % 8] >> (i / 8 * 4) & 15, high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
    to.scales.bytes[i] = uint8_t((low | high << 4) - 32);
  }
  for (int i = 0; i < kSuper; i++) to.q[i] = int8_t((pair(pairs, i) | bit(from, i) << 2) - 4);
}

void read_q2_k(uint8_t const* from, StoredBlock& to) {
  std::memcpy(to.scales.bytes, from, 16);
  std::memcpy(to.scales.halves, from + stored_halves_at(Dtype::q2_k), 4);
  for (int i = 0; i < kSuper; i++) to.q[i] = int8_t(pair(from + 16, i));
}

void read_iq4_xs(uint8_t const* from, StoredBlock& to) {
  std::memcpy(to.scales.halves, from, 2);
  uint32_t const upper = word_at(from + 2) & 0xffff;
  for (int i = 0; i < 8; i++) {
    int const low = from[4 + i / 2] >> (i % 2 * 4) & 15, high = int(upper >> (2 * i) & 3);
    to.scales.bytes[i] = uint8_t((low | high << 4) - 32);
  }
  for (int i = 0; i < kSuper; i++) to.q[i] = int8_t(nibble(from + 8, i, 16));
}

}  // namespace

int64_t stored_block_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::q4:
    case Dtype::iq4_nl:
      return 18;
    case Dtype::q4_1:
      return 20;
    case Dtype::q5_0:
      return 22;
    case Dtype::q5_1:
      return 24;
    case Dtype::q8:
      return 34;
    case Dtype::mxfp4:
      return 17;
    case Dtype::q2_k:
      return 84;
    case Dtype::q3_k:
      return 110;
    case Dtype::q4_k:
      return 144;
    case Dtype::q5_k:
      return 176;
    case Dtype::q6_k:
      return 210;
    case Dtype::iq4_xs:
      return 136;
    default:
      return 0;
  }
}

StoredBlock read_stored_block(Dtype dtype, char const* at) {
  auto const* const from = reinterpret_cast<uint8_t const*>(at);
  StoredBlock to{};
  switch (dtype) {
    case Dtype::q8:
      std::memcpy(to.scales.halves, from, 2);
      std::memcpy(to.q, from + 2, kGroup);
      break;
    case Dtype::mxfp4:
      to.scales.bytes[0] = from[0];
      read_simple(dtype, from, 1, to);
      break;
    case Dtype::q2_k:
      read_q2_k(from, to);
      break;
    case Dtype::q3_k:
      read_q3_k(from, to);
      break;
    case Dtype::q4_k:
    case Dtype::q5_k:
      read_q4_k_or_q5_k(from, dtype == Dtype::q5_k, to);
      break;
    case Dtype::q6_k:
      read_q6_k(from, to);
      break;
    case Dtype::iq4_xs:
      read_iq4_xs(from, to);
      break;
    default: {
      int const halves = scale_halves(dtype);
      std::memcpy(to.scales.halves, from, size_t(halves) * 2);
      read_simple(dtype, from, halves * 2, to);
    }
  }
  return to;
}

void pack_stored_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  int64_t const length = stored_block_length(w.dtype), bytes = stored_block_bytes(w.dtype);
  int64_t const row_bytes = w.k / length * bytes;
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t k = 0; k < w.kp(); k += length) {
      if (k % w.block() == 0)
        std::memset(w.panel(panel) + w.depth_bytes(k), 0, size_t(w.block_scale_bytes()));
      for (int64_t n = panel * kPanel; n < (panel + 1) * kPanel; ++n) {
        StoredBlock block{};
        if (n < w.n && k < w.k) block = read_stored_block(w.dtype, src + n * row_bytes + k / length * bytes);
        write_scales(w, n, k, block.scales);
        for (int64_t i = 0; i < length; i += kGroup) write_integers(w, n, k + i, block.q + i);
      }
    }
  }
}

}  // namespace bunting
