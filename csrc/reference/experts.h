// experts.h - plain loop of the mixture-of-experts MLP, in double. Arguments as in cpu/experts.h.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/experts.h"

namespace bunting::reference {

struct Choice {
  int32_t expert;
  double weight;
};

// Returns the experts of a row, by falling score plus bias ([E] or null).
std::vector<Choice> choose_experts(RoutingRule const& rule, float const* logits, float const* bias = nullptr);

// Computes into y [T, H] the sum that is added to mlp.y, for rows with these logits [T, E]. Ignores mlp.plan.
void experts(ExpertsMlp const& mlp, RoutingRule const& rule, float const* logits, int64_t tokens, double* y);

}  // namespace bunting::reference
