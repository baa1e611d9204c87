// workspace.h - buffers of a step's activations between its kernels.
#pragma once

#include <vector>

#include "cpu/attention_plan.h"
#include "cpu/kernels/kernels.h"
#include "host/memory_region.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting {

// Activation buffers of a step, one row per token. Strides are whole panels (f32) or the next GEMM's padded K
// (operands).
struct Workspace {
  float* x = nullptr;      // [T, round_up(H, 16)]
  char* normed = nullptr;  // [T, kp(H)] operand
  float* qkv = nullptr;    // [T, Nqkv]
  struct Angles {
    float *cos = nullptr, *sin = nullptr;  // [T, R/2]
  };
  std::vector<Angles> angles;  // one per rope
  char* attended = nullptr;    // [T, kp(Hq D)] operand; columns beyond Hq D stay zero
  float* delta = nullptr;      // [T, round_up(H, 16)] result to add to x, if the GEMM cannot add it
  float* both = nullptr;       // as delta: the MLP beside experts, or the sum of both
  // Buffers of per-layer inputs: all inputs of a token [T, layers P]; the gate of one, beside it [T, 2 P];
  // their product, an operand [T, kp(P)].
  float* layer_inputs = nullptr;
  float* layer_projections = nullptr;  // [T, layers P] projections to add to the inputs
  float* input_gates = nullptr;
  char* gated_inputs = nullptr;
  // Buffers of latent layers, R the rope's dimensions: the projections to latents [T, query_rank +
  // latent_rank
  // + R]; queries [T, Hq (key_size + R)] and later the heads' outputs [T, Hq value_size]; the normed latent
  // of queries, an operand; the unrotated parts of queries (LatentAppend::nope); the heads' outputs, an
  // operand.
  float* latents = nullptr;
  float* heads = nullptr;
  char* query_latents = nullptr;
  char* nope = nullptr;
  char* mixed = nullptr;
  // Buffers of several residual streams [A T, round_up(H, 16)], of LAuReL [T, round_up(H, 16)], its first
  // product [T, R] and the same as an operand; and of sparse gates [kSparseRows, 2 Fp].
  float* streams = nullptr;
  float* laurel = nullptr;
  float* laurel_ranks = nullptr;
  char* laurel_operand = nullptr;
  float* sparse_gates = nullptr;
  float* gate_up = nullptr;   // [threads] of kGateScratch
  char* activated = nullptr;  // [T, kp(F)] operand
  // Operands of GEMMs with grouped weights, if there are any: [T, widest / kGroup]; and likewise the
  // activated rows of the MLP.
  InputGroup* groups = nullptr;
  InputGroup* activated_groups = nullptr;
  // Buffers of layers with experts: norm(x) for the router [T, row_stride(H)]; its logits [T, E]; each pair's
  // row of norm(x) and its activated row [T k]; scratch memory [threads] of kExpertScratch.
  float* router_input = nullptr;
  float* router_logits = nullptr;
  float* shared_gates = nullptr;  // [T] logits of the gate of shared experts
  char* expert_input = nullptr;
  char* expert_activated = nullptr;
  float* expert_scratch = nullptr;
  // Buffers of recurrent mixers: projections of q, k, v, z [T, state_in_width]; of a and b [T, 2
  // state_b_row]; numbers of StateMixer; outputs [T, round_up(Gv Dv, 16)], and as an operand [T, kp(Gv Dv)];
  // and per layer the convolution's weights [K, channels].
  float *state_in = nullptr, *state_gates = nullptr, *state_decay = nullptr, *state_write = nullptr;
  float *state_products = nullptr, *state_out = nullptr;
  char* state_mixed = nullptr;
  std::vector<float*> state_conv;
  float* q_gates = nullptr;  // [T, Hq D] gates of the attention's output
  float* logits = nullptr;   // [draws, V]; physical memory is used only for the most draws of any step so far
  // Buffers of a head: the hidden states that it reads [T, round_up(H, 16)]; its input, the normed embedding
  // and hidden state [T, 2 H], and the same as an operand; its logits [S, V].
  float* head_hidden = nullptr;
  float* head_input = nullptr;
  char* head_operand = nullptr;
  float* head_logits = nullptr;
  float* attention_states = nullptr;  // [S, Hq] of attention_state_floats(D)
  float* attention_parts = nullptr;   // [AttentionPlan::part_rows()] of attention_sums_floats(D)
  char* attention_scratch = nullptr;  // [threads] of attention_scratch_bytes()
  char* sample_scratch = nullptr;     // [threads] of sample_scratch_bytes()

  // Lays out the buffers from `base` on and returns their bytes; with a null base it only measures.
  size_t place(Model const& model, bunting_engine_limits const& limits, char* base);

 private:
  void place_states(Model const& model, size_t tokens, Carver& carver);
};

// Numbers per token in the buffers of latent layers.
struct LatentWidths {
  int64_t latents, queries, nope_of_head, nope, mixed;
  explicit LatentWidths(Model const& model);
};
// Rows of an MLP with sparse gates that are computed at a time.
inline constexpr int64_t kSparseRows = 64;

// Attention shape of a layer.
AttentionShape attention_shape(Model const& model, int32_t layer);
// Bytes of one thread's scratch memory.
size_t attention_scratch(Model const& model);
size_t sample_scratch(Model const& model);

}  // namespace bunting
