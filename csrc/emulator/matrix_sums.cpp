#include "emulator/matrix_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace bunting::emulator {
namespace {

// Exponent of zero, below that of any product.
constexpr int16_t kNoExponent = -8192;
constexpr int kLeastExponent = -126, kProductFraction = 14, kFloatFraction = 23;
constexpr uint32_t kNan = 0x7fffffff;  // as tensor cores write it

MatrixSums now = kHopperSums;

// Returns the multiple of 2^exponent, truncated to f32.
float truncated(int64_t multiple, int exponent) {
  if (multiple == 0) return 0;
  uint64_t const magnitude = uint64_t(multiple < 0 ? -multiple : multiple);
  int const excess = std::max(int(std::bit_width(magnitude)) - 1 - kFloatFraction,
                              kLeastExponent - kFloatFraction - exponent);
  uint64_t const kept = excess <= 0 ? magnitude : excess < 64 ? magnitude >> excess << excess : 0;
  double const value = std::ldexp(double(kept), exponent);
  return float(multiple < 0 ? -value : value);
}

float add_some(Operand const& a, Operand const& b, int first, float c) {
  int16_t exponents[16];
  int32_t products[16];
  int const terms = now.terms;
  int16_t largest = kNoExponent * 2, least = 0;
  for (int k = 0; k < terms; ++k) {
    exponents[k] = int16_t(a.exponents[first + k] + b.exponents[first + k]);
    products[k] = int32_t(a.significands[first + k]) * int32_t(b.significands[first + k]);
    largest = std::max(largest, exponents[k]);
    least = std::min(least, exponents[k]);
  }
  uint32_t const bits = std::bit_cast<uint32_t>(c);
  uint32_t const fraction = bits & 0x7fffff, stored = bits >> kFloatFraction & 0xff;
  int64_t const significand = int64_t(fraction | (stored ? 1u << kFloatFraction : 0u));
  int const c_exponent = significand ? std::max(int(stored) - 127, kLeastExponent) : now.zero_exponent;
  int top = std::max(int(largest), c_exponent);
  if (least <= kNoExponent / 2) top = std::max(top, now.zero_exponent);

  int64_t sum = significand << (now.fraction_bits - kFloatFraction) >> std::min(63, top - c_exponent);
  if (bits >> 31) sum = -sum;
  for (int k = 0; k < terms; ++k) {
    int32_t const sign = products[k] >> 31, magnitude = (products[k] ^ sign) - sign;
    int32_t const aligned =
        magnitude << (now.fraction_bits - kProductFraction) >> std::min(31, top - exponents[k]);
    sum += (aligned ^ sign) - sign;
  }
  return truncated(sum, top - now.fraction_bits);
}

// As add_some, for operands of which some number may be infinite or not a number.
float add_any(Operand const& a, Operand const& b, int first, float c) {
  bool is_finite = std::isfinite(c);
  double sum = double(c);
  for (int k = first; k < first + now.terms; ++k) {
    is_finite = is_finite && std::isfinite(a.values[k]) && std::isfinite(b.values[k]);
    sum += double(a.values[k]) * double(b.values[k]);
  }
  if (is_finite) return add_some(a, b, first, c);
  return std::isnan(sum) ? std::bit_cast<float>(kNan) : float(sum);
}

}  // namespace

void use_matrix_sums(MatrixSums const& sums) {
  now = sums;
}

void Operand::set(int k, uint16_t bf16) {
  uint32_t const stored = bf16 >> 7 & 0xff, fraction = bf16 & 0x7f;
  int const significand = int(fraction | (stored ? 0x80 : 0));
  values[k] = std::bit_cast<float>(uint32_t(bf16) << 16);
  is_finite = is_finite && stored != 0xff;
  significands[k] = int16_t(bf16 >> 15 ? -significand : significand);
  exponents[k] = significand ? int16_t(std::max(int(stored) - 127, kLeastExponent)) : kNoExponent;
}

float add_products(Operand const& a, Operand const& b, float c) {
  for (int first = 0; first < 16; first += now.terms)
    c = a.is_finite && b.is_finite && std::isfinite(c) ? add_some(a, b, first, c) : add_any(a, b, first, c);
  return c;
}

}  // namespace bunting::emulator
