// xielu.h - numbers of the activation xIELU (engine.h).
#pragma once

#include <cmath>

namespace bunting {

struct Xielu {
  float p = 0, n = 0, beta = 0, epsilon = 0;
};

// Returns them from the numbers that a layer stores: alpha_p, alpha_n, beta and eps.
inline Xielu xielu_of(float const* stored) {
  auto const softplus = [](float x) { return float(std::log1p(std::exp(double(x)))); };
  float const beta = stored[2];
  return {softplus(stored[0]), beta + softplus(stored[1]), beta, stored[3]};
}

}  // namespace bunting
