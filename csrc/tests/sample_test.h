// sample_test.h - common parts of the sampling tests on the CPU and on the GPU: random rows to draw from, and
// the check of a drawn token against a full sort in double.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "boundary/philox.h"
#include "reference/sample.h"
#include "tests/test.h"

namespace bunting::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// Parameters and arrays of a row, with filters and penalties off.
struct SampleRequest {
  SampleRow row{};
  std::vector<int32_t> bias, seen;
  std::vector<uint32_t> mask;

  SampleRequest() {
    row.temperature = row.top_p = row.repetition = 1;
    row.seed_low = 1234;
    row.seed_high = 99;
    row.top_logprobs = -1;
  }
  void add_bias(int32_t token, float value) {
    bias.push_back(token);
    bias.push_back(std::bit_cast<int32_t>(value));
  }
  void add_seen(int32_t token, int32_t count) {
    seen.push_back(token);
    seen.push_back(count);
  }
  SampleRow const& ready() {
    row.bias = bias.data();
    row.bias_count = int32_t(bias.size() / 2);
    row.seen = seen.data();
    row.seen_count = int32_t(seen.size() / 2);
    row.mask = mask.empty() ? nullptr : mask.data();
    return row;
  }
};

// Returns logits peaked like a language model's, with runs of equal values.
inline std::vector<float> random_logits(Random& random, int32_t vocab) {
  std::vector<float> x(static_cast<size_t>(vocab));
  for (float& value : x) {
    float const u = random.uniform(0, 1);
    value = random.below(4) == 0 ? std::round(u * 8) : -3 + 12 * u * u * u;
  }
  return x;
}

inline SampleRequest random_request(Random& random, int32_t vocab) {
  SampleRequest request;
  SampleRow& row = request.row;
  auto const some = [&](auto off, auto... others) {
    decltype(off) const values[] = {off, decltype(off)(others)...};
    return values[random.below(int(std::size(values)))];
  };
  row.temperature = some(1.0f, 0.0f, 0.3f, 0.8f, 1.7f, 20.0f);
  row.top_k = std::max(0, some(0, 1, 2, 5, 40, 63, 64, 65, vocab - 1, vocab, vocab + 1));
  row.top_p = some(1.0f, 0.0f, 0.1f, 0.5f, 0.9f, 0.999f);
  row.min_p = some(0.0f, 0.0f, 0.05f, 0.5f, 1.0f);
  row.position = uint32_t(random.next());
  row.seed_low = uint32_t(random.next());
  row.seed_high = uint32_t(random.next());
  int32_t const step = std::max(1, vocab / 20);  // makes the tokens of a list distinct
  if (random.below(2)) {
    row.repetition = some(1.0f, 1.3f, 0.7f);
    row.presence = some(0.0f, 1.5f, -0.5f);
    row.frequency = some(0.0f, 0.25f, -0.1f);
    for (int32_t t = random.below(step); t < vocab; t += step) request.add_seen(t, random.below(4));
  }
  if (random.below(3) == 0)
    for (int32_t t = random.below(step); t < vocab; t += 4 * step)
      request.add_bias(t, some(2.0f, -2.0f, -kInf));
  if (random.below(3) == 0) {
    request.mask.resize(size_t(vocab + 31) / 32);
    for (uint32_t& word : request.mask) word = some(0xffffffffu, 0u, uint32_t(random.next()));
  }
  return request;
}

// Result of a row; `top` has its most likely tokens.
struct DrawnRow {
  int32_t status, token;
  float logprob;
  std::vector<std::pair<int32_t, float>> top;
  bool operator==(DrawnRow const&) const = default;
};

inline void check_drawn(SampleRequest& request, std::vector<float> const& logits, DrawnRow const& drawn) {
  int32_t const vocab = int32_t(logits.size());
  SampleRow const& row = request.ready();
  reference::Odds const odds = reference::sample(row, logits.data(), vocab);
  REQUIRE(drawn.status == odds.status, "V=%d: status %d, wanted %d", vocab, drawn.status, odds.status);
  if (odds.status != 0) return;
  REQUIRE(drawn.token >= 0 && drawn.token < vocab, "V=%d: token %d", vocab, drawn.token);
  double before = 0;
  for (int32_t t = 0; t < drawn.token; ++t) before += odds.probability[size_t(t)];
  double const share = odds.probability[size_t(drawn.token)];
  double const u = row.temperature == 0 ? 0.5 : philox_uniform(row.seed_low, row.seed_high, row.position);
  // The kernels use f32 probabilities, so a draw within 1e-5 of the border of two tokens may give either.
  CHECK(share > 0 && u >= before - 1e-5 && u <= before + share + 1e-5,
        "V=%d T=%g top_k=%d top_p=%g min_p=%g: u=%g gives token %d, whose share is [%g, %g)", vocab,
        double(row.temperature), row.top_k, double(row.top_p), double(row.min_p), u, drawn.token, before,
        before + share);
  if (row.top_logprobs < 0) return;
  auto const near = [](float got, double want) {
    return std::fabs(double(got) - want) <= 1e-5 + std::fabs(want) * 1e-6;
  };
  CHECK(near(drawn.logprob, odds.raw_logprob[size_t(drawn.token)]), "V=%d: logprob %g, wanted %g", vocab,
        double(drawn.logprob), odds.raw_logprob[size_t(drawn.token)]);
  REQUIRE(drawn.top.size() == size_t(std::min(row.top_logprobs, vocab)), "V=%d: %zu alternatives of %d",
          vocab, drawn.top.size(), row.top_logprobs);
  for (size_t i = 0; i < drawn.top.size(); ++i) {
    int32_t const want = odds.likeliest[i];
    CHECK(drawn.top[i].first == want && near(drawn.top[i].second, odds.raw_logprob[size_t(want)]),
          "V=%d: alternative %zu is token %d, wanted %d", vocab, i, drawn.top[i].first, want);
  }
}

}  // namespace bunting::test
