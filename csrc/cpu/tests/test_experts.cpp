// Tests of mixtures of experts: choices and sums against plain loops in double, and each row alone, bit for
// bit.
#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/experts.h"
#include "cpu/kernels/row_stride.h"
#include "cpu/tests/dense_test.h"
#include "reference/experts.h"

namespace bunting::test {
namespace {

// Experts of a layer with random weights and biases, and buffers for some rows.
struct Experts {
  Experts(Random& random, RoutingRule const& its_rule, Dtype dtype, int64_t its_hidden, int64_t feed_forward,
          bool gated = true)
      : rule(its_rule),
        has_gate(gated),
        hidden(width_for(dtype, its_hidden)),
        padded(round_up(width_for(dtype, feed_forward), kPanel)),
        gate_up(random, dtype, rule.experts * (gated ? 2 : 1) * padded, hidden),
        down(random, dtype, rule.experts * round_up(hidden, kPanel), width_for(dtype, feed_forward)),
        gate_up_bias(random_rows(random, Dtype::f32, 1, gate_up.matrix.n, gate_up.matrix.n)),
        down_bias(random_rows(random, Dtype::f32, 1, down.matrix.n, down.matrix.n)) {}

  // Returns the outputs [tokens, hidden] of rows of x, starting from y = 1.
  std::vector<float> run(Kernels const& kernels, int threads, Inputs const& x, std::vector<float> logits,
                         int64_t first, int64_t tokens) {
    ExpertPlan plan(rule, tokens);
    plan.choose(logits.data() + first * rule.experts, rule.experts, nullptr, nullptr, tokens / 2, tokens);
    plan.choose(logits.data() + first * rule.experts, rule.experts, nullptr, nullptr, 0, tokens / 2);
    plan.group(tokens);
    int64_t const ld =
        down.matrix.grouped() ? down.matrix.kp() / kGroup : row_stride(down.matrix.dtype, down.matrix.k);
    Bytes activated(plan.pairs() * ld * input_bytes(down.matrix.dtype)), gathered(plan.pairs() * x.row_bytes);
    std::memset(activated.data.get(), 0, activated.size);
    Bytes scratch(threads * kExpertScratch * int64_t(sizeof(float)));
    std::vector<float> y(size_t(tokens * hidden), 1.0f);
    ExpertsMlp mlp = weights();
    mlp.plan = &plan;
    mlp.x = {const_cast<void*>(x.row(first)), x.ldx, gate_up.matrix.dtype};
    mlp.gathered = {gathered.data.get(), x.ldx, gate_up.matrix.dtype};
    mlp.activated = {activated.data.get(), ld, down.matrix.dtype};
    mlp.y = y.data();
    mlp.scratch = scratch.f32();
    ThreadPool pool(threads);
    parallel_experts(pool, kernels, mlp);
    return y;
  }

  ExpertsMlp weights() {
    return {.gate_up = &gate_up.matrix,
            .down = &down.matrix,
            .gate_up_bias = gate_up_bias.f32(),
            .down_bias = down_bias.f32(),
            .ldy = hidden,
            .hidden = hidden,
            .activation = has_gate ? Activation::silu : Activation::relu_squared,
            .has_gate = has_gate,
            .residual_scale = 0.5f};
  }

  RoutingRule rule;
  bool has_gate;
  int64_t hidden, padded;
  Weights gate_up, down;
  Bytes gate_up_bias, down_bias;
};

std::vector<float> random_logits(Random& random, int64_t count) {
  std::vector<float> logits(size_t(count), 0.0f);
  for (float& logit : logits) logit = random.uniform(-3, 3);
  return logits;
}

// Returns the root mean square of the difference, relative to that of the expected values.
double relative_error(std::vector<float> const& got, std::vector<double> const& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(got[i] - 1 - want[i], 2);
    size += std::pow(want[i], 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace

TEST(experts_are_chosen_as_by_sorting) {
  Random random{7};
  constexpr int32_t kShared = BUNTING_ROUTER_NORMALISED, kBiased = BUNTING_ROUTER_BIASED;
  for (RoutingRule const rule :
       {RoutingRule{8, 2, BUNTING_ROUTER_CHOSEN}, RoutingRule{128, 8, BUNTING_ROUTER_CHOSEN},
        RoutingRule{64, 8, BUNTING_ROUTER_ALL}, RoutingRule{5, 5, BUNTING_ROUTER_ALL},
        RoutingRule{1, 1, BUNTING_ROUTER_CHOSEN}, RoutingRule{64, 6, BUNTING_ROUTER_ALL, kBiased | kShared},
        RoutingRule{32, 4, BUNTING_ROUTER_SIGMOID},
        RoutingRule{128, 8, BUNTING_ROUTER_SIGMOID, kBiased | kShared, 1, 1, 2.5f},
        RoutingRule{64, 8, BUNTING_ROUTER_SIGMOID, kBiased | kShared, 8, 4, 2.5f},
        RoutingRule{48, 3, BUNTING_ROUTER_ALL, 0, 6, 1, 0.5f}}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> logits = random_logits(random, rule.experts);
      // Makes some logits equal.
      for (int i = 0; i < rule.experts / 3; ++i)
        logits[size_t(random.below(rule.experts))] = logits[size_t(random.below(rule.experts))];
      // Eighths below 1 that differ by more than rounding.
      std::vector<float> biases(size_t(rule.experts));
      for (float& bias : biases) bias = float(random.below(8)) / 8;
      float const* const bias = rule.options & kBiased ? biases.data() : nullptr;
      std::vector<int32_t> experts(size_t(rule.used), -1);
      std::vector<float> weights(size_t(rule.used), NAN);
      std::vector<reference::Choice> const want = reference::choose_experts(rule, logits.data(), bias);
      choose_experts(rule, logits.data(), bias, experts.data(), weights.data());
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(experts[i] == want[i].expert && std::fabs(weights[i] / want[i].weight - 1) < 1e-5,
              "%d of %d: choice %d is %d of weight %g, wanted %d of %g", rule.used, rule.experts, int(i),
              experts[i], double(weights[i]), want[i].expert, want[i].weight);
    }
  }
}

TEST(experts_of_logits_that_are_no_numbers) {
  RoutingRule const rule{6, 2, BUNTING_ROUTER_ALL};
  for (int bad = 0; bad < 6; ++bad) {
    std::vector<float> logits{1, 5, 2, 0, 4, 3};
    logits[size_t(bad)] = NAN;
    int32_t experts[2] = {-1, -1};
    float weights[2];
    choose_experts(rule, logits.data(), nullptr, experts, weights);
    CHECK(experts[0] >= 0 && experts[0] < 6 && experts[1] >= 0 && experts[1] < 6 && experts[0] != experts[1],
          "logit %d: %d and %d", bad, experts[0], experts[1]);
    CHECK(std::isnan(weights[0]) && std::isnan(weights[1]), "logit %d: weights %g and %g", bad,
          double(weights[0]), double(weights[1]));
  }
}

TEST(expert_weights_are_multiplied_by_scales_of_their_own) {
  Random random{12};
  RoutingRule const rule{5, 2, BUNTING_ROUTER_CHOSEN};
  std::vector<float> logits = random_logits(random, 8 * rule.experts);
  std::vector<float> const scales{0.5f, -1, 2, 3, 1};
  ExpertPlan plain(rule, 8), scaled(rule, 8);
  plain.choose(logits.data(), rule.experts, nullptr, nullptr, 0, 8);
  scaled.choose(logits.data(), rule.experts, nullptr, scales.data(), 0, 8);
  plain.group(8);
  scaled.group(8);
  for (ExpertPlan::Group const& group : plain.groups())
    for (int64_t pair = group.first; pair < group.first + group.count; ++pair)
      CHECK(scaled.row(pair) == plain.row(pair) &&
                scaled.weight(pair) == plain.weight(pair) * scales[size_t(group.expert)],
            "pair %d: %g, wanted %g times %g", int(pair), double(scaled.weight(pair)),
            double(plain.weight(pair)), double(scales[size_t(group.expert)]));
}

TEST(expert_groups_have_every_pair_once) {
  Random random{11};
  RoutingRule const rule{12, 3, BUNTING_ROUTER_CHOSEN};
  ExpertPlan plan(rule, 40);
  for (int64_t tokens : {40, 1, 7, 0}) {
    std::vector<float> logits = random_logits(random, tokens * rule.experts);
    plan.choose(logits.data(), rule.experts, nullptr, nullptr, 0, tokens);
    plan.group(tokens);
    std::vector<int> seen(size_t(tokens * rule.experts), 0);
    int64_t first = 0;
    int32_t expert = -1;
    for (ExpertPlan::Group const& group : plan.groups()) {
      CHECK(group.first == first && group.expert > expert && group.count > 0, "T=%d: expert %d at %d of %d",
            int(tokens), group.expert, group.first, group.count);
      for (int32_t i = 0; i < group.count; ++i) {
        CHECK(i == 0 || plan.row(first + i) > plan.row(first + i - 1), "rows rise");
        seen[size_t(plan.row(first + i) * rule.experts + group.expert)]++;
      }
      first += group.count;
      expert = group.expert;
    }
    for (int64_t t = 0; t < tokens; ++t)
      for (reference::Choice const& choice :
           reference::choose_experts(rule, logits.data() + t * rule.experts))
        seen[size_t(t * rule.experts + choice.expert)] -= 1;
    CHECK(first == tokens * rule.used && std::all_of(seen.begin(), seen.end(), [](int n) { return n == 0; }),
          "T=%d: %d pairs", int(tokens), int(first));
  }
}

TEST(experts_match_reference) {
  for (Dtype dtype : kWeightTypes) {
    Random random{uint64_t(dtype) + 1};
    constexpr int64_t kTokens = 9;
    for (auto const& [rule, gated] : {std::pair{RoutingRule{6, 2, BUNTING_ROUTER_CHOSEN}, true},
                                      {RoutingRule{3, 3, BUNTING_ROUTER_ALL}, true},
                                      {RoutingRule{5, 2, BUNTING_ROUTER_CHOSEN}, false}}) {
      Experts experts(random, rule, dtype, 72, 200, gated);
      Inputs const x = random_inputs(random, experts.gate_up.matrix, kTokens);
      std::vector<float> const logits = random_logits(random, kTokens * rule.experts);
      std::vector<double> want(size_t(kTokens * experts.hidden));
      ExpertsMlp mlp = experts.weights();
      mlp.x = {const_cast<void*>(x.row(0)), x.ldx, experts.gate_up.matrix.dtype};
      reference::experts(mlp, rule, logits.data(), kTokens, want.data());
      // The activated rows between gate and down are rounded to bf16, or to 8-bit integers.
      double const allowed = dtype == Dtype::f32 ? 2e-6 : dtype == Dtype::bf16 ? 4e-3 : 1.5e-2;
      for (Kernels const* kernels : dense_levels()) {
        double const error = relative_error(experts.run(*kernels, 2, x, logits, 0, kTokens), want);
        CHECK(error < allowed, "%s %s %d of %d: error %g", kernels->name, name_of(dtype), rule.used,
              rule.experts, error);
      }
    }
  }
}

// Compares a row alone and with others, on any number of threads.
TEST(experts_of_a_row_do_not_depend_on_company) {
  for (Dtype dtype : kWeightTypes) {
    Random random{uint64_t(dtype) + 3};
    constexpr int64_t kTokens = 70;  // more rows than a block of the kernels
    RoutingRule const rule{5, 2, BUNTING_ROUTER_CHOSEN};
    Experts experts(random, rule, dtype, 80, 144);
    Inputs const x = random_inputs(random, experts.gate_up.matrix, kTokens);
    std::vector<float> const logits = random_logits(random, kTokens * rule.experts);
    for (Kernels const* kernels : dense_levels()) {
      std::vector<float> const together = experts.run(*kernels, 3, x, logits, 0, kTokens);
      for (auto const& [first, tokens, threads] :
           {std::array<int, 3>{0, 1, 1}, {41, 1, 2}, {69, 1, 1}, {30, 4, 2}, {0, 40, 1}}) {
        std::vector<float> const some = experts.run(*kernels, threads, x, logits, first, tokens);
        CHECK(std::equal(some.begin(), some.end(), together.begin() + first * experts.hidden),
              "%s %s rows %d to %d differ from those among %d", kernels->name, name_of(dtype), first,
              first + tokens, int(kTokens));
      }
    }
  }
}

}  // namespace bunting::test
