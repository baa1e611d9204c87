#include "model/rope_table.h"

#include <cmath>

namespace bunting {

void rope_table(std::vector<double> const& frequencies, float magnitude, int64_t positions, float* cos,
                float* sin) {
  int64_t const half = int64_t(frequencies.size());
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      double const angle = double(position) * frequencies[size_t(i)];
      cos[position * half + i] = float(double(magnitude) * std::cos(angle));
      sin[position * half + i] = float(double(magnitude) * std::sin(angle));
    }
  }
}

void query_scales(float growth, int32_t span, int64_t positions, float* out) {
  for (int64_t position = 0; position < positions; ++position)
    out[position] = float(1 + double(growth) * std::log1p(double(position / span)));
}

}  // namespace bunting
