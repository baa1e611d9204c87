// attention_plan.h - a step's attention as work items, balanced over threads by their estimated cost.
//
// Decodes that share a prefix (StepPlan::shared) are rows of the same items for the shared pages, so those
// pages are read once (cascade attention). A later phase computes each sequence's own positions and continues
// from the state that the shared part left for its rows. Prompt chunks fill tiles by themselves and share no
// items.
//
//   phase 0   the outermost shared spans; all positions of sequences that share nothing
//   phase p   spans nested directly in those of phase p - 1; own positions of sequences in p nested spans
//
// Within a phase items are sorted by falling cost and grouped into pieces of about equal cost. An item much
// longer than a thread's fair share is cut between tiles of rows. A single tile is cut between segments of
// positions, and a small extra phase adds up their sums (split-K). So a long context can occupy more threads
// than it has KV heads.
//
// The plan never changes a bit of the result: key blocks come in rising order within a segment, and segments
// are added up in rising order (cpu/kernels/attention.cpp).
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
  int32_t context_max = 0;  // longest sequence, in positions; segments beyond it are not computed in parallel
  bool is_bidirectional = false;  // tokens see those behind them
  bool is_chunked = false;        // the window is a chunk (engine.h)
  bool operator==(AttentionShape const&) const = default;
};

class AttentionPlan {
 public:
  // Allocates for the largest step; make() allocates nothing.
  AttentionPlan(AttentionShape const& shape, int32_t chunks_max, int32_t tokens_max, int32_t threads);

  // Upper bound of the rows of Attention::parts that a plan uses.
  static int64_t part_rows(AttentionShape const& shape);

  // Plans a step; all layers of the same attention shape use the plan. Items point into this plan.
  void make(StepPlan const& plan);

  // Pieces of a phase: piece p is items [piece_begin(phase, p), piece_begin(phase, p + 1)).
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
  static constexpr int32_t kLevels = 4;  // deepest nesting of shared spans that a plan uses

  // Work item before it is cut and grouped; [begin, end) are the positions that at least one of its rows
  // sees.
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
  int32_t visible_end(ChunkView const& chunk, int32_t position) const;

  AttentionShape shape_;
  int32_t threads_;
  // Number of used spans around a chunk, and the end of the positions [0, covered) in their items.
  std::vector<int32_t> covered_, depth_;
  std::vector<int32_t> members_;  // chunk numbers of all used spans, one span after the other
  int32_t member_count_ = 0;
  std::vector<Planned> planned_;
  int32_t planned_count_ = 0;
  // Items after cutting, sorted by phase, piece and cost; and the items that add up the parts of the phase
  // being dealt.
  std::vector<Planned> dealt_, sums_;
  int32_t sum_count_ = 0, part_rows_ = 0;
  std::vector<AttentionItem> items_;
  int32_t item_count_ = 0;
  std::vector<int32_t> piece_begin_;
  std::array<int32_t, 2 * size_t(kLevels + 1) + 1> phase_begin_{};  // index into piece_begin_
  int32_t phases_ = 0, pieces_ = 0;
};

}  // namespace bunting
