// step_arrays.h - step inputs for the device: arrays in one block of memory, written on the host and copied
// from there.
#pragma once

#include <vector>

#include "boundary/step_block.h"
#include "cuda/attention_kinds.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/states.h"
#include "cuda/runtime.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting::cuda {

// Arrays of a step. The place of an array up to `pages` depends only on the sizes of the arrays before it.
struct StepArrays {
  // Most biases and seen tokens that are copied at a time, unless one row may have more: 64 MiB. A step with
  // more is drawn in parts. Tests make it smaller.
  inline static size_t pairs_at_once = size_t(8) << 20;
  // Number of entries per array.
  struct PlanSizes {
    size_t pairs_of_heads, items, merge_rows;  // pairs_of_heads: tokens times KV heads
  };
  struct Sizes {
    size_t tokens = 0, pages = 0, rows = 0, draws = 0, copies = 0, blocks = 0, sample_pairs = 0,
           mask_words = 0;
    // With recurrent layers only.
    size_t state_tokens = 0, state_chunks = 0, saves = 0;
    std::vector<PlanSizes> plans = {};
  };
  // Attention plan (attention_plan.h).
  struct Plan {
    AttentionItem* items = nullptr;
    int32_t* item_begin = nullptr;
    int32_t* merge_begin = nullptr;
    int32_t* merge_rows = nullptr;
  };
  int32_t* tokens = nullptr;     // [T]
  int32_t* positions = nullptr;  // [T]
  int32_t* slots = nullptr;      // [T] page * Tp + slot
  int32_t* pages_at = nullptr;   // [T] index in `pages` of the page of position 0
  // [rows] token rows: those to draw from, then those that return hidden states
  int32_t* wanted = nullptr;
  int32_t* chunk_of_token = nullptr;   // [T], with recurrent layers, as the next two; see StateStep
  StateChunk* state_chunks = nullptr;  // [chunks]
  StateCopy* saves = nullptr;
  std::vector<Plan> plans = {};  // one per kind of attention
  int32_t* pages = nullptr;      // page ids, chunk after chunk
  PageCopy* copies = nullptr;
  uint32_t* draws = nullptr;  // [draws, BUNTING_ROW_WORDS]
  uint32_t* masks = nullptr;  // ceil(V / 32) words per row with a mask
  int32_t* pairs = nullptr;   // biases and seen tokens of the rows that are drawn at a time

  // Lays out the arrays from `base` on and returns their bytes; with a null base it only measures.
  size_t place(Sizes const& sizes, char* base);
};

// Arrays of the current step, on host and device.
class StepInputs {
 public:
  // Allocates memory for the largest step within the limits, for attention of `blocks` blocks. Throws
  // BUNTING_NO_MEMORY.
  StepInputs(Model const& model, bunting_engine_limits const& limits, int32_t blocks);

  // Bytes of device memory.
  static size_t bytes(Model const& model, bunting_engine_limits const& limits, int32_t blocks);

  // Places the device's arrays for a recorded step of `tokens` decodes, and returns the sizes of those before
  // the pages.
  StepArrays::Sizes place_decodes(int32_t tokens);

  // Writes a step's arrays, in the places of a recorded step if `recorded` is not null, and queues their
  // copies. A recorded step is padded with token 0. Padding tokens append no keys and values, attend to
  // nothing and are not drawn from.
  void send(StepPlan const& plan, StepArrays::Sizes const* recorded, Stream& stream);

  // Queues the copy of the biases and seen tokens of rows [begin, end) that are drawn from, as many as there
  // is memory for, and returns `end`. Throws BUNTING_INVALID.
  int32_t send_pairs(StepPlan const& plan, int32_t begin, Stream& stream);

  StepArrays const& on_device() const { return device_; }
  // Returns the chunks of the arrays for the kernels of recurrent mixers.
  StateStep states(int32_t chunks, int32_t tokens) const {
    return {device_.state_chunks, device_.chunk_of_token, device_.saves, chunks, tokens};
  }
  StepArrays::Plan const& plan_of(int32_t layer) const {
    return device_.plans[kinds_.of_layer[size_t(layer)]];
  }

 private:
  StepArrays::Sizes plan(StepPlan const& plan);
  void write(StepPlan const& plan, size_t tokens);
  void write_rows(StepPlan const& plan);
  void write_states(StepPlan const& plan, size_t tokens);
  uint32_t place_pairs(SampleRow const& row, size_t& end) const;
  void copy(size_t begin, size_t end, Stream& stream) const;

  Model const& model_;
  int32_t blocks_;
  int32_t states_;  // slots
  AttentionKinds kinds_;
  size_t pairs_max_;
  DeviceMemory device_memory_;
  MappedMemory host_memory_;
  StepArrays host_, device_;
  std::vector<AttentionPlan> plans_;
  std::vector<AttentionChunk> chunks_;
  std::vector<SharedRange> shared_;
};

}  // namespace bunting::cuda
