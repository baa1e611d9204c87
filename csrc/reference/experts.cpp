#include "reference/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/dense.h"
#include "reference/kv_value.h"

namespace bunting::reference {
namespace {

double input(Operand const& x, int64_t t, int64_t k) {
  if (is_grouped(x.dtype)) {
    InputGroup const& group = reinterpret_cast<InputGroup const*>(x.row(t))[k / kGroup];
    if (group.outlier != 0 && group.outlier_at == k % kGroup) return double(group.outlier);
    return double(group.scale) * group.q[k % kGroup];
  }
  return get(x.dtype, x.row(t), size_t(k));
}

}  // namespace

std::vector<Choice> choose_experts(RoutingRule const& rule, float const* logits) {
  std::vector<int32_t> order(size_t(rule.experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (int32_t i = 0; i < (rule.is_normalised ? rule.used : rule.experts); ++i)
    sum += std::exp(double(logits[order[size_t(i)]]));
  std::vector<Choice> choices;
  for (int32_t i = 0; i < rule.used; ++i)
    choices.push_back({order[size_t(i)], std::exp(double(logits[order[size_t(i)]])) / sum});
  return choices;
}

void experts(ExpertsMlp const& mlp, RoutingRule const& rule, float const* logits, int64_t tokens, double* y) {
  PackedMatrix const &gate_up = *mlp.gate_up, &down = *mlp.down;
  int64_t const padded = gate_up.n / rule.experts / 2, padded_hidden = down.n / rule.experts;
  std::vector<double> activated(size_t(down.k));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < mlp.hidden; ++h) y[t * mlp.hidden + h] = 0;
    for (Choice const& choice : choose_experts(rule, logits + t * rule.experts)) {
      for (int64_t f = 0; f < down.k; ++f) {
        double sums[2];
        for (int part = 0; part < 2; ++part) {
          int64_t const row = (choice.expert * 2 + part) * padded + f;
          sums[part] = mlp.gate_up_bias ? mlp.gate_up_bias[row] : 0;
          for (int64_t k = 0; k < gate_up.k; ++k) sums[part] += input(mlp.x, t, k) * weight(gate_up, row, k);
        }
        float const gates[2] = {float(sums[0]), float(sums[1])};
        gate(&activated[size_t(f)], 1, gates, 2, 1, mlp.activation, 1);
      }
      for (int64_t h = 0; h < mlp.hidden; ++h) {
        int64_t const row = choice.expert * padded_hidden + h;
        double sum = mlp.down_bias ? mlp.down_bias[row] : 0;
        for (int64_t f = 0; f < down.k; ++f) sum += activated[size_t(f)] * weight(down, row, f);
        y[t * mlp.hidden + h] += double(mlp.residual_scale) * choice.weight * sum;
      }
    }
  }
}

}  // namespace bunting::reference
