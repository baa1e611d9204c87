// codebook_types.cpp - decodes GGUF's types IQ1 to IQ3. Little-endian; d is an f16, blocks have 256 numbers.
//
//   type      bytes  layout, in order
//   IQ2_XXS      66  d; per 32 numbers: 4 row numbers; u32 of 4 signs of 7 bits, scale s in the upper 4 bits
//   IQ2_XS       74  d; 32 u16 of a row number (9 bits) and signs (7 bits); 16 nibbles of scales s
//   IQ2_S        82  d; 32 low bytes of row numbers; 32 bytes of signs; 32 pairs of upper bits; 16 nibbles of
//                    scales s
//   IQ3_XXS      98  d; 64 row numbers; per 32 numbers the u32 of IQ2_XXS
//   IQ3_S       110  d; 64 low bytes of row numbers; 64 upper bits; 32 bytes of signs; 8 nibbles of scales s
//   IQ1_S        50  d; 32 low bytes of row numbers; per 32 numbers a u16: 4 times 3 upper bits, s in 3 bits,
//                    and a flag that subtracts an eighth
//   IQ1_M        56  32 low bytes of row numbers; 32 nibbles: 3 upper bits, and a flag that subtracts an
//                    eighth; 4 u16 of 4 scales s of 3 bits, whose upper nibbles together are d
//
// A number is its magnitude times a factor: d (s + 1/2) / 4 in IQ2; d (s + 1/2) / 2 in IQ3_XXS; d (2 s + 1)
// in IQ3_S and IQ1. In IQ1 an eighth is added to or subtracted from the magnitude. Signs are one bit per
// number for eight numbers, set if it is negative. With seven bits the eighth makes the count of set bits
// even. Nibbles and shorter fields start at the lowest bit.
//
// Work:    one row of a matrix at a time, on the thread that packs it.
// Checked: against the numbers of the Python package `gguf`, through tests/support/gguf-codebooks.ts
//          (tests/device/gguf.test.ts).
#include "model/codebook_types.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "model/codebooks.h"

namespace bunting {
namespace {

constexpr int kBlock = 256;

enum Codebook : int32_t { kIq2Xxs = 30, kIq2Xs, kIq2S, kIq3Xxs, kIq3S, kIq1S, kIq1M };

// Names of the types, their numbers in GGUF files and the bytes of a block (`bun tools/docs.ts` reads these
// lines).
struct CodebookFormat {
  Codebook type;
  char const* name;
  int in_file;
  int64_t bytes;
};
constexpr CodebookFormat kCodebookFormats[] = {
    {kIq2Xxs, "IQ2_XXS", 16, 66}, {kIq2Xs, "IQ2_XS", 17, 74}, {kIq2S, "IQ2_S", 22, 82},
    {kIq3Xxs, "IQ3_XXS", 18, 98}, {kIq3S, "IQ3_S", 21, 110},  {kIq1S, "IQ1_S", 19, 50},
    {kIq1M, "IQ1_M", 29, 56},
};

template <class T>
T read(uint8_t const* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint16_t half_bits(int32_t type, uint8_t const* block) {
  if (type != kIq1M) return read<uint16_t>(block);
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= uint32_t(read<uint16_t>(block + 48 + 2 * i) >> 12) << (4 * i);
  return uint16_t(bits);
}

float half_value(uint16_t half) {
  int const exponent = half >> 10 & 31, mantissa = half & 1023;
  float const magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(float(mantissa), -24)
                                          : std::ldexp(float(1024 + mantissa), exponent - 25);
  return half >> 15 ? -magnitude : magnitude;
}

int nibble(uint8_t const* from, int i) {
  return from[i / 2] >> (i % 2 * 4) & 15;
}

// Writes eight numbers, or four: scale times the magnitudes of a row, negated where a bit of `signs` is set.
void write_row(float* to, float scale, uint16_t row, int8_t const* magnitudes, int count, uint32_t signs) {
  int const bits = count == 8 ? 2 : 3;
  for (int i = 0; i < count; ++i) {
    float const number = scale * float(magnitudes[row >> (bits * i) & ((1 << bits) - 1)]);
    to[i] = signs >> i & 1 ? -number : number;
  }
}

// Adds the eighth sign to seven.
uint32_t all_signs(uint32_t seven) {
  return seven | uint32_t(std::popcount(seven) & 1) << 7;
}

// Decodes numbers 8 i to 8 i + 7 of a block.
void decode_eight(int32_t type, uint8_t const* block, float d, int i, float* to) {
  int const group = i / 4;  // group of 32 numbers
  switch (type) {
    case kIq2Xxs: {
      uint32_t const word = read<uint32_t>(block + 6 + 8 * group);
      float const scale = d * (0.5f + float(word >> 28)) * 0.25f;
      uint16_t const row = kBook2Xxs[block[2 + 8 * group + i % 4]];
      return write_row(to, scale, row, kMagnitudes2, 8, all_signs(word >> (i % 4 * 7) & 127));
    }
    case kIq2Xs: {
      uint16_t const word = read<uint16_t>(block + 2 + 2 * i);
      float const scale = d * (0.5f + float(nibble(block + 66, i / 2))) * 0.25f;
      return write_row(to, scale, kBook2Xs[word & 511], kMagnitudes2, 8, all_signs(word >> 9));
    }
    case kIq2S: {
      int const upper = block[66 + group] >> (i % 4 * 2) & 3;
      float const scale = d * (0.5f + float(nibble(block + 74, i / 2))) * 0.25f;
      return write_row(to, scale, kBook2S[block[2 + i] | upper << 8], kMagnitudes2, 8, block[34 + i]);
    }
    case kIq3Xxs: {
      uint32_t const word = read<uint32_t>(block + 66 + 4 * group);
      float const scale = d * (0.5f + float(word >> 28)) * 0.5f;
      uint32_t const signs = all_signs(word >> (i % 4 * 7) & 127);
      for (int half = 0; half < 2; ++half)
        write_row(to + 4 * half, scale, kBook3Xxs[block[2 + 2 * i + half]], kMagnitudes3Xxs, 4,
                  signs >> 4 * half);
      return;
    }
    case kIq3S: {
      float const scale = d * float(1 + 2 * nibble(block + 106, group));
      for (int half = 0; half < 2; ++half) {
        int const at = 2 * i + half, upper = block[66 + at / 8] >> (at % 8) & 1;
        write_row(to + 4 * half, scale, kBook3S[block[2 + at] | upper << 8], kMagnitudes3S, 4,
                  uint32_t(block[74 + i]) >> 4 * half);
      }
      return;
    }
    default: {
      bool const is_s = type == kIq1S;
      uint32_t const word = is_s ? read<uint16_t>(block + 34 + 2 * group) : uint32_t(nibble(block + 32, i));
      int const upper = is_s ? word >> (i % 4 * 3) & 7 : word & 7;
      uint32_t const scales = is_s ? 0 : read<uint16_t>(block + 48 + i / 8 * 2);
      int const s = is_s ? word >> 12 & 7 : scales >> (i / 2 % 4 * 3) & 7;
      float const shift = word >> (is_s ? 15 : 3) & 1 ? -0.125f : 0.125f, scale = d * float(2 * s + 1);
      uint16_t const row = kBook1[block[(is_s ? 2 : 0) + i] | upper << 8];
      for (int j = 0; j < 8; ++j) to[j] = scale * (float(kMagnitudes1[row >> (2 * j) & 3]) + shift);
    }
  }
}

template <size_t index>
void decode(char const* from, int64_t blocks, float* to) {
  constexpr CodebookFormat format = kCodebookFormats[index];
  for (; blocks > 0; blocks--, from += format.bytes, to += kBlock) {
    auto const* const block = reinterpret_cast<uint8_t const*>(from);
    float const d = half_value(half_bits(format.type, block));
    for (int i = 0; i < kBlock / 8; ++i) decode_eight(format.type, block, d, i, to + 8 * i);
  }
}

template <size_t index>
bool is_finite(char const* from, int64_t blocks) {
  constexpr CodebookFormat format = kCodebookFormats[index];
  bool is_finite = true;
  for (; blocks > 0; blocks--, from += format.bytes)
    is_finite &= (half_bits(format.type, reinterpret_cast<uint8_t const*>(from)) & 0x7c00) != 0x7c00;
  return is_finite;
}

template <size_t... index>
StoredType const* find(int32_t type, std::index_sequence<index...>) {
  static constexpr StoredType all[] = {{kCodebookFormats[index].name, kBlock, kCodebookFormats[index].bytes,
                                        decode<index>, is_finite<index>}...};
  for (size_t i = 0; i < std::size(all); ++i)
    if (kCodebookFormats[i].type == type) return &all[i];
  return nullptr;
}

}  // namespace

StoredType const* codebook_type(int32_t type) {
  return find(type, std::make_index_sequence<std::size(kCodebookFormats)>{});
}

}  // namespace bunting
