// attention_plan.h - a step's attention as items of work, dealt out by what they cost.
//
// Decodes that share pages (StepPlan::shared) are rows of the same items as far as they share, so that those
// pages are read once; what a sequence has of its own follows in a later phase, from the state in which the
// shared part left its rows. Prompt chunks fill tiles by themselves and share nothing.
//
//   phase 0   the outermost shared spans; everything of sequences that share nothing
//   phase p   the spans inside of those of phase p - 1; what sequences with p spans above them have of their
//   own
//
// Inside a phase items come by falling cost and in pieces of about equal cost. A row's blocks of keys come in
// rising order whatever the plan, so a plan does not show in any bit of a result (kernels/attention.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "step_block.h"

namespace bunting {

struct AttentionShape {
  int32_t query_heads = 0, kv_heads = 0, head_size = 0;
  int32_t sliding_window = 0;  // 0: none
};

class AttentionPlan {
 public:
  // Allocates for the largest step; make() allocates nothing.
  AttentionPlan(AttentionShape const& shape, int32_t chunks_max, int32_t tokens_max, int32_t threads);

  // Plans a step, the same for every layer. Items point into this plan.
  void make(StepPlan const& plan);

  // Piece p of a phase is items [piece_begin(phase, p), piece_begin(phase, p + 1)).
  int32_t phases() const { return phases_; }
  int32_t pieces(int32_t phase) const {
    return phase_begin_[size_t(phase) + 1] - phase_begin_[size_t(phase)];
  }
  int32_t piece_begin(int32_t phase, int32_t piece) const {
    return piece_begin_[size_t(phase_begin_[size_t(phase)] + piece)];
  }
  AttentionItem const* items() const { return items_.data(); }
  int32_t item_count() const { return item_count_; }

 private:
  static constexpr int32_t kLevels = 4;  // spans that are used one inside of the other, at most

  struct Planned {
    AttentionItem item;
    int32_t phase;
    float cost_ns;
  };
  void share(StepPlan const& plan, SharedSpan const& span);
  void add_own(StepPlan const& plan, int32_t chunk);
  void add(AttentionItem const& item, int32_t phase, int32_t keys);
  void deal();
  int32_t first_visible(int32_t position) const;

  AttentionShape shape_;
  int32_t threads_;
  // By chunk: positions [0, covered) are in items of shared spans, of which there are `depth`.
  std::vector<int32_t> covered_, depth_;
  std::vector<int32_t> members_;  // of all used spans, one after the other
  int32_t member_count_ = 0;
  std::vector<Planned> planned_;
  std::vector<AttentionItem> items_;
  int32_t item_count_ = 0;
  std::vector<int32_t> piece_begin_;
  std::array<int32_t, size_t(kLevels) + 2> phase_begin_{};  // in piece_begin_
  int32_t phases_ = 0;
};

}  // namespace bunting
