// activations.h - device buffers of a step's activations between its kernels.
#pragma once

#include <vector>

#include "cuda/kernels/kernels.h"
#include "host/memory_region.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting::cuda {

// Activation buffers of a step. Layer-dependent sizes are those of the widest layer.
struct Activations {
  float* x = nullptr;         // [T, H] the residual stream
  float* wanted_x = nullptr;  // [rows, H]
  float* delta = nullptr;     // [T, H]
  float* both = nullptr;      // [T, H] MLP beside experts, or its sum with them
  bf16* normed = nullptr;     // [T, H]
  float* qkv = nullptr;       // [T, (Hq + 2 Hk) D]; [T, Hq (key_size + R)] of latent layers
  struct Angles {
    float *cos = nullptr, *sin = nullptr;  // [T, R/2]
  };
  std::vector<Angles> angles;       // one per rope
  bf16* q = nullptr;                // [T, Hq D]
  bf16* attended = nullptr;         // [T, Hq D]
  bf16* wanted_attended = nullptr;  // [rows, Hq D]
  float* q_gates = nullptr;         // [T, Hq D] gates of the attention's output
  // Buffers of recurrent mixers.
  float* state_in = nullptr;     // [T, ..] projections of q, k and v, and of z if they are one matrix
  float* state_z = nullptr;      // [T, Gv Dv] projections of z if not
  float* state_gates = nullptr;  // [T, 2 Gv] projections of a and b
  float* state_conv = nullptr;   // [T, channels]; this and the next three: see StateConv and StateScan
  float* state_decay = nullptr;
  float* state_factor = nullptr;
  float* state_out = nullptr;    // [T, Gv Dv]
  bf16* mixed = nullptr;         // [T, Gv Dv] the mixer's output
  bf16* wanted_mixed = nullptr;  // [rows, Gv Dv]
  // Buffers of latent layers.
  float* query_latents = nullptr;  // [T, query_rank]
  bf16* normed_latents = nullptr;  // [T, query_rank]
  float* key = nullptr;            // [T, D]
  bf16* nope = nullptr;            // [T, Hq key_size]
  bf16* head_outputs = nullptr;    // [T, Hq value_size]
  float* gate_up = nullptr;        // [T, 2 F], or [T k, 2 Fe]
  bf16* activated = nullptr;       // [T, F], or [T k, Fe]
  // Buffers of models with per-layer inputs.
  float* layer_inputs = nullptr;       // [T, L P]
  float* layer_projections = nullptr;  // [T, L P] projections to add to the inputs
  // Buffers of layers with experts.
  float* router_input = nullptr;   // [T, H] normed in f32; recurrent layers have it too
  float* router_logits = nullptr;  // [T, E]
  float* shared_gates = nullptr;   // [T]
  int32_t* chosen = nullptr;       // [T, k]; this and the next ones: see ChooseExperts and GroupExperts
  float* expert_weights = nullptr;
  int32_t* expert_row = nullptr;
  int32_t* expert_pair = nullptr;
  int32_t* expert_begin = nullptr;  // [E + 1]
  bf16* expert_input = nullptr;     // [T k, H]
  float* expert_output = nullptr;   // [T k, H]
  float* logits = nullptr;          // [draws, V]
  float* changed = nullptr;         // [draws, V]
  float* partial_out = nullptr;     // see Attention
  float* partial_log = nullptr;
  float* running = nullptr;
  int32_t* arrived = nullptr;
  float* gemm_partial = nullptr;  // see Gemm
  int32_t* gemm_arrived = nullptr;

  // Lays out the buffers from `base` on and returns their bytes; with a null base it only measures.
  size_t place(Model const& model, bunting_engine_limits const& limits, int32_t attention_blocks, char* base);

 private:
  void place_states(Model const& model, size_t tokens, size_t rows, Carver& carver);
};

}  // namespace bunting::cuda
