#include "reference/stored_type.h"

#include <cmath>
#include <cstring>

#include "cpu/kernels/weight_format.h"
#include "reference/dense.h"

namespace bunting::reference {
namespace {

// Every sum and product below has at most two f32 operands. A double holds it exactly, or closely enough if
// the exponents are far apart. The cast then rounds it to f32.
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

// Returns a number with its lower bits in one plane and its higher bits in another.
int in_planes(Plane const& low, Plane const& high, uint8_t const* block, int64_t i) {
  return in_plane(low, block, int(i)) + in_plane(high, block, int(i)) * (1 << low.bits);
}

}  // namespace

StoredNumber stored_number(int32_t type, void const* row, int64_t index) {
  WeightFormat const& format = weight_format(Dtype(type));
  FileBlock const& file = format.file;
  bool const is_super = format.scales >= Scales::super;
  int64_t const numbers = is_super ? 256 : 32;
  auto const* const block = static_cast<uint8_t const*>(row) + index / numbers * file.bytes;
  int64_t const i = index % numbers, group = is_super ? i / format.group : 0;
  auto const scale = [&](int64_t of) {
    return in_planes(file.scale, file.scale_high, block, of) - file.scale_zero;
  };
  StoredNumber to;
  if (format.scales != Scales::exponent) to.d = half(block + file.halves_at);
  switch (format.scales) {
    case Scales::half_minimum:
      to.e = half(block + file.halves_at + 2);
      to.minimum = -1;
      break;
    case Scales::exponent:
      to.scale = scale(0);
      break;
    case Scales::super:
      to.scale = int8_t(scale(group));
      break;
    case Scales::super_minimum:
      to.e = half(block + file.halves_at + 2);
      to.scale = scale(group);
      to.minimum = scale(256 / format.group + group);
      break;
    case Scales::super_nibbles:
      to.e = half(block + file.halves_at + 2);
      to.scale = scale(group) % 16;
      to.minimum = scale(group) / 16;
      break;
    default:
      break;
  }
  int const stored = in_planes(file.low, file.high, block, i);
  if (format.levels.bits != 0) {
    to.index = stored;
    to.q = format.levels.of[stored];
  } else if (format.bits == 8) {
    to.q = int8_t(stored);
    to.index = to.q + 128;
  } else {
    to.index = stored;
    to.q = has_minimum(format.type) ? stored : stored - (1 << (format.bits - 1));
  }
  return to;
}

float stored_value(int32_t type, void const* row, int64_t index) {
  if (!is_grouped(Dtype(type))) return float(source_value(row, Dtype(type), index));
  Scales const scales = weight_format(Dtype(type)).scales;
  StoredNumber const x = stored_number(type, row, index);
  if (scales == Scales::exponent) return product(float(std::ldexp(1.0, x.scale - 128)), float(x.q));
  bool const has_integer_scale = scales >= Scales::super;
  float const scaled = product(has_integer_scale ? product(f16(x.d), float(x.scale)) : f16(x.d), float(x.q));
  return has_minimum(Dtype(type)) ? sum(scaled, -product(f16(x.e), float(x.minimum))) : scaled;
}

}  // namespace bunting::reference
