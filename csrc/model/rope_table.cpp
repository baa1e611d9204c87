#include "model/rope_table.h"

#include <cmath>

namespace bunting {

void rope_turns(std::vector<double> const& frequencies, int64_t positions, int64_t stride, Turn* out) {
  for (int64_t position = 0; position < positions; ++position) {
    for (double const frequency : frequencies) {
      double const angle = double(position * stride) * frequency;
      *out++ = {std::cos(angle), std::sin(angle)};
    }
  }
}

void rope_angles(RopeTable const& rope, int32_t const* positions, int64_t begin, int64_t end, float* cos,
                 float* sin) {
  int64_t const half = rope.dimensions / 2;
  double const magnitude = rope.magnitude;
  for (int64_t t = begin; t < end; ++t) {
    Turn const* const far = rope.far + positions[t] / kRopeStride * half;
    Turn const* const near = rope.near + positions[t] % kRopeStride * half;
    for (int64_t i = 0; i < half; ++i) {
      cos[t * half + i] = float(magnitude * (far[i].cos * near[i].cos - far[i].sin * near[i].sin));
      sin[t * half + i] = float(magnitude * (far[i].sin * near[i].cos + far[i].cos * near[i].sin));
    }
  }
}

void query_scales(float growth, int32_t span, int32_t offset, int64_t positions, float* out) {
  for (int64_t position = 0; position < positions; ++position)
    out[position] = float(1 + double(growth) * std::log1p(double((position + offset) / span)));
}

}  // namespace bunting
