#include "reference/stored_type.h"

#include <cstdlib>

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

float half(uint8_t const* at) {
  return float(source_value(at, Dtype::f16, 0));
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

}  // namespace

// Groups 4 to 7 keep their two upper bits beside those of groups 0 to 3.
int six_bits(uint8_t const* packed, int64_t group, bool minimum) {
  if (group < 4) return packed[group + 4 * minimum] % 64;
  int const low = minimum ? packed[group + 4] / 16 : packed[group + 4] % 16;
  int const high = packed[minimum ? group : group - 4] / 64;
  return high * 16 + low;
}

namespace {

float grouped(uint8_t const* block, int64_t i, bool fifth) {
  uint8_t const *packed = block + 4, *nibbles = block + (fifth ? 48 : 16);
  int64_t const group = i / 32;
  int q = nibble(nibbles, i, 32);
  if (fifth) q += 16 * (block[16 + i % 32] >> group & 1);
  float const scale = product(half(block), float(six_bits(packed, group, false)));
  float const minimum = product(half(block + 2), float(six_bits(packed, group, true)));
  return sum(product(scale, float(q)), -minimum);
}

float six(uint8_t const* block, int64_t i) {
  int64_t const half_index = i / 128, in_half = i % 128, group = in_half / 32;
  int const low = nibble(block + half_index * 64, in_half, 64);
  int const high = block[128 + half_index * 32 + in_half % 32] >> (2 * group) & 3;
  int const scale = int8_t(block[192 + i / 16]);
  return product(product(half(block + 208), float(scale)), float(high * 16 + low - 32));
}

}  // namespace

float stored_value(int32_t type, void const* row, int64_t index) {
  auto const* const bytes = static_cast<uint8_t const*>(row);
  int64_t const small = index / 32, large = index / 256, i = index % 32;
  switch (type) {
    case BUNTING_F32:
      return float(source_value(row, Dtype::f32, index));
    case BUNTING_F16:
      return float(source_value(row, Dtype::f16, index));
    case BUNTING_BF16:
      return float(source_value(row, Dtype::bf16, index));
    case BUNTING_Q4_0: {
      uint8_t const* const block = bytes + small * 18;
      return product(half(block), float(nibble(block + 2, i, 16) - 8));
    }
    case BUNTING_Q4_1: {
      uint8_t const* const block = bytes + small * 20;
      return sum(product(half(block), float(nibble(block + 4, i, 16))), half(block + 2));
    }
    case BUNTING_Q5_0: {
      uint8_t const* const block = bytes + small * 22;
      return product(half(block), float(nibble(block + 6, i, 16) + 16 * bit(block + 2, i) - 16));
    }
    case BUNTING_Q5_1: {
      uint8_t const* const block = bytes + small * 24;
      int const q = nibble(block + 8, i, 16) + 16 * bit(block + 4, i);
      return sum(product(half(block), float(q)), half(block + 2));
    }
    case BUNTING_Q8_0: {
      uint8_t const* const block = bytes + small * 34;
      return product(half(block), float(int8_t(block[2 + i])));
    }
    case BUNTING_Q4_K:
      return grouped(bytes + large * 144, index % 256, false);
    case BUNTING_Q5_K:
      return grouped(bytes + large * 176, index % 256, true);
    case BUNTING_Q6_K:
      return six(bytes + large * 210, index % 256);
    default:
      std::abort();
  }
}

}  // namespace bunting::reference
