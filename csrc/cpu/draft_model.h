// draft_model.h - a second, smaller model that drafts tokens behind the draws of a step (engine.h).
//
// It reads the tokens of the chunks that name it, those before them that it has not read yet, and from the
// last right draw of each chunk that asks for drafts the drawn token. From there it draws the likeliest
// token, and again from that one, as a model served alone does at temperature 0.
//
// Each of these is a step of a forward pass of its own, whose pages have the numbers of the target's. Many
// unread tokens take several. What it drafts may lie behind the last page of its chunk, in a spare page that
// no step reads again.
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
  // Bytes of its memory besides its pages.
  static uint64_t workspace_bytes(Model const& model, bunting_engine_limits const& limits);

  // Drafts behind the draws in the result of a step, and adds its time there.
  void run(StepPlan const& plan, void* result);

  KvMemory& pages() { return forward_.pages(); }

 private:
  // Sequence that drafts.
  struct Row {
    int32_t position;  // of the token that is read next
    int32_t const* page;
    int32_t wanted;
    uint32_t* drafts;  // in the result: their count, then pairs
  };
  static bunting_engine_limits own_limits(bunting_engine_limits const& limits);
  // Pages of the longest sequence, with a spare one and one behind the context.
  static size_t page_list_size(Model const& model);
  // Chunks of a step that are planned so far, and their rows and tokens.
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
