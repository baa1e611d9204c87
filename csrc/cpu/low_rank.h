// low_rank.h - adds the terms of LoRA adapters to the products of a step: y[t] += B (scale A x[t]).
//
// Rows of several adapters are in one step, beside rows without any. So each run of rows with one adapter is
// multiplied by that adapter's factors (segmented products, as in Punica, arXiv:2310.18547, section 4, and
// S-LoRA, arXiv:2311.03285, section 5). A term is known by the matrix that it belongs to, so that no part of
// the forward pass names adapters. Each row is computed by itself: batch invariance holds (kernels.h).
//
// With grouped weights x is read from its groups, rounded as the matrix itself reads it.
#pragma once

#include <vector>

#include "boundary/step_block.h"
#include "cpu/kernels/kernels.h"
#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "model/adapter.h"

namespace bunting {

class LowRank {
 public:
  // Allocates its buffers for checked limits; none without adapters. Throws BUNTING_NO_MEMORY.
  LowRank(Model const& model, bunting_engine_limits const& limits, ThreadPool& pool);

  static uint64_t workspace_bytes(Model const& model, bunting_engine_limits const& limits) {
    return Buffers().place(model, limits, nullptr);
  }

  // See bunting_engine_put_adapter.
  void put(int32_t slot, Adapter const* adapter);
  // Throws BUNTING_INVALID if a chunk names a slot without an adapter.
  void check(StepPlan const& plan) const;

  // Begins a step, whose rows are those of all tokens.
  void begin(StepPlan const& plan);
  // From here on the step's rows are those with an output.
  void keep_wanted_rows(StepPlan const& plan);

  // True if a row has an adapter that adds to the product with `w`.
  bool changes(PackedMatrix const& w) const;
  // Computes A x for the rows of such a product. `x` has all rows of the step.
  void reduce(PackedMatrix const& w, Operand const& x);
  // Adds B (A x) of rows and panels of the last reduced product to `y`, whose first element is that of the
  // first row and panel. Several threads may call it.
  void expand(PackedMatrix const& w, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end, float* y, int64_t ldy) const;
  // The same for all rows and panels, on all threads.
  void expand_all(PackedMatrix const& w, float* y, int64_t ldy);

 private:
  static constexpr int64_t kBlockRows = 32;
  static constexpr int64_t kPiecePanels = 64;

  // Rows [begin, end) of the step with one adapter, at most kBlockRows.
  struct Block {
    int64_t begin, end;
    Adapter const* adapter;
  };

  struct Buffers {
    char* ranks =
        nullptr;  // [T, rank_stride] operand of f32 at most: A x, the parts' columns padded to kKAlign
    float* numbers = nullptr;  // [threads] of kBlockRows rows of x or A x
    char* inputs = nullptr;    // [threads] of kBlockRows rows of x as a plain operand
    int64_t rank_stride = 0, number_stride = 0, input_stride = 0;
    size_t place(Model const& model, bunting_engine_limits const& limits, char* base);
  };

  void add_rows(int64_t begin, int64_t end, int32_t slot);
  void reduce_block(LowRankTerm const& term, Block const& block, Operand const& x, int thread);

  Model const& model_;
  Kernels const& kernels_;
  ThreadPool& pool_;
  int32_t rank_max_;
  std::vector<Adapter const*> adapters_;  // by slot, from 1
  std::vector<Block> blocks_;
  Buffers buffers_;
  MemoryRegion region_;
};

}  // namespace bunting
