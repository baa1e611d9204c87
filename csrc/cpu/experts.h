// experts.h - mixture-of-experts MLP: a router chooses k of E experts for each row of a step.
//
//   logits = router(norm(x)) [T, E] in f32; a row's experts are the k with the largest scores, plus biases
//   x += sum over a row's experts, by rising number, of weight * (down(silu(gate) . up) + bias)
//
// The plan groups the (row, expert) pairs of a step by expert, so each expert in use is read once for all its
// rows. Gate and up are cut by expert and column. Down is cut by column only: one thread adds up all experts
// of its columns, one after the other, directly into the residual stream. So the order of the sum over
// experts depends neither on threads nor on other rows.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "host/thread_pool.h"
#include "include/engine.h"

namespace bunting {

// Rule that turns a row's logits into experts and weights.
struct RoutingRule {
  int32_t experts = 0;                    // E
  int32_t used = 0;                       // k, 1 .. E
  int32_t score = BUNTING_ROUTER_CHOSEN;  // BUNTING_ROUTER_*
  int32_t options = 0;                    // BUNTING_ROUTER_* set
  int32_t groups = 1, groups_used = 1;
  float scale = 1;

  bool scales_input() const { return options & BUNTING_ROUTER_SCALES_INPUT; }
};

// Chooses the k experts of one row, by falling score, ties to the lower number. `logits` is [E] and may
// become scores; `bias` is [E] or null, the other arrays are [k]. A NaN logit makes all weights NaN if its
// expert is chosen or if all logits count.
void choose_experts(RoutingRule const& rule, float* logits, float const* bias, int32_t* experts,
                    float* weights);

// Rows of a step by expert. Only the constructor allocates memory.
class ExpertPlan {
 public:
  // An expert in use, and its pairs [first, first + count).
  struct Group {
    int32_t expert, first, count;
  };

  ExpertPlan(RoutingRule const& rule, int64_t tokens_max);

  RoutingRule const& rule() const { return rule_; }
  // Chooses for rows [begin, end) of logits [T, ld]; bias [E] is added for the choice, and scales [E]
  // multiply the weights, unless null. Threads may process different rows in parallel.
  void choose(float* logits, int64_t ld, float const* bias, float const* scales, int64_t begin, int64_t end);
  // Groups the pairs of rows [0, tokens), after the choice for all of them: by rising expert, then rising
  // row.
  void group(int64_t tokens);

  int64_t tokens() const { return tokens_; }
  int64_t pairs() const { return tokens_ * rule_.used; }
  std::vector<Group> const& groups() const { return groups_; }
  int32_t row(int64_t pair) const { return row_[size_t(pair)]; }
  float weight(int64_t pair) const { return weight_[size_t(pair)]; }

 private:
  RoutingRule rule_;
  int64_t tokens_ = 0;
  std::vector<int32_t> chosen_;        // [T, k]
  std::vector<float> chosen_weights_;  // [T, k]
  std::vector<Group> groups_;
  std::vector<int32_t> next_;  // [E] place of an expert's next pair
  std::vector<int32_t> row_;   // by pair
  std::vector<float> weight_;  // by pair
};

// Matrices, inputs and buffers of a layer's experts. Each expert's rows of a matrix begin on a panel
// boundary.
struct ExpertsMlp {
  ExpertPlan const* plan = nullptr;
  Operand x = {};  // [T, ld] norm(x), as gate and up multiply it
  // [E 2 Fp, H]: per expert F rows padded to Fp of gate, then of up; without gates [E Fp, H], of up
  PackedMatrix const* gate_up = nullptr;
  PackedMatrix const* down = nullptr;   // [E Hp, F]: per expert H rows padded to Hp
  float const* gate_up_bias = nullptr;  // [E, 2 Fp], without gates [E, Fp], or null
  float const* down_bias = nullptr;     // [E, Hp] or null
  Operand gathered = {};                // [T k, ld of x]: buffer for each pair's row of x
  Operand activated = {};               // [T k, ld]: buffer for each pair's silu(gate) . up
  float* y = nullptr;                   // [T, ldy] the residual stream
  int64_t ldy = 0;
  int64_t hidden = 0;  // H
  Activation activation = Activation::silu;
  bool has_gate = true;
  float residual_scale = 1;  // factor of the sum that is added to y
  float* scratch = nullptr;  // kExpertScratch floats per thread

  int64_t parts() const { return has_gate ? 2 : 1; }  // of gate_up
};
inline constexpr int64_t kExpertScratch = 64 * 1024;

// Adds the experts' outputs of the plan's rows to y. A row's bits depend neither on other rows nor on the
// number of threads.
void parallel_experts(ThreadPool& pool, Kernels const& kernels, ExpertsMlp const& mlp);

}  // namespace bunting
