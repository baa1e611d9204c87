#include "cpu/experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace bunting {
namespace {

// Panels of gate, and as many of up, per task: whole input groups of the down projection.
constexpr int64_t kGatePanels = kGroupMax / kPanel;
// Panels of down per task: fewer are read too slowly, more leave no room for rows.
constexpr int64_t kDownPanelsLeast = 4, kDownPanelsMost = 16;
// Pieces of down per thread. With few rows threads wait for memory, and smaller pieces even out the wait.
constexpr int64_t kDownPieces = 4, kDownPiecesOfFew = 16;
// Bytes that one piece of gathering copies: a smaller copy finishes before another core has started.
constexpr int64_t kGatherBytes = 128 * 1024;

int64_t ceil_div(int64_t x, int64_t by) {
  return (x + by - 1) / by;
}

// View of panels [begin, begin + count) as a matrix.
PackedMatrix panels_of(PackedMatrix const& w, int64_t begin, int64_t count) {
  PackedMatrix part = w;
  part.n = count * kPanel;
  part.data = w.panel(begin);
  return part;
}

// Rows of x of a group, which are contiguous.
Operand rows_of(ExpertsMlp const& mlp, ExpertPlan::Group const& group) {
  if (mlp.plan->tokens() == 1) return mlp.x;
  Operand rows = mlp.gathered;
  rows.rows = rows.row(group.first);
  return rows;
}

// Copies each pair's row of x to its place in its group.
void gather(ThreadPool& pool, ExpertsMlp const& mlp) {
  if (mlp.plan->tokens() == 1) return;
  size_t const row_bytes = size_t(mlp.x.ld * mlp.x.element_bytes());
  int64_t const grain = std::max<int64_t>(1, kGatherBytes / int64_t(row_bytes));
  pool.run(mlp.plan->pairs(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair)
      std::memcpy(mlp.gathered.row(pair), mlp.x.row(mlp.plan->row(pair)), row_bytes);
  });
}

// Computes panels [panel, panel + kGatePanels) of gate and of up for one group, then the activation. `next`
// is the memory that this thread will probably multiply next.
void activate(Kernels const& kernels, ExpertsMlp const& mlp, ExpertPlan::Group const& group, int64_t panel,
              char const* next, float* gates) {
  int64_t const parts = mlp.parts();
  int64_t const panels =
      mlp.gate_up->panels() / mlp.plan->rule().experts / parts;  // panels of gate, or of up
  int64_t const begin = group.expert * parts * panels + panel, count = std::min(kGatePanels, panels - panel);
  int64_t const columns = count * kPanel, rows_most = kExpertScratch / (parts * columns);
  PackedMatrix const gate = panels_of(*mlp.gate_up, begin, count);
  PackedMatrix const up = panels_of(*mlp.gate_up, begin + (parts - 1) * panels, count);
  Operand const x = rows_of(mlp, group);
  for (int64_t row = 0; row < group.count; row += rows_most) {
    bool const is_last = row + rows_most >= group.count;
    Gemm part{.x = x.row(row),
              .ldx = x.ld,
              .w = &gate,
              .bias = mlp.gate_up_bias ? mlp.gate_up_bias + begin * kPanel : nullptr,
              .y = gates,
              .ldy = parts * columns,
              .tokens = std::min(rows_most, group.count - row),
              .may_have_outliers = x.may_have_outliers(),
              .next = up.panel(0)};
    if (mlp.has_gate) {
      kernels.gemm(part, 0, count);
      part.w = &up;
      if (part.bias) part.bias += panels * kPanel;
      part.y = gates + columns;
    }
    part.next = is_last ? next : gate.panel(0);
    kernels.gemm(part, 0, count);
    Operand out = mlp.activated;
    int64_t const column = panel * kPanel / (is_grouped(out.dtype) ? kGroup : 1);
    out.rows = out.row(group.first + row) + column * out.element_bytes();
    // A scale of the input, to which gate and up are proportional.
    for (int64_t i = 0; mlp.plan->rule().scales_input() && i < part.tokens; ++i)
      kernels.scale_and_cap(gates, part.ldy, part.ldy, mlp.plan->weight(group.first + row + i), 0, i, i + 1);
    if (mlp.has_gate)
      kernels.gate(out, gates, part.ldy, columns, mlp.activation, 0, part.tokens);
    else
      kernels.activate(out, gates, part.ldy, columns, mlp.activation, {}, 0, part.tokens);
  }
}

// Adds y += scale * weight * z for rows [row, row + count) of a group, for some columns.
void add_weighted(ExpertsMlp const& mlp, int64_t pair, int64_t count, int64_t column, int64_t columns,
                  float const* z, int64_t ldz) {
  for (int64_t i = 0; i < count; ++i) {
    float const weight =
        mlp.residual_scale * (mlp.plan->rule().scales_input() ? 1 : mlp.plan->weight(pair + i));
    float* const y = mlp.y + mlp.plan->row(pair + i) * mlp.ldy + column;
    float const* const from = z + i * ldz;
    for (int64_t n = 0; n < columns; ++n) y[n] += weight * from[n];
  }
}

// Computes panels [panel, panel + count) of down for all experts by rising number.
void add_experts(Kernels const& kernels, ExpertsMlp const& mlp, int64_t panel, int64_t count, float* sums) {
  std::vector<ExpertPlan::Group> const& groups = mlp.plan->groups();
  int64_t const panels = mlp.down->panels() / mlp.plan->rule().experts;
  int64_t const columns = count * kPanel, rows_most = kExpertScratch / columns;
  for (size_t i = 0; i < groups.size(); ++i) {
    ExpertPlan::Group const& group = groups[i];
    int64_t const begin = group.expert * panels + panel;
    PackedMatrix const w = panels_of(*mlp.down, begin, count);
    for (int64_t row = 0; row < group.count; row += rows_most) {
      bool const is_last = row + rows_most >= group.count;
      Gemm const part{.x = mlp.activated.row(group.first + row),
                      .ldx = mlp.activated.ld,
                      .w = &w,
                      .bias = mlp.down_bias ? mlp.down_bias + begin * kPanel : nullptr,
                      .y = sums,
                      .ldy = columns,
                      .tokens = std::min(rows_most, group.count - row),
                      .may_have_outliers = mlp.activated.may_have_outliers(),
                      .next = !is_last                ? w.panel(0)
                              : i + 1 < groups.size() ? mlp.down->panel(groups[i + 1].expert * panels + panel)
                                                      : nullptr};
      kernels.gemm(part, 0, count);
      int64_t const column = panel * kPanel;
      add_weighted(mlp, group.first + row, part.tokens, column, std::min(columns, mlp.hidden - column), sums,
                   columns);
    }
  }
}

}  // namespace

namespace {

// Turns logits into scores: the softmax over all, or sigmoids.
void score(RoutingRule const& rule, float* logits) {
  float sum = 0, largest = logits[0];
  if (rule.score == BUNTING_ROUTER_SIGMOID) {
    for (int32_t e = 0; e < rule.experts; ++e) logits[e] = 1 / (1 + std::exp(-logits[e]));
    return;
  }
  for (int32_t e = 1; e < rule.experts; ++e) largest = std::max(largest, logits[e]);
  for (int32_t e = 0; e < rule.experts; ++e) sum += logits[e] = std::exp(logits[e] - largest);
  for (int32_t e = 0; e < rule.experts; ++e) logits[e] /= sum;
}

// The groups to choose from, as a set of bits: those with the largest sums of their two best scores.
uint64_t choose_groups(RoutingRule const& rule, float const* scores, float const* bias) {
  int32_t const size = rule.experts / rule.groups;
  std::array<float, 64> sums;
  for (int32_t group = 0; group < rule.groups; ++group) {
    float best = -INFINITY, next = -INFINITY;
    for (int32_t e = group * size; e < (group + 1) * size; ++e) {
      float const s = scores[e] + (bias ? bias[e] : 0);
      next = std::max(next, std::min(best, s));
      best = std::max(best, s);
    }
    sums[size_t(group)] = best + next;
  }
  uint64_t chosen = 0;
  for (int32_t round = 0; round < rule.groups_used; ++round) {
    int32_t best = -1;
    for (int32_t group = 0; group < rule.groups; ++group)
      if (!(chosen >> group & 1) && (best < 0 || sums[size_t(group)] > sums[size_t(best)])) best = group;
    chosen |= uint64_t{1} << best;
  }
  return chosen;
}

}  // namespace

void choose_experts(RoutingRule const& rule, float* logits, float const* bias, int32_t* experts,
                    float* weights) {
  if (rule.score != BUNTING_ROUTER_CHOSEN) score(rule, logits);
  uint64_t const groups = rule.groups > 1 ? choose_groups(rule, logits, bias) : ~uint64_t{0};
  int32_t const group_size = rule.experts / rule.groups;
  // Until the end, weights holds the scores of the chosen experts, plus biases, falling.
  int32_t count = 0;
  for (int32_t expert = 0; expert < rule.experts; ++expert) {
    if (!(groups >> (expert / group_size) & 1)) continue;
    float const by = logits[expert] + (bias ? bias[expert] : 0);
    int32_t at = count;
    while (at > 0 && by > weights[at - 1]) --at;
    if (at == rule.used) continue;
    if (count < rule.used) ++count;
    for (int32_t i = count - 1; i > at; --i) experts[i] = experts[i - 1], weights[i] = weights[i - 1];
    experts[at] = expert;
    weights[at] = by;
  }
  bool const is_softmax = rule.score == BUNTING_ROUTER_CHOSEN;
  float const largest = weights[0];
  float sum = 0;
  for (int32_t i = 0; i < rule.used; ++i) {
    float const own = logits[experts[i]];
    weights[i] = is_softmax ? std::exp(own - largest) : own;
    sum += weights[i];
  }
  // A sum of sigmoids may vanish.
  constexpr float kLeast = 1e-20f;
  bool const is_shared = is_softmax || (rule.options & BUNTING_ROUTER_NORMALISED);
  for (int32_t i = 0; i < rule.used; ++i)
    weights[i] = weights[i] / (is_shared ? sum + (is_softmax ? 0 : kLeast) : 1) * rule.scale;
}

ExpertPlan::ExpertPlan(RoutingRule const& rule, int64_t tokens_max)
    : rule_(rule),
      chosen_(size_t(tokens_max * rule.used)),
      chosen_weights_(chosen_.size()),
      next_(size_t(rule.experts)),
      row_(chosen_.size()),
      weight_(chosen_.size()) {
  groups_.reserve(size_t(rule.experts));
}

void ExpertPlan::choose(float* logits, int64_t ld, float const* bias, float const* scales, int64_t begin,
                        int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int32_t* const chosen = chosen_.data() + row * rule_.used;
    float* const weights = chosen_weights_.data() + row * rule_.used;
    choose_experts(rule_, logits + row * ld, bias, chosen, weights);
    for (int32_t i = 0; i < rule_.used && scales; ++i) weights[i] *= scales[chosen[i]];
  }
}

void ExpertPlan::group(int64_t tokens) {
  tokens_ = tokens;
  std::fill(next_.begin(), next_.end(), 0);
  for (int64_t i = 0; i < pairs(); ++i) ++next_[size_t(chosen_[size_t(i)])];
  groups_.clear();
  int32_t first = 0;
  for (int32_t expert = 0; expert < rule_.experts; ++expert) {
    int32_t const count = next_[size_t(expert)];
    next_[size_t(expert)] = first;
    if (count > 0) groups_.push_back({expert, first, count});
    first += count;
  }
  for (int64_t i = 0; i < pairs(); ++i) {
    size_t const pair = size_t(next_[size_t(chosen_[size_t(i)])]++);
    row_[pair] = int32_t(i / rule_.used);
    weight_[pair] = chosen_weights_[size_t(i)];
  }
}

void parallel_experts(ThreadPool& pool, Kernels const& kernels, ExpertsMlp const& mlp) {
  std::vector<ExpertPlan::Group> const& groups = mlp.plan->groups();
  gather(pool, mlp);

  int64_t const experts = mlp.plan->rule().experts;
  int64_t const gate_panels = mlp.gate_up->panels() / experts / mlp.parts(),
                blocks = ceil_div(gate_panels, kGatePanels);
  int64_t const pieces = int64_t(groups.size()) * blocks;
  auto const weights_of = [&](int64_t piece) -> char const* {
    if (piece >= pieces) return nullptr;
    int64_t const expert = groups[size_t(piece / blocks)].expert;
    return mlp.gate_up->panel(expert * mlp.parts() * gate_panels + piece % blocks * kGatePanels);
  };
  pool.run(pieces, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i)
      activate(kernels, mlp, groups[size_t(i / blocks)], i % blocks * kGatePanels,
               weights_of(i + pool.threads()), mlp.scratch + thread * kExpertScratch);
  });

  int64_t const down_panels = mlp.down->panels() / experts;
  bool const is_few = mlp.plan->pairs() <= 2 * int64_t(groups.size());
  int64_t const wanted = pool.threads() * (is_few ? kDownPiecesOfFew : kDownPieces);
  int64_t const width = std::clamp(ceil_div(down_panels, wanted), kDownPanelsLeast, kDownPanelsMost);
  pool.run(ceil_div(down_panels, width), 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i)
      add_experts(kernels, mlp, i * width, std::min(width, down_panels - i * width),
                  mlp.scratch + thread * kExpertScratch);
  });
}

}  // namespace bunting
