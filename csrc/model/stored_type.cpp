// stored_type.cpp - converts stored numbers to f32. cpu/kernels/stored_block.h unpacks blocks.
//
// Work:    one row of a matrix at a time, on the thread that packs it.
// Checked: bit for bit against reference::stored_value, which reads number by number.
#include "model/stored_type.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "cpu/kernels/stored_block.h"
#include "model/codebook_types.h"

namespace bunting {
namespace {

template <class T>
T read(char const* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float half_to_float(uint16_t half) {
  uint32_t const sign = uint32_t(half & 0x8000u) << 16, exponent = (half >> 10) & 31u,
                 mantissa = half & 0x3ffu;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp(float(mantissa), -24);
  uint32_t const bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float half_at(char const* at) {
  return half_to_float(read<uint16_t>(at));
}

void decode_f32(char const* from, int64_t count, float* to) {
  std::memcpy(to, from, size_t(count) * sizeof(float));
}

void decode_f16(char const* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i++) to[i] = half_at(from + 2 * i);
}

void decode_bf16(char const* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t const bits = uint32_t(read<uint16_t>(from + 2 * i)) << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

// True if no exponent has all bits set.
template <class Bits>
bool are_finite(char const* from, int64_t count, Bits exponent) {
  bool is_finite = true;
  for (int64_t i = 0; i < count; i++)
    is_finite &= (read<Bits>(from + i * int64_t(sizeof(Bits))) & exponent) != exponent;
  return is_finite;
}
bool is_finite_f32(char const* from, int64_t count) {
  return are_finite<uint32_t>(from, count, 0x7f800000u);
}
bool is_finite_f16(char const* from, int64_t count) {
  return are_finite<uint16_t>(from, count, 0x7c00);
}
bool is_finite_bf16(char const* from, int64_t count) {
  return are_finite<uint16_t>(from, count, 0x7f80);
}
template <Dtype type>
bool is_finite_blocks(char const* from, int64_t blocks) {
  bool is_finite = true;
  for (; blocks > 0; blocks--, from += stored_block_bytes(type)) {
    is_finite &= is_finite_f16(from + stored_halves_at(type), scale_halves(type));
    if constexpr (weight_format(type).scales == Scales::exponent)
      is_finite &= uint8_t(from[weight_format(type).file.scale.at]) != 255;  // 255 marks a block of NaN
  }
  return is_finite;
}

template <Dtype type>
void decode_blocks(char const* from, int64_t blocks, float* to) {
  constexpr int64_t length = stored_block_length(type), group = weight_group(type);
  constexpr Levels levels = weight_format(type).levels;
  for (; blocks > 0; blocks--, from += stored_block_bytes(type), to += length) {
    StoredBlock const block = read_stored_block<type>(from);
    for (int64_t first = 0; first < length; first += group) {
      float const scale = scale_of(type, block.scales, int(first / group), half_to_float);
      float const minimum = minimum_of(type, block.scales, int(first / group), half_to_float);
      for (int64_t i = first; i < first + group; i++) {
        float const scaled = scale * float(has_levels(type) ? levels.of[block.q[i]] : block.q[i]);
        to[i] = has_minimum(type) ? scaled - minimum : scaled;
      }
    }
  }
}

// Returns null for a format that files do not have.
template <Dtype type>
StoredType const* type_of() {
  constexpr WeightFormat const& format = weight_format(type);
  if constexpr (format.file.bytes == 0) {
    return nullptr;
  } else if constexpr (is_grouped(type)) {
    static constexpr StoredType blocks{format.name, stored_block_length(type), format.file.bytes,
                                       decode_blocks<type>, is_finite_blocks<type>};
    return &blocks;
  } else {
    constexpr auto decode = type == Dtype::f32 ? decode_f32 : type == Dtype::f16 ? decode_f16 : decode_bf16;
    constexpr auto is_finite = type == Dtype::f32   ? is_finite_f32
                               : type == Dtype::f16 ? is_finite_f16
                                                    : is_finite_bf16;
    static constexpr StoredType numbers{format.name, 1, format.file.bytes, decode, is_finite};
    return &numbers;
  }
}

template <size_t... I>
StoredType const* find_type(int32_t number, std::index_sequence<I...>) {
  StoredType const* found = nullptr;
  (void)((number == int32_t(kFormats[I].type) && (found = type_of<kFormats[I].type>(), true)) || ...);
  return found;
}

}  // namespace

StoredType const* stored_type(int32_t type) {
  if (StoredType const* const of_codebook = codebook_type(type)) return of_codebook;
  return find_type(type, std::make_index_sequence<std::size(kFormats)>{});
}

void widen_q4_0(char const* from, int64_t blocks, char* to) {
  for (; blocks > 0; blocks--, from += 18, to += 34) {
    std::memcpy(to, from, 2);
    for (int i = 0; i < 16; i++) {
      int const pair = uint8_t(from[2 + i]);
      to[2 + i] = char((pair & 15) - 8);
      to[18 + i] = char((pair >> 4) - 8);
    }
  }
}

}  // namespace bunting
