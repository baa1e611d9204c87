// forward.h - one step of the transformer: from a validated plan to logits and drawn tokens.
//
//   page copies; x = embed(ids)                                      x [T, H] f32, the residual stream
//   per layer: qkv = norm(x) * Wqkv; rotate q and k, append k and v to their pages;
//              x += attention(q, pages) * Wo;
//              x += (activation(gate) . up) * Wdown with gate|up = norm(x) * Wgu
//   per requested row: norm(x) itself, or logits = norm(x) * Wvocab and one draw
//
// The layer's shape (engine.h) says which norms, biases, scales and caps exist. A GEMM adds its result to x
// directly, unless the result has a post-norm or a scale; then it goes through the buffer `delta`.
//
// A recurrent layer has a state instead of pages: it runs all tokens of a chunk through its recurrence, which
// updates the chunk's slot (recurrent_layers.cpp).
//
// After its append or recurrence the last layer needs the requested rows only, so everything after it runs on
// those. A step without requested rows ends there. A model with states never aborts a step, which could not
// be repeated. Every kernel keeps a row's result independent of the rows beside it (kernels.h), so the
// partition of work over threads never changes a result.
//
// A draft head (engine.h, BUNTING_HEAD_*; draft_head.cpp) computes one more layer after the draws. It needs
// the last layer's output of all tokens, and changes no draw. A draft model is a forward pass of its own
// after this one (draft_model.h).
#pragma once

#include <atomic>
#include <vector>

#include "boundary/step_block.h"
#include "cpu/attention_plan.h"
#include "cpu/experts.h"
#include "cpu/kv_memory.h"
#include "cpu/low_rank.h"
#include "cpu/right_draws.h"
#include "cpu/state_memory.h"
#include "cpu/workspace.h"
#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting {

// Throws BUNTING_INVALID with the name of the limit that is out of range.
void check_limits(bunting_engine_limits const& limits);

class Forward {
 public:
  // Allocates pages and workspaces for checked limits; `pool` has the threads of the limits. Throws
  // BUNTING_NO_MEMORY.
  Forward(Model const& model, bunting_engine_limits const& limits, ThreadPool& pool, int32_t spare_pages = 0);

  // Bytes of an engine's memory besides its pages.
  static uint64_t workspace_bytes(Model const& model, bunting_engine_limits const& limits) {
    return Workspace().place(model, limits, nullptr) + LowRank::workspace_bytes(model, limits);
  }

  // Computes a step and writes `result` (engine.h; large enough, see StepReader). Allocates nothing. Returns
  // false if it aborted the step because *way was no longer 0. A null `way` never aborts.
  bool run(StepPlan const& plan, void* result, int32_t const* way);

  // Number of rows that the last step drew from, and their logits [draws, V].
  int32_t draws() const { return draws_; }
  float const* logits() const { return work_.logits; }
  // KV pages and state slots; another thread may copy those that no step in flight uses.
  KvMemory& pages() { return pages_; }
  // Adapters of the step's products.
  LowRank& adapters() { return low_rank_; }
  StateMemory& states() { return states_; }

 private:
  // draft_head.cpp defines the functions of the head.
  bool has_head() const { return limits_.drafts_max > 0 && model_.has_head(); }
  size_t draw_words() const;
  void prepare_head();
  void keep_hidden(int64_t rows);
  float run_head(StepPlan const& plan, uint32_t* results);
  void enter_head(StepPlan const& plan, int32_t const* next);
  void choose_head_rows(StepPlan const& plan, uint32_t* results);
  int32_t next_head_rows();
  void predict(int32_t rows);
  void add_places(StepPlan const& plan);
  void norm_sum(float const* norm, int64_t rows);
  void make_layer_inputs(StepPlan const& plan);
  void add_layer_input(int32_t layer, int64_t rows);
  // streams.cpp defines the functions of several residual streams.
  float* stream(int32_t index) const;
  Operand rows_of(float const* rows, int64_t count, PackedMatrix const& next);
  void scale_like(float* rows, float const* like, int64_t count);
  void make_streams(int64_t rows);
  void join_streams(int64_t rows);
  void route(LayerWeights const& weights, float const* x, float* modalities) const;
  void predict_streams(int32_t layer, int64_t rows);
  void correct_streams(int32_t layer, int64_t rows);
  void make_laurel(int32_t layer, int64_t rows);
  void add_laurel(int64_t rows);
  Operand multiply_sparse(Operand const& normed, int32_t layer, int64_t rows);
  Operand activated_rows(PackedMatrix const& down);
  void add_both(int32_t layer, int64_t rows);
  void add_mixture(int32_t layer, int64_t rows);
  void add_shared(int32_t layer, int64_t rows);
  void project_and_append(StepPlan const& plan, int32_t layer);
  void project_and_append_latents(StepPlan const& plan, int32_t layer);
  void turn_to_latents(StepPlan const& plan, int32_t layer);
  void turn_from_latents(int32_t layer, int64_t rows);
  void multiply_heads(PackedMatrix const& w, Operand const& x, int64_t of_head, float* y, int64_t ldy,
                      int64_t of_head_y, int64_t rows);
  void attend(StepPlan const& plan, int32_t layer);
  void gate_attended(int32_t layer, int64_t rows);
  void run_states(StepPlan const& plan, int32_t layer);
  StateMixer state_mixer(StepPlan const& plan, int32_t layer) const;
  void transpose_convolutions();
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
                         PackedMatrix const& down, int64_t rows, bool is_plain = false,
                         float const* xielu = nullptr);
  Operand mixed(int32_t layer, int64_t rows);
  Operand attended(PackedMatrix const& next, int64_t rows);
  Operand state_output(PackedMatrix const& next, int64_t rows);
  void multiply(Gemm gemm, Operand const& x);
  double gemm_ns(PackedMatrix const& w, int64_t rows) const;
  int64_t gemm_pieces(PackedMatrix const& w, int64_t rows) const;
  // Spreads rows of `width` elements over the threads if there are enough rows.
  template <typename Body>
  void share_rows(int64_t rows, int64_t width, Body const& body) {
    constexpr double kElementNs = 0.7;  // time per element of a norm that writes groups
    pool_.run(rows, grain(rows, kElementNs * double(rows) * double(width)), body);
  }
  int64_t pieces(double total_ns) const;
  int64_t grain(int64_t count, double total_ns) const;

  Model const& model_;
  Kernels const& kernels_;
  bunting_engine_limits limits_;
  int64_t hidden_stride_, normed_stride_, attended_stride_, activated_stride_;  // elements
  KvMemory pages_;
  StateMemory states_;
  MemoryRegion work_region_;
  Workspace work_;
  // Plans, one per distinct attention shape of the layers, and the index of each layer's plan.
  std::vector<AttentionPlan> attention_plans_;
  std::vector<size_t> plan_of_layer_;
  int32_t draws_ = 0;
  // Row of the head from which it drafts: of a chunk's last draw, then of each drafted token.
  struct HeadRow {
    int32_t token_row;  // in x
    int32_t position;
    int32_t pages;  // number of the chunk's pages
    int32_t const* page;
    int32_t wanted;    // number of drafts
    uint32_t* drafts;  // in the result: their count, then pairs
  };
  std::vector<HeadRow> head_rows_;
  std::vector<RightDraw> right_draws_;  // [S]
  std::vector<int32_t> head_tokens_;    // [T] token after each
  StepPlan head_plan_;                  // one token per drafting sequence
  ExpertPlan expert_plan_;
  // True if the rows that a GEMM multiplies, or the activated rows in the MLP, have outliers.
  std::atomic<bool> has_outliers_{false}, activated_has_outliers_{false};
  ThreadPool& pool_;
  LowRank low_rank_;
};

}  // namespace bunting
