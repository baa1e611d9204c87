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
#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting {

// Activations of a step, one row per token. Strides are whole panels (f32) or the next GEMM's padded K
// (operands).
struct Workspace {
  float* x = nullptr;        // [T, round_up(H, 16)]
  char* normed = nullptr;    // [T, kp(H)] operand
  float* qkv = nullptr;      // [T, Nqkv]
  char* attended = nullptr;  // [T, kp(Hq D)] operand; columns beyond Hq D stay zero
  float* delta = nullptr;    // [T, round_up(H, 16)] what is added to x, where the product cannot
  float* both = nullptr;     // likewise: the sum of an MLP and experts beside each other
  // With inputs of layers: all of a token [T, layers P]; the gate of one beside it [T, 2 P]; what becomes of
  // them, an operand [T, kp(P)].
  float* layer_inputs = nullptr;
  float* layer_projections = nullptr;  // what is added to them, likewise
  float* input_gates = nullptr;
  char* gated_inputs = nullptr;
  float* gate_up = nullptr;   // [threads] of kGateScratch
  char* activated = nullptr;  // [T, kp(F)] operand
  // Operands of GEMMs with grouped weights, if there are any: [T, widest / kGroup], and likewise what becomes
  // of it in the MLP.
  InputGroup* groups = nullptr;
  InputGroup* activated_groups = nullptr;
  // For layers with experts: norm(x) as the router reads it [T, row_stride(H)], its logits [T, E], each
  // pair's row of norm(x) and what the MLP makes of it [T k], and scratch memory [threads] of kExpertScratch.
  float* router_input = nullptr;
  float* router_logits = nullptr;
  char* expert_input = nullptr;
  char* expert_activated = nullptr;
  float* expert_scratch = nullptr;
  float* logits = nullptr;  // [draws, V]; memory is taken only for as many as are ever drawn from at once
  float* attention_states = nullptr;  // [S, Hq] of attention_state_floats(D)
  float* attention_parts = nullptr;   // [AttentionPlan::part_rows()] of attention_sums_floats(D)
  char* attention_scratch = nullptr;  // [threads] of attention_scratch_bytes()
  char* sample_scratch = nullptr;     // [threads] of sample_scratch_bytes()

  // Lays the buffers out from `base` on and returns the bytes; with a null base it only measures.
  size_t place(Model const& model, bunting_engine_limits const& limits, char* base);
};

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

  // Computes a step and writes `result` (engine.h; large enough, see StepReader). Allocates nothing.
  void run(StepPlan const& plan, void* result);

  // Of the last step: how many rows it drew from, and their logits [draws, V].
  int32_t draws() const { return draws_; }
  float const* logits() const { return work_.logits; }

 private:
  KvLayer kv_layer(int32_t layer) const;
  void make_layer_inputs(StepPlan const& plan);
  void add_layer_input(int32_t layer, int64_t rows);
  void add_both(int32_t layer, int64_t rows);
  void copy_pages(StepPlan const& plan);
  void populate_ahead(StepPlan const& plan);
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
  template <typename Body>
  void share_rows(int64_t rows, int64_t width, Body const& body);
  int64_t pieces(double total_ns) const;
  int64_t grain(int64_t count, double total_ns) const;

  Model const& model_;
  Kernels const& kernels_;
  bunting_engine_limits limits_;
  int64_t hidden_stride_, normed_stride_, attended_stride_, activated_stride_;  // elements
  MemoryRegion pages_region_, work_region_;
  Workspace work_;
  int32_t last_with_keys_ = 0;    // layer
  std::vector<size_t> pages_at_;  // of each layer that has keys: bytes before its pages
  // A plan for each kind of attention that layers have, and which one is a layer's.
  std::vector<AttentionPlan> attention_plans_;
  std::vector<size_t> plan_of_layer_;
  int32_t draws_ = 0;
  // Pages below this are in physical memory, or will be when they are written; and of as many pages behind
  // them, the layers below the other.
  int32_t populated_pages_ = 0, populated_layers_ = 0;
  ExpertPlan expert_plan_;
  // Whether rows that are multiplied, and those that become of them in the MLP, have outliers.
  std::atomic<bool> has_outliers_{false}, activated_has_outliers_{false};
  ThreadPool pool_;
};

}  // namespace bunting
