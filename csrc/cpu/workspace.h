// workspace.h - where a step's numbers lie between its kernels.
#pragma once

#include <vector>

#include "cpu/attention_plan.h"
#include "cpu/kernels/kernels.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting {

// Activations of a step, one row per token. Strides are whole panels (f32) or the next GEMM's padded K
// (operands).
struct Workspace {
  float* x = nullptr;      // [T, round_up(H, 16)]
  char* normed = nullptr;  // [T, kp(H)] operand
  float* qkv = nullptr;    // [T, Nqkv]
  struct Angles {
    float *cos = nullptr, *sin = nullptr;  // [T, R/2]
  };
  std::vector<Angles> angles;  // of each rope
  char* attended = nullptr;    // [T, kp(Hq D)] operand; columns beyond Hq D stay zero
  float* delta = nullptr;      // [T, round_up(H, 16)] what is added to x, where the product cannot
  float* both = nullptr;       // likewise: the sum of an MLP and experts beside each other
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

// How a layer attends.
AttentionShape attention_shape(Model const& model, int32_t layer);
// Bytes of a thread's scratch memory.
size_t attention_scratch(Model const& model);
size_t sample_scratch(Model const& model);

}  // namespace bunting
