#include "cpu/kernels/super_block.h"

#include <cstring>

namespace bunting {
namespace {

// Q4_K and Q5_K: f16 d, e; 12 bytes of scales and minimums; in Q5_K 32 bytes of fifth bits, bit g of byte i
// that of number i of group g; then four runs of 32 bytes of nibbles, the low ones of one group and the high
// ones of the next.
SuperBlock read_with_minimums(char const* from, bool has_fifth) {
  SuperBlock block{};
  std::memcpy(&block.scales.d, from, 2);
  std::memcpy(&block.scales.e, from + 2, 2);
  uint8_t const* const packed = reinterpret_cast<uint8_t const*>(from) + 4;
  uint8_t const* const fifth = packed + 12;
  uint8_t const* const nibbles = fifth + (has_fifth ? 32 : 0);
  for (int group = 0; group < 8; group++) {
    // The first four groups have the lower six bits of bytes 0-3 and 4-7; the others have a nibble of bytes
    // 8-11 each, and above it the two bits left over.
    int const upper = group < 4 ? 0 : group - 4;
    block.scales.scale[group] =
        int8_t(group < 4 ? packed[group] & 63 : (packed[group + 4] & 15) | packed[upper] >> 6 << 4);
    block.scales.minimum[group] =
        uint8_t(group < 4 ? packed[group + 4] & 63 : packed[group + 4] >> 4 | packed[group] >> 6 << 4);
    for (int i = 0; i < 32; i++) {
      int const low = nibbles[group / 2 * 32 + i] >> (group % 2 * 4) & 15;
      block.q[group * 32 + i] = int8_t(low | (has_fifth ? (fifth[i] >> group & 1) << 4 : 0));
    }
  }
  return block;
}

// Q6_K has two halves of 128 numbers, each with 64 bytes of nibbles and 32 of upper pairs. Its four groups of
// 32 numbers take the low nibbles of the first and second 32 bytes, then the high ones; group g takes the
// pair at bit 2g. Then 16 i8 scales, of 16 numbers each, and f16 d.
SuperBlock read_q6_k(char const* from) {
  SuperBlock block{};
  uint8_t const* const bytes = reinterpret_cast<uint8_t const*>(from);
  std::memcpy(block.scales.scale, from + 192, 16);
  std::memcpy(&block.scales.d, from + 208, 2);
  for (int i = 0; i < kSuper; i++) {
    int const half = i / 128, group = i % 128 / 32;
    int const low = bytes[half * 64 + group % 2 * 32 + i % 32] >> (group / 2 * 4) & 15;
    int const high = bytes[128 + half * 32 + i % 32] >> (2 * group) & 3;
    block.q[i] = int8_t((low | high << 4) - 32);
  }
  return block;
}

}  // namespace

SuperBlock read_super_block(Dtype type, char const* from) {
  return type == Dtype::q6_k ? read_q6_k(from) : read_with_minimums(from, type == Dtype::q5_k);
}

int64_t super_block_bytes(Dtype type) {
  return type == Dtype::q4_k ? 144 : type == Dtype::q5_k ? 176 : 210;
}

void pack_super_blocks(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  int64_t const bytes = super_block_bytes(w.dtype), row_bytes = w.k / kSuper * bytes;
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t k = 0; k < w.kp(); k += kSuper) {
      std::memset(w.panel(panel) + w.depth_bytes(k), 0, kSuperBytes);
      for (int64_t n = panel * kPanel; n < (panel + 1) * kPanel; ++n) {
        SuperBlock block{};
        if (n < w.n) block = read_super_block(w.dtype, src + n * row_bytes + k / kSuper * bytes);
        write_super_scales(w, n, k, block.scales);
        for (int i = 0; i < kSuper; i += kGroup) write_integers(w, n, k + i, block.q + i);
      }
    }
  }
}

}  // namespace bunting
