#include "model/rope_table.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace bunting {
namespace {

double llama3_frequency(bunting_model_shape const& shape, double frequency) {
  double const factor = shape.rope_factor, low = shape.rope_low_freq_factor,
               high = shape.rope_high_freq_factor;
  double const wavelength = 2.0 * std::numbers::pi / frequency;   // positions per full turn
  double const turns = shape.rope_original_context / wavelength;  // within the context of training
  if (turns < low) return frequency / factor;
  if (turns > high) return frequency;
  double const kept = (turns - low) / (high - low);
  return (1.0 - kept) * frequency / factor + kept * frequency;
}

}  // namespace

void rope_inverse_frequencies(bunting_model_shape const& shape, double* out) {
  for (int32_t i = 0; i < shape.head_size / 2; ++i) {
    double const frequency = std::pow(double(shape.rope_theta), -2.0 * i / shape.head_size);
    switch (shape.rope_kind) {
      case BUNTING_ROPE_LINEAR:
        out[i] = frequency / double(shape.rope_factor);
        break;
      case BUNTING_ROPE_LLAMA3:
        out[i] = llama3_frequency(shape, frequency);
        break;
      default:
        out[i] = frequency;
    }
  }
}

void rope_tables(bunting_model_shape const& shape, float* cos, float* sin) {
  int64_t const half = shape.head_size / 2;
  std::vector<double> frequency(static_cast<size_t>(half));
  rope_inverse_frequencies(shape, frequency.data());
  for (int64_t position = 0; position < shape.context_max; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      double const angle = double(position) * frequency[size_t(i)];
      cos[position * half + i] = float(std::cos(angle));
      sin[position * half + i] = float(std::sin(angle));
    }
  }
}

}  // namespace bunting
