#include "reference/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace bunting::reference {
namespace {

std::vector<int32_t> by_falling_logit(std::vector<float> const& x) {
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return x[size_t(a)] > x[size_t(b)]; });
  return order;
}

// Applies penalties, biases and mask, rounding to f32 at each operation, because the rounding decides which
// logits are equal.
void change(std::vector<float>& x, SampleRow const& row) {
  for (int32_t i = 0; i < row.seen_count; ++i) {
    float& logit = x[size_t(row.seen[2 * i])];
    int32_t const count = row.seen[2 * i + 1];
    logit = logit > 0 ? logit / row.repetition : logit * row.repetition;
    logit -= row.frequency * float(count);
    if (count > 0) logit -= row.presence;
  }
  for (int32_t i = 0; i < row.bias_count; ++i)
    x[size_t(row.bias[2 * i])] += std::bit_cast<float>(row.bias[2 * i + 1]);
  for (size_t t = 0; row.mask && t < x.size(); ++t)
    if (!(row.mask[t / 32] >> t % 32 & 1)) x[t] = -INFINITY;
}

}  // namespace

Odds sample(SampleRow const& row, float const* logits, int32_t vocab) {
  std::vector<float> x(logits, logits + vocab);
  Odds odds{0, std::vector<double>(x.size()), {}, {}};
  for (float value : x)
    if (!std::isfinite(value)) return {1, {}, {}, {}};
  odds.likeliest = by_falling_logit(x);
  double const raw_largest = x[size_t(odds.likeliest[0])];
  double raw_total = 0;
  for (float value : x) raw_total += std::exp(double(value) - raw_largest);
  for (float value : x) odds.raw_logprob.push_back(double(value) - raw_largest - std::log(raw_total));

  change(x, row);
  std::vector<int32_t> kept = by_falling_logit(x);
  float const largest = x[size_t(kept[0])];
  if (largest == -INFINITY) return {2, {}, {}, {}};
  if (row.temperature == 0) {
    odds.probability[size_t(kept[0])] = 1;
    return odds;
  }
  auto const weight = [&](int32_t t) {
    return std::exp((double(x[size_t(t)]) - double(largest)) / double(row.temperature));
  };
  if (row.top_k > 0 && row.top_k < vocab) kept.resize(size_t(row.top_k));
  if (row.top_p < 1) {
    double total = 0, mass = 0;
    for (int32_t t : kept) total += weight(t);
    size_t count = 0;
    do mass += weight(kept[count++]);
    while (count < kept.size() && mass < double(row.top_p) * total);
    kept.resize(count);
  }
  std::erase_if(kept, [&](int32_t t) { return weight(t) < double(row.min_p); });
  double total = 0;
  for (int32_t t : kept) total += weight(t);
  for (int32_t t : kept) odds.probability[size_t(t)] = weight(t) / total;
  return odds;
}

}  // namespace bunting::reference
