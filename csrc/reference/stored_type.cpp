#include "reference/stored_type.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "include/engine.h"
#include "reference/dense.h"

namespace bunting::reference {
namespace {

// Every sum and product below has at most two f32 operands, so that a double holds it exactly or, where the
// exponents are far apart, close enough; the cast then rounds it to f32.
float product(float a, float b) {
  return float(double(a) * double(b));
}
float sum(float a, float b) {
  return float(double(a) + double(b));
}

uint16_t half(uint8_t const* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}
float f16(uint16_t bits) {
  return float(source_value(&bits, Dtype::f16, 0));
}

int bit(uint8_t const* from, int64_t index) {
  return from[index / 8] >> (index % 8) & 1;
}

// Nibble `index` of runs of `run` bytes: the low nibbles of a run come before its high ones.
int nibble(uint8_t const* from, int64_t index, int64_t run) {
  int64_t const in_run = index % (2 * run);
  uint8_t const byte = from[index / (2 * run) * run + in_run % run];
  return in_run < run ? byte & 15 : byte >> 4;
}

// Groups 4 to 7 keep their two upper bits beside those of groups 0 to 3.
int six_bits(uint8_t const* packed, int64_t group, bool minimum) {
  if (group < 4) return packed[group + 4 * minimum] % 64;
  int const low = minimum ? packed[group + 4] / 16 : packed[group + 4] % 16;
  int const high = packed[minimum ? group : group - 4] / 64;
  return high * 16 + low;
}

int level(int index) {
  constexpr int kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kLevels[index];
}

// Twice a number of sign, two bits of exponent and one of mantissa.
int twice_e2m1(int bits) {
  int const exponent = bits >> 1 & 3, mantissa = bits & 1;
  double const magnitude = exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
  return int(bits >= 8 ? -2 * magnitude : 2 * magnitude);
}

}  // namespace

StoredSize stored_size(int32_t type) {
  switch (type) {
    case BUNTING_Q4_0:
    case BUNTING_IQ4_NL:
      return {32, 2 + 16};
    case BUNTING_Q4_1:
      return {32, 2 + 2 + 16};
    case BUNTING_Q5_0:
      return {32, 2 + 4 + 16};
    case BUNTING_Q5_1:
      return {32, 2 + 2 + 4 + 16};
    case BUNTING_Q8_0:
      return {32, 2 + 32};
    case BUNTING_MXFP4:
      return {32, 1 + 16};
    case BUNTING_Q2_K:
      return {256, 16 + 64 + 2 + 2};
    case BUNTING_Q3_K:
      return {256, 32 + 64 + 12 + 2};
    case BUNTING_Q4_K:
      return {256, 2 + 2 + 12 + 128};
    case BUNTING_Q5_K:
      return {256, 2 + 2 + 12 + 32 + 128};
    case BUNTING_Q6_K:
      return {256, 128 + 64 + 16 + 2};
    case BUNTING_IQ4_XS:
      return {256, 2 + 2 + 4 + 128};
    default:
      std::abort();
  }
}

StoredNumber stored_number(int32_t type, void const* row, int64_t index) {
  auto const [numbers, bytes] = stored_size(type);
  auto const* const at = static_cast<uint8_t const*>(row) + index / numbers * bytes;
  int64_t const i = index % numbers, group = i / 32;
  StoredNumber to;
  switch (type) {
    case BUNTING_Q4_0:
      to = {.d = half(at), .index = nibble(at + 2, i, 16)};
      to.q = to.index - 8;
      break;
    case BUNTING_IQ4_NL:
      to = {.d = half(at), .index = nibble(at + 2, i, 16)};
      to.q = level(to.index);
      break;
    case BUNTING_Q4_1:
      to = {.d = half(at), .e = half(at + 2), .minimum = -1, .index = nibble(at + 4, i, 16)};
      to.q = to.index;
      break;
    case BUNTING_Q5_0:
      to = {.d = half(at), .index = nibble(at + 6, i, 16) + 16 * bit(at + 2, i)};
      to.q = to.index - 16;
      break;
    case BUNTING_Q5_1:
      to = {.d = half(at), .e = half(at + 2), .minimum = -1};
      to.q = to.index = nibble(at + 8, i, 16) + 16 * bit(at + 4, i);
      break;
    case BUNTING_Q8_0:
      to = {.d = half(at)};
      to.q = to.index = int8_t(at[2 + i]);
      break;
    case BUNTING_MXFP4:
      to = {.scale = at[0], .index = nibble(at + 1, i, 16)};
      to.q = twice_e2m1(to.index);
      break;
    case BUNTING_Q2_K:
      to = {.d = half(at + 80), .e = half(at + 82), .scale = at[i / 16] % 16, .minimum = at[i / 16] / 16};
      to.q = to.index = at[16 + i / 128 * 32 + i % 32] >> (group % 4 * 2) & 3;
      break;
    case BUNTING_Q3_K: {
      // Six bits: four of byte j % 8 of twelve, two of byte 8 + j % 4.
      int64_t const j = i / 16;
      uint8_t const* const packed = at + 96;
      int const low = j < 8 ? packed[j] % 16 : packed[j - 8] / 16;
      int const high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
      to = {.d = half(at + 108), .scale = high * 16 + low - 32};
      to.index = (at[32 + i / 128 * 32 + i % 32] >> (group % 4 * 2) & 3) + (at[i % 32] >> group & 1) * 4;
      to.q = to.index - 4;
      break;
    }
    case BUNTING_Q4_K:
    case BUNTING_Q5_K: {
      bool const fifth = type == BUNTING_Q5_K;
      to = {.d = half(at), .e = half(at + 2)};
      to.scale = six_bits(at + 4, group, false);
      to.minimum = six_bits(at + 4, group, true);
      to.index = nibble(at + (fifth ? 48 : 16), i, 32) + (fifth ? 16 * (at[16 + i % 32] >> group & 1) : 0);
      to.q = to.index;
      break;
    }
    case BUNTING_Q6_K:
      to = {.d = half(at + 208), .scale = int8_t(at[192 + i / 16])};
      to.index = nibble(at + i / 128 * 64, i % 128, 64) +
                 (at[128 + i / 128 * 32 + i % 32] >> (group % 4 * 2) & 3) * 16;
      to.q = to.index - 32;
      break;
    case BUNTING_IQ4_XS: {
      int const low = group % 2 ? at[4 + group / 2] / 16 : at[4 + group / 2] % 16;
      to = {.d = half(at), .scale = low + (half(at + 2) >> (2 * group) & 3) * 16 - 32};
      to.index = nibble(at + 8, i, 16);
      to.q = level(to.index);
      break;
    }
    default:
      std::abort();
  }
  return to;
}

float stored_value(int32_t type, void const* row, int64_t index) {
  if (type <= BUNTING_BF16) return float(source_value(row, Dtype(type), index));
  StoredNumber const x = stored_number(type, row, index);
  if (type == BUNTING_MXFP4) return product(float(std::ldexp(1.0, x.scale - 128)), float(x.q));
  float const scaled = product(x.scale == 1 ? f16(x.d) : product(f16(x.d), float(x.scale)), float(x.q));
  bool const has_minimum = type == BUNTING_Q4_1 || type == BUNTING_Q5_1 || type == BUNTING_Q2_K ||
                           type == BUNTING_Q4_K || type == BUNTING_Q5_K;
  return has_minimum ? sum(scaled, -product(f16(x.e), float(x.minimum))) : scaled;
}

}  // namespace bunting::reference
