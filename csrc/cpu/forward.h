// forward.h - one step of the transformer: from a validated plan to logits and drawn tokens.
//
//   page copies; x = embed(ids)                                      x [T, H] f32, the residual stream
//   per layer: qkv = norm(x) * Wqkv; rotate q and k, append k and v to their pages;
//              x += attention(q, pages) * Wo; x += (activation(gate) . up) * Wdown with gate|up = norm(x) *
//              Wgu
//   of the wanted rows: norm(x) as it is, or logits = norm(x) * Wvocab and one draw
//
// Which norms, biases, scales and caps there are is told by the layer's shape (engine.h). What is added to x
// as it is, is added by the product itself; what has a norm or a scale of its own goes by way of `delta`.
//
// After its append the last layer needs the wanted rows only, so what follows its attention runs on those
// alone; a step of which nothing is wanted ends at the append. Every kernel keeps a row's result independent
// of the rows beside it (kernels.h), so how work is cut for the threads never shows in a result.
#pragma once

#include <atomic>
#include <vector>

#include "boundary/step_block.h"
#include "cpu/attention_plan.h"
#include "cpu/experts.h"
#include "cpu/kv_memory.h"
#include "cpu/workspace.h"
#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting {

// Throws BUNTING_INVALID, naming the limit that is out of range.
void check_limits(bunting_engine_limits const& limits);

class Forward {
 public:
  // Allocates pages, workspaces and threads for checked limits. Throws BUNTING_NO_MEMORY.
  Forward(Model const& model, bunting_engine_limits const& limits);

  // Bytes besides the pages.
  static uint64_t workspace_bytes(Model const& model, bunting_engine_limits const& limits) {
    return Workspace().place(model, limits, nullptr);
  }

  // Computes a step and writes `result` (engine.h; large enough, see StepReader). Allocates nothing. False:
  // it was given up, as `way` was no longer 0; null: it is not.
  bool run(StepPlan const& plan, void* result, int32_t const* way);

  // Of the last step: how many rows it drew from, and their logits [draws, V].
  int32_t draws() const { return draws_; }
  float const* logits() const { return work_.logits; }

 private:
  void make_layer_inputs(StepPlan const& plan);
  void add_layer_input(int32_t layer, int64_t rows);
  void add_both(int32_t layer, int64_t rows);
  void project_and_append(StepPlan const& plan, int32_t layer);
  void attend(StepPlan const& plan, int32_t layer);
  void keep_wanted_rows(StepPlan const& plan);
  void keep_drawn_rows(StepPlan const& plan);
  void finish_layer(int32_t layer, int64_t rows);
  void add_experts(int32_t layer, int64_t rows, float const* norm, float* to, float scale);
  void add(PackedMatrix const& w, float const* bias, float const* post_norm, Operand const& x, int64_t rows);
  void add_delta(float const* post_norm, int64_t rows);
  void add_normed(float* to, float const* from, float const* norm, float scale, int64_t rows);
  Norm norm_by(float const* weight) const;
  void write_hidden(StepPlan const& plan, float* hidden);
  void sample(StepPlan const& plan, uint32_t* results);
  Operand operand(PackedMatrix const& w, char* plain, int64_t stride);
  Operand normalise(float const* weight, int64_t rows, PackedMatrix const& next);
  Operand multiply_gated(Operand const& normed, PackedMatrix const& gate_up, float const* bias,
                         PackedMatrix const& down, int64_t rows);
  Operand attended(PackedMatrix const& next, int64_t rows);
  void multiply(Gemm gemm, Operand const& x);
  double gemm_ns(PackedMatrix const& w, int64_t rows) const;
  int64_t gemm_pieces(PackedMatrix const& w, int64_t rows) const;
  // Spreads rows of `width` elements over the threads if there are enough of them.
  template <typename Body>
  void share_rows(int64_t rows, int64_t width, Body const& body) {
    constexpr double kElementNs = 0.7;  // of a norm that writes groups
    pool_.run(rows, grain(rows, kElementNs * double(rows) * double(width)), body);
  }
  int64_t pieces(double total_ns) const;
  int64_t grain(int64_t count, double total_ns) const;

  Model const& model_;
  Kernels const& kernels_;
  bunting_engine_limits limits_;
  int64_t hidden_stride_, normed_stride_, attended_stride_, activated_stride_;  // elements
  KvMemory pages_;
  MemoryRegion work_region_;
  Workspace work_;
  // A plan for each kind of attention that layers have, and which one is a layer's.
  std::vector<AttentionPlan> attention_plans_;
  std::vector<size_t> plan_of_layer_;
  int32_t draws_ = 0;
  ExpertPlan expert_plan_;
  // Whether rows that are multiplied, and those that become of them in the MLP, have outliers.
  std::atomic<bool> has_outliers_{false}, activated_has_outliers_{false};
  ThreadPool pool_;
};

}  // namespace bunting
