// experts.h - the plain loop of the MLP of a mixture of experts, in double. Arguments as in cpu/experts.h.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/experts.h"

namespace bunting::reference {

struct Choice {
  int32_t expert;
  double weight;
};

// The experts of a row, by falling logit.
std::vector<Choice> choose_experts(RoutingRule const& rule, float const* logits);

// y [T, H] becomes what is added to mlp.y for rows with these logits [T, E]; mlp.plan is not looked at.
void experts(ExpertsMlp const& mlp, RoutingRule const& rule, float const* logits, int64_t tokens, double* y);

}  // namespace bunting::reference
