// Tests of mixtures of experts: the choice against the reference, groups exactly, and products of grouped
// rows bit for bit against products with each expert's matrix.
#include "cuda/tests/device_test.h"
#include "include/engine.h"
#include "reference/experts.h"

namespace bunting::test {
namespace {

// Each token's experts as the reference chooses them, by rising number: [T, k].
struct Choices {
  std::vector<int32_t> chosen;
  std::vector<double> weights;

  Choices(RoutingRule const& rule, std::vector<float> const& logits) {
    for (size_t t = 0; t < logits.size() / size_t(rule.experts); ++t) {
      std::vector<reference::Choice> of_token =
          reference::choose_experts(rule, logits.data() + t * size_t(rule.experts));
      std::sort(of_token.begin(), of_token.end(), [](auto& a, auto& b) { return a.expert < b.expert; });
      for (reference::Choice const& choice : of_token) {
        chosen.push_back(choice.expert);
        weights.push_back(choice.weight);
      }
    }
  }
};

// Groups of given choices on the device.
struct Groups {
  DeviceArray<int32_t> chosen, begin, row, pair;
  cuda::GroupExperts task;
  Groups(std::vector<int32_t> const& of_tokens, int32_t experts, int32_t used)
      : chosen(of_tokens),
        begin(size_t(experts + 1)),
        row(of_tokens.size()),
        pair(of_tokens.size()),
        task{chosen.data(), begin.data(), row.data(), pair.data(), int32_t(of_tokens.size()) / used,
             experts,       used} {}
};

// Returns distinct random experts for each token.
std::vector<int32_t> random_choices(Random& random, int32_t tokens, int32_t experts, int32_t used) {
  RoutingRule const rule{experts, used, BUNTING_ROUTER_CHOSEN};
  return Choices(rule, random_floats(random, size_t(tokens * experts))).chosen;
}

}  // namespace

TEST(cuda_router_matches_sums_in_double_in_any_company) {
  Random random{41};
  struct Case {
    int32_t tokens, experts, hidden;
  };
  for (auto const [tokens, experts, hidden] : {Case{1, 3, 64}, Case{9, 8, 1000}, Case{20, 33, 520}}) {
    std::vector<float> const x = random_floats(random, size_t(tokens * hidden)),
                             w = random_floats(random, size_t(experts * hidden)),
                             bias = random_floats(random, size_t(experts));
    DeviceArray<float> const device_x(x), device_w(w), device_bias(bias), logits(size_t(tokens * experts)),
        alone{size_t(experts)};
    RUNS(cuda::router(stream, {device_x.data(), device_w.data(), device_bias.data(), logits.data(), tokens,
                               experts, hidden}));
    std::vector<float> const got = logits.get();
    for (int t = 0; t < tokens; ++t)
      for (int e = 0; e < experts; ++e) {
        double want = double(bias[size_t(e)]), scale = std::fabs(want);
        for (int h = 0; h < hidden; ++h) {
          double const term = double(x[size_t(t * hidden + h)]) * double(w[size_t(e * hidden + h)]);
          want += term;
          scale += std::fabs(term);
        }
        CHECK(std::fabs(double(got[size_t(t * experts + e)]) - want) <= kSumError * scale,
              "token %d expert %d: %g, wanted %g", t, e, double(got[size_t(t * experts + e)]), want);
      }
    int const last = tokens - 1;
    RUNS(cuda::router(stream, {device_x.data() + last * hidden, device_w.data(), device_bias.data(),
                               alone.data(), 1, experts, hidden}));
    CHECK(std::equal(got.end() - experts, got.end(), alone.get().begin()), "alone a token has other logits");
  }
}

TEST(cuda_router_waits_nowhere_in_vain) {
  Random random{42};
  std::vector<float> const x = random_floats(random, 3 * 600), w = random_floats(random, 5 * 600);
  DeviceArray<float> const device_x(x), device_w(w), logits(15);
  double want = 0;
  for (size_t h = 0; h < 600; ++h) want += double(x[600 + h]) * double(w[4 * 600 + h]);
  every_wait_is_needed(
      [&](cuda::Stream& stream) {
        stream.fill(logits.data(), 0xff, 15 * sizeof(float));
        cuda::router(stream, {device_x.data(), device_w.data(), nullptr, logits.data(), 3, 5, 600});
      },
      [&] { return std::fabs(double(logits.get()[9]) - want) < 1e-4; });
}

TEST(cuda_experts_are_chosen_as_the_reference_does) {
  Random random{43};
  struct Case {
    int32_t experts, used;
  };
  for (auto const [experts, used] : {Case{1, 1}, Case{5, 2}, Case{64, 8}, Case{70, 32}})
    for (bool of_all : {false, true}) {
      int32_t const tokens = 7;
      std::vector<float> logits = random_floats(random, size_t(tokens * experts), 4);
      for (int32_t e = 0; e < experts; ++e) logits[size_t(e)] = float(e % 3);  // many are equal
      Choices const want({experts, used, of_all ? BUNTING_ROUTER_ALL : BUNTING_ROUTER_CHOSEN}, logits);
      std::vector<float> const scales = random_floats(random, size_t(experts));
      DeviceArray<float> const device_logits(logits), weights(want.weights.size()), device_scales(scales);
      DeviceArray<int32_t> const chosen(want.chosen.size());
      RUNS(cuda::choose_experts(stream, {device_logits.data(), nullptr, chosen.data(), weights.data(), tokens,
                                         experts, used, of_all, of_all ? device_scales.data() : nullptr}));
      CHECK(chosen.get() == want.chosen, "E=%d k=%d: others are chosen", experts, used);
      std::vector<float> const got = weights.get();
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(std::fabs(double(got[i]) -
                        want.weights[i] * (of_all ? double(scales[size_t(want.chosen[i])]) : 1)) <= 2e-6,
              "E=%d k=%d weight %zu: %g, wanted %g", experts, used, i, double(got[i]), want.weights[i]);
    }
}

TEST(cuda_experts_are_chosen_by_scores_with_biases_in_groups) {
  Random random{45};
  constexpr int32_t kShared = BUNTING_ROUTER_NORMALISED, kBiased = BUNTING_ROUTER_BIASED, kTokens = 7;
  for (RoutingRule const rule :
       {RoutingRule{16, 1, BUNTING_ROUTER_SIGMOID}, RoutingRule{64, 6, BUNTING_ROUTER_ALL, kBiased | kShared},
        RoutingRule{128, 8, BUNTING_ROUTER_SIGMOID, kBiased | kShared, 1, 1, 2.5f},
        RoutingRule{64, 8, BUNTING_ROUTER_SIGMOID, kBiased | kShared, 8, 4, 2.5f},
        RoutingRule{80, 4, BUNTING_ROUTER_SIGMOID, kBiased, 40, 3}}) {
    std::vector<float> const logits = random_floats(random, size_t(kTokens * rule.experts), 4),
                             bias = random_floats(random, size_t(rule.experts));
    bool const is_biased = rule.options & kBiased;
    std::vector<int32_t> want;
    std::vector<double> want_weights;
    for (int32_t t = 0; t < kTokens; ++t) {
      std::vector<reference::Choice> choices = reference::choose_experts(
          rule, logits.data() + t * rule.experts, is_biased ? bias.data() : nullptr);
      std::sort(choices.begin(), choices.end(),
                [](auto const& a, auto const& b) { return a.expert < b.expert; });
      for (reference::Choice const& choice : choices)
        want.push_back(choice.expert), want_weights.push_back(choice.weight);
    }
    DeviceArray<float> const device_logits(logits), device_bias(bias), weights(want.size());
    DeviceArray<int32_t> const chosen(want.size());
    RUNS(cuda::choose_experts(stream, {.logits = device_logits.data(),
                                       .slots = nullptr,
                                       .chosen = chosen.data(),
                                       .weights = weights.data(),
                                       .tokens = kTokens,
                                       .experts = rule.experts,
                                       .used = rule.used,
                                       .score = rule.score,
                                       .bias = is_biased ? device_bias.data() : nullptr,
                                       .is_normalised = (rule.options & kShared) != 0,
                                       .groups = rule.groups,
                                       .groups_used = rule.groups_used,
                                       .scale = rule.scale}));
    CHECK(chosen.get() == want, "E=%d k=%d of %d groups: others are chosen", rule.experts, rule.used,
          rule.groups);
    std::vector<float> const got = weights.get();
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(std::fabs(double(got[i]) - want_weights[i]) <= 5e-6, "E=%d k=%d weight %zu: %g, wanted %g",
            rule.experts, rule.used, i, double(got[i]), want_weights[i]);
  }
}

TEST(cuda_experts_of_a_logit_that_is_no_number_have_no_weight) {
  std::vector<float> const logits = {1, 2, NAN, 0, 1, 2, 3, 4};
  DeviceArray<float> const device_logits(logits), weights(4);
  DeviceArray<int32_t> const chosen(4), slots(std::vector<int32_t>{5, cuda::kNoSlot});
  RUNS(cuda::choose_experts(stream, {device_logits.data(), slots.data(), chosen.data(), weights.data(), 2, 4,
                                     2, BUNTING_ROUTER_CHOSEN}));
  std::vector<float> const got = weights.get();
  CHECK(std::isnan(got[0]) && std::isnan(got[1]), "%g and %g", double(got[0]), double(got[1]));
  CHECK(chosen.get()[2] == -1 && chosen.get()[3] == -1 && got[2] == 0 && got[3] == 0,
        "a token that fills up a step uses an expert");
}

TEST(cuda_experts_are_grouped_by_number_and_token) {
  Random random{44};
  struct Case {
    int32_t tokens, experts, used;
  };
  for (auto const [tokens, experts, used] : {Case{1, 4, 2}, Case{70, 5, 3}, Case{300, 40, 4}}) {
    std::vector<int32_t> choices = random_choices(random, tokens, experts, used);
    if (tokens > 1) std::fill_n(choices.end() - used, used, -1);  // the last token chooses no expert
    Groups const groups(choices, experts, used);
    RUNS(cuda::group_experts(stream, groups.task));
    std::vector<int32_t> begin(1), row, pair(choices.size(), -1);
    for (int32_t e = 0; e < experts; ++e) {
      for (size_t i = 0; i < choices.size(); ++i) {
        if (choices[i] != e) continue;
        pair[i] = int32_t(row.size());
        row.push_back(int32_t(i) / used);
      }
      begin.push_back(int32_t(row.size()));
    }
    row.resize(choices.size());
    CHECK(groups.begin.get() == begin, "T=%d: experts begin elsewhere", tokens);
    CHECK(groups.row.get() == row && groups.pair.get() == pair, "T=%d: pairs lie elsewhere", tokens);
  }
}

TEST(cuda_experts_are_grouped_waiting_nowhere_in_vain) {
  Random random{45};
  Groups const groups(random_choices(random, 90, 3, 2), 3, 2);
  RUNS(cuda::group_experts(stream, groups.task));
  std::vector<int32_t> const want = groups.pair.get();
  every_wait_is_needed(
      [&](cuda::Stream& stream) {
        stream.fill(groups.pair.data(), 0xff, want.size() * sizeof(int32_t));
        cuda::group_experts(stream, groups.task);
      },
      [&] { return groups.pair.get() == want; });
}

TEST(cuda_experts_outputs_are_summed_up_by_rising_number) {
  Random random{46};
  int32_t const tokens = 3, used = 2, hidden = 1100;
  std::vector<float> const x = random_floats(random, size_t(tokens * used * hidden)),
                           weights = random_floats(random, size_t(tokens * used));
  std::vector<int32_t> const pair = {3, 0, 1, 4, -1, -1};
  DeviceArray<float> const device_x(x), device_weights(weights), y(size_t(tokens * hidden));
  DeviceArray<int32_t> const device_pair(pair);
  RUNS(cuda::combine_experts(
      stream, {y.data(), device_x.data(), device_pair.data(), device_weights.data(), tokens, used, hidden}));
  std::vector<float> const got = y.get();
  for (size_t i = 0; i < got.size(); ++i) {
    float want = 0;
    for (size_t c = i / size_t(hidden) * 2, k = 0; k < 2; ++k)
      if (pair[c + k] >= 0)
        want = std::fma(weights[c + k], x[size_t(pair[c + k] * hidden) + i % size_t(hidden)], want);
    CHECK(got[i] == want, "element %zu: %g, wanted %g", i, double(got[i]), double(want));
  }
}

// Rows of experts in one product have the bits of products with each expert's matrix, in either kernel, with
// K in parts and without.
TEST(cuda_gemm_experts_gives_the_bits_of_single_products) {
  using Kernel = void (*)(cuda::Stream&, cuda::Gemm const&, cuda::Experts const&);
  Random random{47};
  struct Case {
    int32_t tokens, experts, used, n, k;
  };
  for (auto const [tokens, experts, used, n, k] : {Case{1, 4, 2, 130, 72}, Case{6, 3, 1, 24, 1032},
                                                   Case{40, 5, 2, 40, 264}, Case{150, 3, 2, 136, 136}}) {
    int32_t const pairs = tokens * used;
    std::vector<uint16_t> const x = random_halves(random, size_t(pairs * k)),
                                w = random_halves(random, size_t(experts * n * k));
    std::vector<float> const bias = random_floats(random, size_t(experts * n));
    Groups const groups(random_choices(random, tokens, experts, used), experts, used);
    RUNS(cuda::group_experts(stream, groups.task));
    std::vector<int32_t> const begin = groups.begin.get();
    DeviceArray<uint16_t> const device_x(x), device_w(w);
    DeviceArray<float> const device_bias(bias), y(size_t(pairs * n)), partial(size_t(8 * pairs * n));
    std::vector<int32_t> const rest(size_t(cuda::gemm_experts_arrived(n, experts)));
    DeviceArray<int32_t> const arrived(rest);
    std::vector<float> want(size_t(pairs * n));
    for (int32_t e = 0; e < experts; ++e)
      for (int32_t row = begin[size_t(e)]; row < begin[size_t(e) + 1]; ++row)
        for (int32_t column = 0; column < n; ++column) {
          double sum = double(bias[size_t(e * n + column)]);
          for (int32_t i = 0; i < k; ++i)
            sum += double(reference::widen(x[size_t(row * k + i)])) *
                   double(reference::widen(w[size_t((e * n + column) * k + i)]));
          want[size_t(row * n + column)] = float(sum);
        }
    std::vector<float> first;
    for (Kernel kernel : {cuda::gemm_few_experts, cuda::gemm_many_experts, cuda::gemm_experts}) {
      if (kernel == cuda::gemm_few_experts && tokens > cuda::kGemmFewTokens) continue;
      RUNS({
        stream.fill(y.data(), 0xff, y.size() * sizeof(float));
        kernel(stream,
               {device_x.data(), device_w.data(), device_bias.data(), y.data(), pairs, n, k, partial.data(),
                arrived.data()},
               {groups.begin.data(), experts, used});
      });
      std::vector<float> const got = y.get();
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(std::fabs(double(got[i]) - double(want[i])) <= 1e-4, "T=%d E=%d element %zu: %g, wanted %g",
              tokens, experts, i, double(got[i]), double(want[i]));
      if (first.empty()) first = got;
      CHECK(got == first, "T=%d E=%d: the kernels differ", tokens, experts);
      CHECK(arrived.get() == rest, "counters are left");
    }
  }
}

// A token's rows do not depend on the other tokens of its experts, in any format.
TEST(cuda_gemm_experts_rows_do_not_depend_on_company) {
  Random random{48};
  constexpr int32_t kTokens = 70, kExperts = 3, kN = 40, kK = 520;
  std::vector<uint16_t> const x = random_halves(random, size_t(kTokens * kK));
  std::vector<int32_t> choices(kTokens);
  for (int32_t t = 0; t < kTokens; ++t) choices[size_t(t)] = t % 5 == 0 ? 2 : 0;
  for (cuda::Format format : {cuda::Format::plain, cuda::Format::int8_128, cuda::Format::int8_32,
                              cuda::Format::int4_32, cuda::Format::fp8, cuda::Format::mxfp4}) {
    size_t const row = cuda::row_bytes(format, kK), scales = cuda::row_scale_bytes(format, kK);
    std::vector<uint8_t> w(size_t(kExperts * kN) * row), s(size_t(kExperts * kN) * scales);
    for (int32_t r = 0; r < kExperts * kN; ++r) {
      uint8_t *const to = w.data() + size_t(r) * row, *const to_scales = s.data() + size_t(r) * scales;
      if (format == cuda::Format::plain) {
        std::vector<uint16_t> const values = random_halves(random, kK);
        std::memcpy(to, values.data(), row);
      } else if (format == cuda::Format::fp8) {
        cuda::round_row_to_fp8(random_floats(random, kK), to, to_scales);
      } else {
        std::vector<int8_t> q(kK);
        for (int8_t& value : q) value = int8_t(random.below(16) - (format == cuda::Format::mxfp4 ? 0 : 8));
        std::vector<uint16_t> const halves(size_t((kK + cuda::scale_k(format) - 1) / cuda::scale_k(format)),
                                           uint16_t(0x2c00 + r));
        cuda::pack_row(format, q, halves, to, to_scales);
      }
    }
    DeviceArray<uint8_t> const device_w(w), device_s(s);
    // Returns the rows of the given tokens in the order of groups, which here is the order of tokens.
    auto const rows_of = [&](std::vector<int32_t> const& tokens) {
      std::vector<int32_t> of_tokens;
      for (int32_t t : tokens) of_tokens.push_back(choices[size_t(t)]);
      Groups const groups(of_tokens, kExperts, 1);
      DeviceArray<uint16_t> const device_x(x), input(tokens.size() * kK);
      DeviceArray<int32_t> const ids(tokens);
      DeviceArray<uint16_t> const picked(tokens.size() * kK);
      DeviceArray<float> const y(tokens.size() * kN), partial(8 * tokens.size() * kN);
      DeviceArray<int32_t> const arrived(
          std::vector<int32_t>(size_t(cuda::gemm_experts_arrived(kN, kExperts))));
      int32_t const count = int32_t(tokens.size());
      std::string const fault = fault_of([&](cuda::Stream& stream) {
        cuda::group_experts(stream, groups.task);
        cuda::gather(stream, {device_x.data(), picked.data(), ids.data(), count, 2 * kK});
        cuda::gather(stream, {picked.data(), input.data(), groups.row.data(), count, 2 * kK});
        cuda::gemm_experts(stream,
                           {input.data(),
                            {format, device_w.data(), device_s.data()},
                            nullptr,
                            y.data(),
                            count,
                            kN,
                            kK,
                            partial.data(),
                            arrived.data()},
                           {groups.begin.data(), kExperts, 1});
      });
      CHECK(fault.empty(), "%s", fault.c_str());
      std::vector<float> const sorted = y.get();
      std::vector<int32_t> const pair = groups.pair.get();
      std::vector<std::vector<float>> by_token;
      for (int32_t p : pair) by_token.emplace_back(sorted.begin() + p * kN, sorted.begin() + (p + 1) * kN);
      return by_token;
    };
    std::vector<int32_t> everyone(kTokens);
    for (int32_t t = 0; t < kTokens; ++t) everyone[size_t(t)] = t;
    auto const all = rows_of(everyone);
    for (std::vector<int32_t> const& some :
         {std::vector<int32_t>{7}, {69, 0, 5, 6, 1}, {12, 11, 10, 9, 8, 7, 6, 5, 4, 3}}) {
      auto const got = rows_of(some);
      for (size_t i = 0; i < some.size(); ++i)
        CHECK(got[i] == all[size_t(some[i])], "format %d: token %d of %zu has other bits", int(format),
              some[i], some.size());
    }
  }
}

}  // namespace bunting::test
