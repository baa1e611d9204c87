// weights.h - a sealed model's weights on the device: matrices as rows, of bf16, of integers in groups where
// the host has those, or rounded to fp8 (quantise.h); the table of embeddings always in bf16; vectors as f32.
//
// Made from the host's packed weights when an engine opens, and not looking at them afterwards.
#pragma once

#include <vector>

#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"
#include "model/model.h"

namespace bunting::cuda {

struct DeviceLayer {
  float const* attention_norm = nullptr;  // [H]
  WeightMatrix qkv{nullptr};              // [(Hq + 2 Hk) D, H]
  float const* qkv_bias = nullptr;        // [(Hq + 2 Hk) D] or null
  float const* q_norm = nullptr;          // [D] or null
  float const* k_norm = nullptr;          // [D] or null
  WeightMatrix o{nullptr};                // [H, Hq D]
  float const* mlp_norm = nullptr;        // [H]
  WeightMatrix gate_up{nullptr};          // [2 F, H]: gate, then up
  WeightMatrix down{nullptr};             // [H, F]
};

class DeviceWeights {
 public:
  // Throws BUNTING_INVALID for a shape that the kernels do not take, BUNTING_NO_MEMORY.
  explicit DeviceWeights(Model const& model);

  // Bytes on the device.
  static size_t bytes(Model const& model);

  DeviceLayer const& layer(int32_t index) const { return layers_[size_t(index)]; }
  bf16 const* embedding() const { return embedding_; }                                  // [V, H]
  WeightMatrix const& vocabulary_projection() const { return vocabulary_projection_; }  // [V, H]
  float const* final_norm() const { return final_norm_; }                               // [H]
  float const* rope_cos() const { return rope_cos_; }                                   // [context_max, D/2]
  float const* rope_sin() const { return rope_sin_; }

 private:
  class Uploader;
  DeviceWeights() = default;  // to measure
  void place(Model const& model, Uploader& uploader);

  DeviceMemory memory_;
  std::vector<DeviceLayer> layers_;
  bf16 const* embedding_ = nullptr;
  WeightMatrix vocabulary_projection_{nullptr};
  float const* final_norm_ = nullptr;
  float const* rope_cos_ = nullptr;
  float const* rope_sin_ = nullptr;
};

}  // namespace bunting::cuda
