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

std::vector<Choice> choose_experts(RoutingRule const& rule, float const* logits, float const* bias) {
  std::vector<double> scores(logits, logits + rule.experts);
  bool const is_sigmoid = rule.score == BUNTING_ROUTER_SIGMOID;
  for (double& score : scores) score = is_sigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score);
  double const all = is_sigmoid ? 1 : std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= all;
  std::vector<double> by = scores;
  for (size_t e = 0; e < by.size() && bias; ++e) by[e] += bias[e];
  auto const falling = [](std::vector<double> const& of) {
    std::vector<int32_t> order(of.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return of[size_t(a)] > of[size_t(b)]; });
    return order;
  };
  if (rule.groups > 1) {
    size_t const size = by.size() / size_t(rule.groups);
    std::vector<double> sums;
    for (auto at = by.begin(); at != by.end(); at += int64_t(size)) {
      std::vector<double> group(at, at + int64_t(size));
      std::sort(group.begin(), group.end());
      sums.push_back(group[size - 1] + group[size - 2]);
    }
    std::vector<int32_t> const order = falling(sums);
    for (size_t i = size_t(rule.groups_used); i < order.size(); ++i)
      std::fill_n(by.begin() + int64_t(order[i]) * int64_t(size), size, -INFINITY);
  }
  std::vector<Choice> choices;
  std::vector<int32_t> const order = falling(by);
  double sum = 0;
  for (int32_t i = 0; i < rule.used; ++i) {
    choices.push_back({order[size_t(i)], scores[size_t(order[size_t(i)])]});
    sum += choices.back().weight;
  }
  bool const is_shared = rule.score == BUNTING_ROUTER_CHOSEN || (rule.options & BUNTING_ROUTER_NORMALISED);
  for (Choice& choice : choices) choice.weight *= double(rule.scale) / (is_shared ? sum : 1);
  return choices;
}

void experts(ExpertsMlp const& mlp, RoutingRule const& rule, float const* logits, int64_t tokens, double* y) {
  PackedMatrix const &gate_up = *mlp.gate_up, &down = *mlp.down;
  int64_t const parts = mlp.parts(), padded = gate_up.n / rule.experts / parts,
                padded_hidden = down.n / rule.experts;
  std::vector<double> activated(size_t(down.k));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < mlp.hidden; ++h) y[t * mlp.hidden + h] = 0;
    for (Choice const& choice : choose_experts(rule, logits + t * rule.experts)) {
      for (int64_t f = 0; f < down.k; ++f) {
        double sums[2] = {0, 1};  // without gates an up of 1
        for (int64_t part = 0; part < parts; ++part) {
          int64_t const row = (choice.expert * parts + part) * padded + f;
          sums[part] = mlp.gate_up_bias ? mlp.gate_up_bias[row] : 0;
          for (int64_t k = 0; k < gate_up.k; ++k) sums[part] += input(mlp.x, t, k) * weight(gate_up, row, k);
        }
        double const of_input = rule.scales_input() ? choice.weight : 1;
        float const gates[2] = {float(of_input * sums[0]), float(mlp.has_gate ? of_input * sums[1] : 1)};
        gate(&activated[size_t(f)], 1, gates, 2, 1, mlp.activation, 1);
      }
      for (int64_t h = 0; h < mlp.hidden; ++h) {
        int64_t const row = choice.expert * padded_hidden + h;
        double sum = mlp.down_bias ? mlp.down_bias[row] : 0;
        for (int64_t f = 0; f < down.k; ++f) sum += activated[size_t(f)] * weight(down, row, f);
        y[t * mlp.hidden + h] += double(mlp.residual_scale) * (rule.scales_input() ? 1 : choice.weight) * sum;
      }
    }
  }
}

}  // namespace bunting::reference
