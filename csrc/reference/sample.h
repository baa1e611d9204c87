// sample.h - sampling as engine.h defines it: sorts everything, sums in double.
#pragma once

#include <vector>

#include "cpu/kernels/kernels.h"

namespace bunting::reference {

struct Odds {
  int32_t status;                   // as in SampleResult
  std::vector<double> probability;  // [V] probability of being drawn; greedy: 1 for one token
  std::vector<double> raw_logprob;  // [V]
  std::vector<int32_t> likeliest;   // [V] ids by falling raw logit, then rising id
};

Odds sample(SampleRow const& row, float const* logits, int32_t vocab);

}  // namespace bunting::reference
