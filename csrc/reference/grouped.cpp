// Rounding of weights and of activations to integers in groups that share a scale, one group at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/dense.h"
#include "reference/kv_value.h"

namespace bunting::reference {
namespace {

// Returns the nearest f16 value, ties to even; infinite from 65520 on.
double nearest_f16(float x) {
  if (std::isnan(x)) return x;
  double const magnitude = std::fabs(double(x));
  int exponent;
  std::frexp(magnitude, &exponent);
  double const step = std::ldexp(1.0, std::max(exponent - 11, -24));
  double const rounded = std::nearbyint(magnitude / step) * step;
  return std::copysign(rounded >= 65536 ? double(INFINITY) : rounded, double(x));
}

// Sums terms in groups of 32 in the order of the kernels: i with i + 16, group after group, then halving.
float sum_of(float const* terms, int count) {
  float lanes[16] = {};
  for (int group = 0; group < count; group += kGroup)
    for (int i = 0; i < 16; ++i) lanes[i] += terms[group + i] + terms[group + i + 16];
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

float rounded(float x, float low, float high) {
  return std::min(std::max(std::nearbyintf(x), low), high);
}

float q4_scale(float const* values, int count, float largest) {
  float const extreme =
      std::any_of(values, values + count, [&](float x) { return x == -largest; }) ? -largest : largest;
  float best = 0, scale = 0;
  for (float const steps : {-8.0f, -9.0f, -8.5f, -7.5f, -7.0f, -6.5f, -6.0f, 7.5f, 7.0f, 6.5f, 6.0f}) {
    float products[kGroupMax], squares[kGroupMax];
    for (int i = 0; i < count; ++i) {
      float const q = rounded(values[i] * (steps / extreme), -8, 7);
      products[i] = values[i] * q;
      squares[i] = q * q;
    }
    float const product = sum_of(products, count), square = sum_of(squares, count);
    if (product * product / square > best) {
      best = product * product / square;
      scale = product / square;
    }
  }
  return scale;
}

}  // namespace

void round_group(Dtype dtype, float const* values, int8_t* q, double* scale) {
  int const count = int(weight_group(dtype));
  float largest = 0;
  bool is_finite = true;
  for (int i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
    is_finite = is_finite && std::isfinite(values[i]);
  }
  std::fill_n(q, count, int8_t{0});
  *scale = is_finite ? 0 : NAN;
  if (!is_finite || largest < 1e-30f) return;
  float const high = float((1 << (integer_bits(dtype) - 1)) - 1);
  float const low = dtype == Dtype::q4 ? -8 : -high;
  *scale = nearest_f16(dtype == Dtype::q4 ? q4_scale(values, count, largest) : largest / high);
  if (*scale == 0) return;
  for (int i = 0; i < count; ++i) q[i] = int8_t(rounded(values[i] * (1.0f / float(*scale)), low, high));
}

namespace {

float largest_of(std::vector<float> const& values) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Moves numbers that are larger than nearly all others out of `values`, at most one per kGroup.
void take_outliers(std::vector<float>& values, InputGroup* groups) {
  size_t const most = values.size() / kGroup;
  for (bool has_taken = true; has_taken;) {
    has_taken = false;
    float const limit = largest_of(values) / 8;
    auto const reaches = [&](float value) { return std::fabs(value) >= limit; };
    if (limit < 1e-30f / 8 || size_t(std::count_if(values.begin(), values.end(), reaches)) > most) return;
    for (size_t i = 0; i < most; ++i) {
      auto const begin = values.begin() + int64_t(i) * kGroup;
      auto const at = std::max_element(begin, begin + kGroup,
                                       [](float a, float b) { return std::fabs(a) < std::fabs(b); });
      if (groups[i].outlier != 0 || !reaches(*at)) continue;
      groups[i].outlier = *at;
      groups[i].outlier_at = int16_t(at - begin);
      *at = 0;
      groups[0].outliers++;
      has_taken = true;
    }
  }
}

}  // namespace

void quantise(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t tokens) {
  int64_t const width = round_up(k, 2 * kGroup), group = input_group(to.dtype),
                summed = weight_group(to.dtype);
  for (int64_t t = 0; t < tokens; ++t) {
    InputGroup* const groups = reinterpret_cast<InputGroup*>(to.row(t));
    std::memset(groups, 0, size_t(width / kGroup) * sizeof(InputGroup));
    for (int64_t first = 0; first < width; first += group) {
      int64_t const end = std::min(first + group, width);
      std::vector<float> values(size_t(end - first), 0.0f);
      for (int64_t i = first; i < std::min(end, k); ++i)
        values[size_t(i - first)] = get(dtype, static_cast<char const*>(x), size_t(t * ldx + i));
      auto const value = [&](int64_t i) { return values[size_t(i - first)]; };
      bool const is_finite =
          std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
      if (is_finite) take_outliers(values, groups + first / kGroup);
      float const largest = largest_of(values);
      for (int64_t i = first; i < end && !is_finite; i += kGroup) groups[i / kGroup].scale = NAN;
      if (!is_finite || largest < 1e-30f) continue;
      for (int64_t i = first; i < end; ++i) {
        int8_t const q = int8_t(std::nearbyintf(value(i) * (127.0f / largest)));
        groups[i / kGroup].q[i % kGroup] = q;
        groups[i / kGroup].scale = largest / 127.0f;
        if (summed == 16)
          groups[i / kGroup].minus_sums[i % kGroup / 16] -= q;
        else if (has_paired_minimums(to.dtype))
          groups[i / kGroup / 2 * 2].minus_sums[i / kGroup % 2] -= q;
        else if (has_minimum(to.dtype))
          groups[i / kGroup].minus_sum_f32 -= float(q);
        if (has_minimum(to.dtype) || summed == 16) continue;
        int64_t const begin = i / summed * summed;
        for (int64_t k = begin; k < std::min(begin + summed, end); k += kGroup)
          groups[k / kGroup].minus_sum -= q;
      }
    }
  }
}

}  // namespace bunting::reference
