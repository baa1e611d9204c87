// Test of sampling against the distributions of transformers' processors (tests/reference/sampling.py), on
// 1,000 rows with every combination of penalties and filters.
#include <cmath>
#include <cstdio>
#include <vector>

#include "tests/kv_test.h"
#include "tests/sample_test.h"

namespace bunting::test {
namespace {

constexpr int kRows = 1000, kVocab = 32, kRowBytes = 1 + 2 * kVocab;

// The generator of the script.
struct Draws {
  uint32_t state = 1;
  int below(int count) {
    state = state * 1664525u + 1013904223u;
    return int(state >> 16) % count;
  }
  template <class T, size_t kCount>
  T of(T const (&values)[kCount]) {
    return values[below(int(kCount))];
  }
};

struct Case {
  std::vector<float> logits;
  SampleRequest request;
};

Case next_case(Draws& draws) {
  Case made;
  std::vector<double> shares;
  for (int t = 0; t < kVocab; t++) shares.push_back(draws.below(4096) / 4096.0);
  for (int t = 0; t < kVocab; t++) {
    double const u = shares[size_t(t)];
    made.logits.push_back(float(12 * u * u * u - 3 + t / 8192.0));
  }
  SampleRow& row = made.request.row;
  row.temperature = draws.of({0.3f, 0.7f, 1.0f, 1.5f, 2.0f});
  row.top_k = draws.of({0, 1, 5, 20});
  row.top_p = draws.of({1.0f, 0.95f, 0.8f, 0.5f});
  row.min_p = draws.of({0.0f, 0.02f, 0.1f, 0.3f});
  row.repetition = draws.of({1.0f, 1.1f, 1.5f});
  row.presence = draws.of({0.0f, 0.5f, 1.5f});
  row.frequency = draws.of({0.0f, 0.25f, -0.25f});
  for (int i = 0; i < kVocab / 4; i++) {
    int const token = 4 * i + draws.below(4);
    made.request.add_seen(token, draws.below(4));
  }
  return made;
}

// Returns the bytes of the reference; none if it does not open.
std::vector<uint8_t> reference_rows() {
  std::vector<uint8_t> bytes(size_t(kRows * kRowBytes) + 1);
  FILE* const file = std::fopen(BUNTING_REFERENCES "/sampling.bin", "rb");
  bytes.resize(file ? std::fread(bytes.data(), 1, bytes.size(), file) : 0);
  if (file) std::fclose(file);
  return bytes;
}

}  // namespace

TEST(sample_draws_as_transformers) {
  constexpr int kDraws = 300;
  std::vector<uint8_t> const rows = reference_rows();
  REQUIRE(rows.size() == size_t(kRows * kRowBytes), "tests/reference/sampling.bin has %zu bytes",
          rows.size());
  Kernels const& kernels = *levels().back();
  Aligned<char> scratch(sample_scratch_bytes(kVocab));
  Draws draws;
  double chi_square = 0, freedom = 0;
  for (int r = 0; r < kRows; r++) {
    uint8_t const* const stored = rows.data() + r * kRowBytes;
    auto const probability = [&](int t) { return (stored[1 + 2 * t] | stored[2 + 2 * t] << 8) / 65535.0; };
    Case made = next_case(draws);
    SampleRow& row = made.request.row;
    auto const draw = [&] {
      return kernels.sample(made.request.ready(), made.logits.data(), kVocab, scratch.data(), nullptr).token;
    };
    reference::Odds const odds = reference::sample(made.request.ready(), made.logits.data(), kVocab);
    for (int t = 0; t < kVocab; t++) {
      double const got = odds.probability[size_t(t)], want = probability(t);
      CHECK((got > 0) == (want > 0) && std::fabs(got - want) <= 2e-5, "row %d token %d: %g, transformers %g",
            r, t, got, want);
    }
    std::vector<int> seen(kVocab);
    row.seed_low = uint32_t(r);
    for (row.position = 0; row.position < kDraws; row.position++) ++seen[size_t(draw())];
    double cells = 0;
    for (int t = 0; t < kVocab; t++) {
      double const expected = probability(t) * kDraws;
      CHECK(expected > 0 || seen[size_t(t)] == 0, "row %d: token %d was drawn and is not kept", r, t);
      if (expected < 5) continue;
      chi_square += (seen[size_t(t)] - expected) * (seen[size_t(t)] - expected) / expected;
      cells += 1 - probability(t);
    }
    freedom += cells;
    row.temperature = 0;
    int const greedy = draw();
    CHECK(greedy == stored[0], "row %d: token %d without temperature, transformers %d", r, greedy, stored[0]);
  }
  // A cell adds 1 - p on average, and about twice that as variance; the bound is four standard deviations.
  // Seeds are fixed, so the result is deterministic.
  CHECK(chi_square <= freedom + 4 * std::sqrt(2 * freedom), "chi-square %g with %g degrees of freedom",
        chi_square, freedom);
}

}  // namespace bunting::test
