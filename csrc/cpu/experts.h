// experts.h - the MLP of a mixture of experts: of E experts, each row of a step is computed by the k that a
// router chooses for it.
//
//   logits = router(norm(x)) [T, E] in f32; a row's experts are the k with the largest logits
//   x += sum over a row's experts, by rising number, of weight * (down(silu(gate) . up) + bias)
//
// The (row, expert) pairs of a step are grouped by expert, so that each expert that any row uses is read
// once, for all of its rows. Gate and up are cut by expert and column. Down is cut by column alone: a thread
// adds up all experts of its columns one after the other, straight into the residual stream, so that sums of
// different experts never meet in an order that depends on threads or on other rows.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "host/thread_pool.h"

namespace bunting {

// How a row's logits become experts and their weights.
struct RoutingRule {
  int32_t experts = 0;  // E
  int32_t used = 0;     // k, 1 .. E
  // Weights are the softmax of the chosen experts' logits, so that they add up to 1; else that of all logits.
  bool is_normalised = true;
};

// The k experts of one row, of equal logits the first ones, by falling logit. `logits` [E], the others [k].
// A logit that is NaN makes all weights NaN, if it is chosen or all logits count.
void choose_experts(RoutingRule const& rule, float const* logits, int32_t* experts, float* weights);

// Which rows of a step each expert computes. Memory is taken in the constructor only.
class ExpertPlan {
 public:
  // An expert that some row uses, and its pairs [first, first + count).
  struct Group {
    int32_t expert, first, count;
  };

  ExpertPlan(RoutingRule const& rule, int64_t tokens_max);

  RoutingRule const& rule() const { return rule_; }
  // Chooses for rows [begin, end) of logits [T, ld]; scales [E] multiply the weights, unless null. Different
  // rows may be on different threads.
  void choose(float const* logits, int64_t ld, float const* scales, int64_t begin, int64_t end);
  // Groups the pairs of rows [0, tokens), which have all chosen: by rising expert, then rising row.
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
  std::vector<int32_t> next_;  // [E] where an expert's next pair goes
  std::vector<int32_t> row_;   // by pair
  std::vector<float> weight_;  // by pair
};

// What the experts of a layer compute with, and where. An expert's rows of a matrix begin on a panel.
struct ExpertsMlp {
  ExpertPlan const* plan = nullptr;
  Operand x = {};                         // [T, ld] norm(x), as gate and up are multiplied with it
  PackedMatrix const* gate_up = nullptr;  // [E 2 Fp, H]: of each expert F rows of gate to Fp, F of up to Fp
  PackedMatrix const* down = nullptr;     // [E Hp, F]: of each expert H rows to Hp
  float const* gate_up_bias = nullptr;    // [E, 2 Fp] or null
  float const* down_bias = nullptr;       // [E, Hp] or null
  Operand gathered = {};                  // [T k, ld of x]: room for each pair's row of x
  Operand activated = {};                 // [T k, ld]: room for each pair's silu(gate) . up
  float* y = nullptr;                     // [T, ldy] the residual stream
  int64_t ldy = 0;
  int64_t hidden = 0;  // H
  Activation activation = Activation::silu;
  float residual_scale = 1;  // of all that is added to y
  float* scratch = nullptr;  // kExpertScratch floats for each thread
};
inline constexpr int64_t kExpertScratch = 64 * 1024;

// y += the experts' outputs of the plan's rows. The same bits for a row in any company, on any threads.
void parallel_experts(ThreadPool& pool, Kernels const& kernels, ExpertsMlp const& mlp);

}  // namespace bunting
