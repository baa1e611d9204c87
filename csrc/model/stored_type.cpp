// stored_type.cpp - blocks to f32.
//
//   type  numbers  bytes  layout, in order                                           number
//   Q4_0       32     18  f16 d; 16 bytes of nibbles                                 d (q - 8)
//   Q4_1       32     20  f16 d, m; 16 bytes of nibbles                              d q + m
//   Q5_0       32     22  f16 d; u32 fifth bits; 16 bytes of nibbles                 d (q - 16)
//   Q5_1       32     24  f16 d, m; u32 fifth bits; 16 bytes of nibbles              d q + m
//   Q8_0       32     34  f16 d; 32 i8 q                                             d q
//   Q4_K      256    144  f16 d, e; 12 bytes of 8 (s, t); 128 bytes of nibbles       (d s) q - (e t)
//   Q5_K      256    176  f16 d, e; 12 bytes of 8 (s, t); 32 fifth bits; 128 nibbles (d s) q - (e t)
//   Q6_K      256    210  128 bytes of nibbles; 64 of upper pairs; 16 i8 s; f16 d    (d s) (q - 32)
//
// Everything is little-endian. In a run of n bytes of nibbles the low ones are the first n numbers, the high
// ones the next n: n is 16 in blocks of 32, and 32 in Q4_K and Q5_K, whose 128 bytes are four such runs. (s,
// t) are the 6-bit scale and minimum of 32 numbers. The types with a K are read in
// cpu/kernels/super_block.cpp.
//
// Work:    one row of a matrix at a time, on the thread that packs it.
// Checked: bit for bit against reference::stored_value, which reads the same table number by number.
#include "model/stored_type.h"

#include <cmath>
#include <cstring>

#include "cpu/kernels/super_block.h"
#include "include/engine.h"

namespace bunting {
namespace {

constexpr int kSmall = 32;  // numbers of a simple block
constexpr int kLarge = kSuper;

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

// Q4_0, Q4_1, Q5_0, Q5_1: number = d (q - zero) + m, where m is 0 without `minimum`.
template <bool minimum, bool fifth>
void decode_nibbles(char const* from, int64_t blocks, float* to) {
  constexpr int zero = minimum ? 0 : fifth ? 16 : 8;
  for (; blocks > 0; blocks--, to += kSmall) {
    float const d = half_at(from);
    float const m = minimum ? half_at(from + 2) : 0.0f;
    from += minimum ? 4 : 2;
    uint32_t const upper = fifth ? read<uint32_t>(from) : 0;
    if (fifth) from += 4;
    for (int i = 0; i < 16; i++, from++) {
      int const pair = uint8_t(*from);
      int const low = (pair & 15) | int(upper >> i & 1) << 4;
      int const high = pair >> 4 | int(upper >> (i + 16) & 1) << 4;
      to[i] = minimum ? d * float(low) + m : d * float(low - zero);
      to[i + 16] = minimum ? d * float(high) + m : d * float(high - zero);
    }
  }
}

void decode_q8_0(char const* from, int64_t blocks, float* to) {
  for (; blocks > 0; blocks--, from += 34, to += kSmall) {
    float const d = half_at(from);
    for (int i = 0; i < kSmall; i++) to[i] = d * float(read<int8_t>(from + 2 + i));
  }
}

// Q4_K, Q5_K, Q6_K
template <Dtype type>
void decode_super(char const* from, int64_t blocks, float* to) {
  for (; blocks > 0; blocks--, from += super_block_bytes(type), to += kSuper) {
    SuperBlock const block = read_super_block(type, from);
    float const d = half_to_float(block.scales.d), e = half_to_float(block.scales.e);
    for (int i = 0; i < kSuper; i++) {
      float const scaled = d * float(block.scales.scale[i / weight_group(type)]) * float(block.q[i]);
      to[i] = has_minimum(type) ? scaled - e * float(block.scales.minimum[i / kGroup]) : scaled;
    }
  }
}

}  // namespace

StoredType const* stored_type(int32_t type) {
  static constexpr StoredType f32{"F32", 1, 4, decode_f32}, f16{"F16", 1, 2, decode_f16},
      bf16{"BF16", 1, 2, decode_bf16}, q4_0{"Q4_0", kSmall, 18, decode_nibbles<false, false>},
      q4_1{"Q4_1", kSmall, 20, decode_nibbles<true, false>},
      q5_0{"Q5_0", kSmall, 22, decode_nibbles<false, true>},
      q5_1{"Q5_1", kSmall, 24, decode_nibbles<true, true>}, q8_0{"Q8_0", kSmall, 34, decode_q8_0},
      q4_k{"Q4_K", kLarge, 144, decode_super<Dtype::q4_k>},
      q5_k{"Q5_K", kLarge, 176, decode_super<Dtype::q5_k>},
      q6_k{"Q6_K", kLarge, 210, decode_super<Dtype::q6_k>};
  switch (type) {
    case BUNTING_F32:
      return &f32;
    case BUNTING_F16:
      return &f16;
    case BUNTING_BF16:
      return &bf16;
    case BUNTING_Q4_0:
      return &q4_0;
    case BUNTING_Q4_1:
      return &q4_1;
    case BUNTING_Q5_0:
      return &q5_0;
    case BUNTING_Q5_1:
      return &q5_1;
    case BUNTING_Q8_0:
      return &q8_0;
    case BUNTING_Q4_K:
      return &q4_k;
    case BUNTING_Q5_K:
      return &q5_k;
    case BUNTING_Q6_K:
      return &q6_k;
    default:
      return nullptr;
  }
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
