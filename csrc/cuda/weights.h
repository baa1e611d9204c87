// weights.h - a sealed model's weights on the device. Matrices are rows of bf16, of integers in groups as on
// the host, or rounded to fp8 (quantise.h). The embedding table is always bf16; vectors are f32.
//
// An engine makes them when it opens, from the model's files or from packed weights in memory, piece by
// piece: read, packed on all threads, put in the kernels' order, and copied while the next piece is packed.
// It does not read them afterwards.
#pragma once

#include <vector>

#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"
#include "model/model.h"

namespace bunting::cuda {

class Uploader;

// Refuses a model that the kernels cannot compute, with a sentence.
void check_shape(Model const& model);

// Gated MLP, or the experts of a layer, one after the other. Vectors that a layer does not have are null,
// here and below. A plain MLP has only up: [F, H].
struct GatedWeights {
  WeightMatrix gate_up{nullptr};        // [2 F, H]: gate, then up
  float const* gate_up_bias = nullptr;  // [2 F]
  WeightMatrix down{nullptr};           // [H, F]
  float const* down_bias = nullptr;     // [H]
};

// Recurrent mixer. A matrix that a mixer does not have, as z or gates of a short convolution, has no data.
struct StateWeights {
  WeightMatrix in{nullptr};      // [channels, H] rows of q, k and v, or those of z behind them
  WeightMatrix z{nullptr};       // [Gv Dv, H] in another format than q, k and v
  WeightMatrix o{nullptr};       // [H, Gv Dv]
  float const* gates = nullptr;  // [Gv, H] or [2 Gv, H]: a, then b
  float const* conv = nullptr;   // [K, channels]; this and the next ones: see StateConv and StateScan
  float const* conv_bias = nullptr;
  float const* dt_bias = nullptr;
  float const* rates = nullptr;
  float const* skip = nullptr;
  float const* norm = nullptr;  // [Dv] or [Gv Dv]
};

// Norms of x are [H], or [2 H] with their biases behind them.
struct DeviceLayer {
  float const* attention_norm = nullptr;  // [H]
  WeightMatrix qkv{nullptr};              // [(Hq + 2 Hk) D, H], without parts that the layer lacks
  float const* qkv_bias = nullptr;        // [(Hq + 2 Hk) D]
  // Matrices of a latent layer, whose qkv is Q alone.
  WeightMatrix query_latent{nullptr};                           // [query_rank, H]
  WeightMatrix key{nullptr};                                    // [D, H]
  bf16 const *latent_keys = nullptr, *latent_values = nullptr;  // [Hq latent_rank, key_size], and back
  float const* q_norm = nullptr;                                // [D] or [Hq D]
  float const* k_norm = nullptr;                                // [D] or [Hk D]
  float const* sinks = nullptr;                                 // [Hq]
  WeightMatrix o{nullptr};                                      // [H, Hq D]
  float const* o_bias = nullptr;                                // [H]
  WeightMatrix q_gate{nullptr};                                 // [Hq D, H]
  StateWeights state;
  float const* attention_post_norm = nullptr;  // [H]
  float const* mlp_norm = nullptr;             // [H]
  float const* router = nullptr;               // [E, H], in layers with experts
  float const* router_bias = nullptr;          // [E]
  float const* choice_bias = nullptr;          // [E]
  float const* shared_gate = nullptr;          // [1, H]
  GatedWeights mlp;
  float const* mlp_post_norm = nullptr;  // [H]
  // Parts of an MLP beside experts, and the norms around both; see LayerWeights.
  GatedWeights beside;
  float const *beside_post_norm = nullptr, *experts_norm = nullptr, *experts_post_norm = nullptr,
              *router_norm = nullptr;      // [H]
  float const* expert_scales = nullptr;    // [E]
  WeightMatrix input_gate{nullptr};        // [P, H], with per-layer inputs
  WeightMatrix input_out{nullptr};         // [H, P]
  float const* input_post_norm = nullptr;  // [H]
  float scale = 1;                         // factor of x at the end of the layer
  Xielu xielu;
};

class DeviceWeights {
 public:
  // Throws BUNTING_INVALID for a shape that the kernels do not support or a weight that is not finite,
  // BUNTING_NO_MEMORY, or BUNTING_IO for a file. Calls `progress`, unless null, after every piece.
  explicit DeviceWeights(Model const& model, bunting_progress progress = nullptr);

  // Bytes of device memory.
  static size_t bytes(Model const& model);
  // Bytes of the host's memory, at most, that the constructor uses besides the system's file cache. They
  // depend on the widths of the matrices and the number of threads.
  static size_t host_bytes(Model const& model);
  // Bytes that it used.
  size_t host_bytes_used() const { return host_bytes_used_; }
  DeviceMemory const& memory() const { return memory_; }

  DeviceLayer const& layer(int32_t index) const { return layers_[size_t(index)]; }
  bf16 const* embedding() const { return embedding_; }                                  // [V, H]
  WeightMatrix const& vocabulary_projection() const { return vocabulary_projection_; }  // [V, H]
  RopeTable const& rope(int32_t index) const { return ropes_[size_t(index)]; }
  float const* final_norm() const { return final_norm_; }  // [H], times the logit scale
  // Weights of per-layer inputs, else null.
  bf16 const* layer_embedding() const { return layer_embedding_; }            // [V, L P]
  WeightMatrix const& layer_projection() const { return layer_projection_; }  // [L P, H]
  float const* layer_input_norm() const { return layer_input_norm_; }         // [P]

 private:
  DeviceWeights() = default;  // for measuring
  void place(Model const& model, Uploader& uploader);
  void place_latents(Model const& model, int32_t layer, Uploader& uploader);
  void place_mlp(Model const& model, int32_t layer, Uploader& uploader);
  void place_beside(Model const& model, int32_t layer, Uploader& uploader);
  void place_attention(Model const& model, int32_t layer, Uploader& uploader);
  void place_state(Model const& model, int32_t layer, Uploader& uploader);
  void place_ropes(Model const& model, Uploader& uploader);

  DeviceMemory memory_;
  size_t host_bytes_used_ = 0;
  std::vector<DeviceLayer> layers_;
  std::vector<RopeTable> ropes_;  // on the device
  bf16 const* embedding_ = nullptr;
  WeightMatrix vocabulary_projection_{nullptr};
  float const* final_norm_ = nullptr;
  bf16 const* layer_embedding_ = nullptr;
  WeightMatrix layer_projection_{nullptr};
  float const* layer_input_norm_ = nullptr;
};

}  // namespace bunting::cuda
