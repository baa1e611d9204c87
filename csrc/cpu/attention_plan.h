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
// Inside a phase items come by falling cost and in pieces of about equal cost. An item that takes much more
// than a thread's fair share is cut: between tiles of rows, and one tile between segments of positions, whose
// sums a small phase of its own adds up. So a long context occupies more threads than it has KV heads. Blocks
// of keys come in rising order within a segment and segments are added up in rising order whatever the plan,
// so a plan does not show in any bit of a result (cpu/kernels/attention.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "boundary/step_block.h"
#include "cpu/kernels/kernels.h"

namespace bunting {

struct AttentionShape {
  int32_t query_heads = 0, kv_heads = 0, head_size = 0;
  int32_t sliding_window = 0;  // 0: none
  int32_t context_max = 0;     // of a sequence; segments of a longer one are not computed side by side
  bool operator==(AttentionShape const&) const = default;
};

class AttentionPlan {
 public:
  // Allocates for the largest step; make() allocates nothing.
  AttentionPlan(AttentionShape const& shape, int32_t chunks_max, int32_t tokens_max, int32_t threads);

  // Rows of Attention::parts that a plan takes at most.
  static int64_t part_rows(AttentionShape const& shape);

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

  // `begin` .. `end`: positions that some row sees.
  struct Planned {
    AttentionItem item;
    int32_t phase, begin, end;
    float cost_ns;
  };
  void share(StepPlan const& plan, SharedSpan const& span);
  void add_own(StepPlan const& plan, int32_t chunk);
  void add(AttentionItem const& item, int32_t phase, int32_t begin, int32_t end);
  void deal();
  void cut(Planned const& whole, float piece_ns);
  void cut_positions(Planned const& tile);
  void end_phase(int32_t begin, double piece_ns);
  float cost_ns(AttentionItem const& item, int32_t positions) const;
  int32_t first_visible(int32_t position) const;

  AttentionShape shape_;
  int32_t threads_;
  // By chunk: positions [0, covered) are in items of shared spans, of which there are `depth`.
  std::vector<int32_t> covered_, depth_;
  std::vector<int32_t> members_;  // of all used spans, one after the other
  int32_t member_count_ = 0;
  std::vector<Planned> planned_;
  int32_t planned_count_ = 0;
  // What comes of them, by phase, piece and cost; and what adds up the parts of the phase being dealt.
  std::vector<Planned> dealt_, sums_;
  int32_t sum_count_ = 0, part_rows_ = 0;
  std::vector<AttentionItem> items_;
  int32_t item_count_ = 0;
  std::vector<int32_t> piece_begin_;
  std::array<int32_t, 2 * size_t(kLevels + 1) + 1> phase_begin_{};  // in piece_begin_
  int32_t phases_ = 0, pieces_ = 0;
};

}  // namespace bunting
