// draft_model.h - the draft model of speculative decoding: drafts tokens behind the draws of a step
// (engine.h).
//
// First it computes the chunks of the step, except those that it skips, each after its unread tokens. For a
// chunk with drafts it also computes the token of the last valid draw (right_draws.h). From there it decodes
// greedily, one token per pass.
//
// Each pass is a step of a forward pass of its own, on pages with the same ids as the target's. Many unread
// tokens take several passes. Drafts may lie beyond the last page of their chunk, in a spare page that no
// later step reads.
#pragma once

#include <vector>

#include "cpu/forward.h"
#include "cpu/right_draws.h"

namespace bunting {

class DraftModel {
 public:
  // `limits` are the engine's. Throws BUNTING_NO_MEMORY.
  DraftModel(Model const& model, Model const& target, bunting_engine_limits const& limits, ThreadPool& pool);

  // Throws BUNTING_INVALID for a model that cannot draft.
  static void check(Model const& model);
  // Bytes of its workspace: its memory besides pages.
  static uint64_t workspace_bytes(Model const& model, bunting_engine_limits const& limits);

  // Drafts behind the draws in `result`, the target's result of the step, and writes drafts and time there.
  void run(StepPlan const& plan, void* result);

  KvMemory& pages() { return forward_.pages(); }

 private:
  // Sequence that drafts.
  struct Row {
    int32_t position;  // of the token to compute next
    int32_t const* page;
    int32_t wanted;
    uint32_t* drafts;  // in the result: their count, then pairs
  };
  static bunting_engine_limits own_limits(bunting_engine_limits const& limits);
  // Pages of the longest sequence, with a spare one and one behind the context.
  static size_t page_list_size(Model const& model);
  // Progress through the chunks of a step: the chunks planned so far, and their rows and tokens.
  struct Reading {
    int32_t chunks = 0, rows = 0, tokens = 0, of_prompts = 0;
  };
  void plan_reading(StepPlan const& plan, Reading& reading);
  void read(int32_t token, int32_t position, int32_t const* page);
  void draw(Row const& row);
  int32_t const* with_spare(ChunkView const& chunk, int32_t index);
  void write_drafts(size_t first_row);
  void plan_drafting();

  bunting_engine_limits limits_;
  int32_t context_max_, vocab_, target_vocab_;
  Forward forward_;
  StepPlan plan_;
  std::vector<int32_t> tokens_;
  std::vector<Row> rows_;
  std::vector<RightDraw> right_draws_;
  std::vector<int32_t> page_lists_;  // [S, page_list_size()]
  std::vector<uint32_t> result_;
};

}  // namespace bunting
