// Tests of sampling against a full sort in double, of the statistics of its draws, and of equal bits on every
// level.
#include <bit>
#include <cmath>
#include <vector>

#include "tests/kv_test.h"
#include "tests/sample_test.h"

namespace bunting::test {
namespace {

using Request = SampleRequest;

struct Drawn {
  SampleResult result;
  std::vector<int32_t> top;
};

Drawn draw(Kernels const& kernels, Request& request, std::vector<float> const& logits) {
  Aligned<char> scratch(sample_scratch_bytes(int32_t(logits.size())));
  Drawn drawn{{}, std::vector<int32_t>(size_t(std::max(0, request.row.top_logprobs)) * 2, -7)};
  drawn.result = kernels.sample(request.ready(), logits.data(), int32_t(logits.size()), scratch.data(),
                                drawn.top.data());
  return drawn;
}

int32_t token_of(Request& request, std::vector<float> const& logits) {
  return draw(*levels().back(), request, logits).result.token;
}

void check_row(Request& request, std::vector<float> const& logits) {
  Drawn const first = draw(*levels().front(), request, logits);
  for (Kernels const* kernels : levels()) {
    Drawn const drawn = draw(*kernels, request, logits);
    CHECK(std::memcmp(&drawn.result, &first.result, sizeof drawn.result) == 0 && drawn.top == first.top,
          "%s V=%zu: another result than %s", kernels->name, logits.size(), levels().front()->name);
  }
  DrawnRow row{first.result.status, first.result.token, first.result.logprob, {}};
  for (size_t i = 0; i < size_t(first.result.top_count); ++i)
    row.top.emplace_back(first.top[2 * i], std::bit_cast<float>(first.top[2 * i + 1]));
  check_drawn(request, logits, row);
}

// Draws `count` tokens at positions 0, 1, ... and compares their frequencies with the reference's
// probabilities.
void check_frequencies(char const* what, Request request, std::vector<float> const& logits) {
  constexpr int kDraws = 20000;
  reference::Odds const odds = reference::sample(request.ready(), logits.data(), int32_t(logits.size()));
  std::vector<int> seen(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    request.row.position = uint32_t(i);
    ++seen[size_t(token_of(request, logits))];
  }
  double chi_square = 0, rare_expected = 0, rare_seen = 0;
  int cells = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    double const expected = odds.probability[t] * kDraws;
    CHECK(expected > 0 || seen[t] == 0, "%s: token %zu was drawn %d times and never should be", what, t,
          seen[t]);
    if (expected < 10) {
      rare_expected += expected;
      rare_seen += seen[t];
      continue;
    }
    chi_square += (seen[t] - expected) * (seen[t] - expected) / expected;
    ++cells;
  }
  if (rare_expected > 0) {
    chi_square += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    ++cells;
  }
  // Chi-square has mean cells - 1 and twice that as variance; the bound is four standard deviations. Seeds
  // are fixed, so the result is deterministic.
  double const freedom = cells - 1;
  CHECK(chi_square <= freedom + 4 * std::sqrt(2 * freedom), "%s: chi-square %g with %g degrees of freedom",
        what, chi_square, freedom);
}

}  // namespace

// Known answers published with Random123 (kat_vectors).
TEST(philox_known_answers) {
  using Words = std::array<uint32_t, 4>;
  CHECK((philox4x32_10({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}),
        "zeros");
  CHECK((philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
         Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}),
        "ones");
  CHECK((philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
         Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}),
        "pi");
}

TEST(sample_matches_a_sort_of_everything) {
  Random random{42};
  for (int32_t vocab : {1, 2, 31, 63, 64, 65, 127, 129, 1000, 4097, 70000})
    for (int i = 0; i < (vocab < 5000 ? 150 : 12); ++i) {
      std::vector<float> const logits = random_logits(random, vocab);
      Request request = random_request(random, vocab);
      request.row.top_logprobs = random.below(4) == 0 ? -1 : random.below(22);
      check_row(request, logits);
    }
}

TEST(sample_takes_a_full_size_vocabulary) {
  Random random{7};
  std::vector<float> const logits = random_logits(random, 151936);
  for (float top_p : {1.0f, 0.9f})
    for (int32_t top_k : {0, 50, 100000}) {
      Request request;
      request.row.top_p = top_p;
      request.row.top_k = top_k;
      request.row.top_logprobs = 20;
      check_row(request, logits);
    }
}

TEST(sample_draws_with_the_right_frequencies) {
  Random random{3};
  std::vector<float> const logits = random_logits(random, 203);
  check_frequencies("no filter", Request(), logits);
  for (float temperature : {0.5f, 2.0f, 1e6f}) {
    Request request;
    request.row.temperature = temperature;
    check_frequencies("temperature", request, logits);
  }
  Request top_k;
  top_k.row.top_k = 7;
  check_frequencies("top-k", top_k, logits);
  Request top_p;
  top_p.row.top_p = 0.8f;
  check_frequencies("top-p", top_p, logits);
  Request min_p;
  min_p.row.min_p = 0.1f;
  check_frequencies("min-p", min_p, logits);
  Request all = top_k;
  all.row.top_p = 0.9f;
  all.row.min_p = 0.02f;
  all.row.temperature = 1.5f;
  all.add_bias(5, -kInf);
  check_frequencies("all filters", all, logits);
}

TEST(sample_filters_that_leave_one_token_are_greedy) {
  Random random{11};
  for (int32_t vocab : {1, 2, 65, 3001}) {
    std::vector<float> logits = random_logits(random, vocab);
    int32_t const best = int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
    logits[size_t(best)] += 1;  // no temperature separates equal logits
    for (uint32_t position = 0; position < 20; ++position) {
      Request greedy, top_k, top_p, cold;
      greedy.row.temperature = 0;
      top_k.row.top_k = 1;
      top_p.row.top_p = 0;
      cold.row.temperature = 1e-6f;
      for (Request* request : {&greedy, &top_k, &top_p, &cold}) {
        request->row.position = position;
        CHECK(token_of(*request, logits) == best, "V=%d position %u: not the likeliest", vocab, position);
      }
    }
  }
}

TEST(sample_prefers_the_lower_id_among_equals) {
  std::vector<float> logits(200, 1.0f);
  logits[0] = 0.5f;
  Request greedy, top_k;
  greedy.row.temperature = 0;
  CHECK(token_of(greedy, logits) == 1, "greedy drew %d", token_of(greedy, logits));
  top_k.row.top_k = 3;
  bool drawn[200] = {};
  for (top_k.row.position = 0; top_k.row.position < 100; ++top_k.row.position)
    drawn[token_of(top_k, logits)] = true;
  for (int t = 0; t < 200; ++t) CHECK(drawn[t] == (t >= 1 && t <= 3), "token %d", t);
}

TEST(sample_applies_penalties_then_biases_then_the_mask) {
  std::vector<float> const logits = {4.0f, 3.0f, -1.0f, 2.5f};
  auto const greedy = [&](auto&& prepare) {
    Request request;
    request.row.temperature = 0;
    prepare(request);
    return token_of(request, logits);
  };
  CHECK(greedy([](Request&) {}) == 0, "plain");
  CHECK(greedy([](Request& r) {
          r.row.repetition = 2;
          r.add_seen(0, 0);
        }) == 1,
        "repetition counts the prompt");
  CHECK(greedy([](Request& r) {
          r.row.presence = 2;
          r.add_seen(0, 0);
        }) == 0,
        "presence does not count the prompt");
  CHECK(greedy([](Request& r) {
          r.row.presence = 1.2f;
          r.add_seen(0, 5);
        }) == 1,
        "presence is taken once");
  CHECK(greedy([](Request& r) {
          r.row.frequency = 0.4f;
          r.add_seen(0, 2);
        }) == 0,
        "frequency, twice");
  CHECK(greedy([](Request& r) {
          r.row.frequency = 0.4f;
          r.add_seen(0, 3);
        }) == 1,
        "frequency, three times");
  CHECK(greedy([](Request& r) {
          r.row.repetition = 0.1f;
          r.add_seen(2, 1);
          r.add_bias(2, 4.2f);
        }) == 2,
        "repetition multiplies what is below 0, a bias follows");
  CHECK(greedy([](Request& r) { r.add_bias(0, -kInf); }) == 1, "a bias of -inf bans");
  CHECK(greedy([](Request& r) {
          r.add_bias(2, 100);
          r.mask = {0b1011};
        }) == 0,
        "the mask stands above biases");
  CHECK(greedy([](Request& r) { r.mask = {0b1100}; }) == 3, "the mask allows");
}

TEST(sample_reports_rows_that_cannot_be_drawn) {
  for (Kernels const* kernels : levels())
    for (int32_t vocab : {1, 64, 65, 1000})
      for (int32_t at : {0, vocab / 2, vocab - 1}) {
        for (float bad : {NAN, -NAN, kInf, -kInf}) {
          std::vector<float> logits(size_t(vocab), 0.25f);
          logits[size_t(at)] = bad;
          Request request;
          CHECK(draw(*kernels, request, logits).result.status == 1, "%s V=%d: %g at %d passed", kernels->name,
                vocab, double(bad), at);
        }
        std::vector<float> const logits(size_t(vocab), 0.25f);
        Request masked, banned, only;
        masked.mask.assign(size_t(vocab + 31) / 32, 0);
        for (int32_t t = 0; t < vocab; ++t) banned.add_bias(t, -kInf);
        only.mask = masked.mask;
        only.mask[size_t(at / 32)] = 1u << at % 32;
        CHECK(draw(*kernels, masked, logits).result.status == 2, "%s V=%d: an empty mask", kernels->name,
              vocab);
        CHECK(draw(*kernels, banned, logits).result.status == 2, "%s V=%d: all banned", kernels->name, vocab);
        SampleResult const one = draw(*kernels, only, logits).result;
        CHECK(one.status == 0 && one.token == at, "%s V=%d: only %d is allowed", kernels->name, vocab, at);
      }
}

TEST(sample_depends_on_seed_and_position_alone) {
  Random random{5};
  std::vector<float> const logits = random_logits(random, 5000);
  Request request;
  int32_t const token = token_of(request, logits);
  CHECK(token_of(request, logits) == token, "the same row twice");
  int changed = 0;
  for (uint32_t i = 1; i <= 30; ++i) {
    Request other_position, other_low, other_high;
    other_position.row.position = i;
    other_low.row.seed_low += i;
    other_high.row.seed_high += i;
    for (Request* other : {&other_position, &other_low, &other_high})
      changed += token_of(*other, logits) != token;
  }
  CHECK(changed > 80, "%d of 90 other seeds and positions draw another token", changed);
}

}  // namespace bunting::test
