// forward.h - one step of the transformer on a GPU: what csrc/cpu/forward.h is on the CPU, with the kernels
// of kernels/.
//
//   page copies; x = embed(ids); per layer: norm, q|k|v, rotate and append, attention, + Wo, norm, gate|up,
//   activation, + Wdown; then for the wanted rows the norm, and for those
//   to draw from logits and the draw
//
// Which norms, biases, scales and caps there are is told by the layer's shape (engine.h). Between the norm
// and what is added, a layer with experts has: router, choice, groups, gate|up of the experts' rows,
// activation, Wdown of them, sums of each token; a step reads each expert that any token uses once. Layers
// with inputs of their own end with two products more.
//
// What a layer's products add to the residual stream, the next norm adds. After its attention the last layer
// goes on with the wanted rows alone. A step is few copies to the device, the kernels of one stream, and
// results that the last kernel writes into host memory.
#pragma once

#include <memory>
#include <vector>

#include "boundary/step_block.h"
#include "cuda/activations.h"
#include "cuda/cublaslt.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kv_memory.h"
#include "cuda/runtime.h"
#include "cuda/step_arrays.h"
#include "cuda/weights.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting::cuda {

// What there is, for bunting_device_probe. Throws BUNTING_INVALID.
bunting_device probe_device(int32_t index);

// How long a step may take before its device counts as hanging: the usual time, and what the slowest GPUs
// would need for its arithmetic ten times over. So a long chunk far out in a long context is no hang.
double step_deadline_ms(Model const& model, StepPlan const& plan);

// A step of at most `tokens` decodes as one launch.
struct DecodeGraph {
  int32_t tokens;
  StepArrays::Sizes sizes;  // of what is before the pages
  Graph graph;
};

class Forward {
 public:
  // Takes all the memory there will be: weights, pages, workspaces. Throws BUNTING_INVALID,
  // BUNTING_NO_MEMORY.
  Forward(Model const& model, bunting_engine_limits const& limits);

  // Bytes besides pages and weights.
  static uint64_t workspace_bytes(Model const& model, bunting_engine_limits const& limits);

  // Computes a step and writes `result` (engine.h). Throws BUNTING_LOST when the device does not come back.
  void run(StepPlan const& plan, void* result);

  // Of the last step: how many rows it drew from, and their logits [draws, V], which this fetches from the
  // device.
  int32_t draws() const { return draws_; }
  float const* logits() const;

 private:
  // The graph for a step of decodes alone; null: the step is queued kernel by kernel.
  DecodeGraph const* graph_of(StepPlan const& plan) const;
  void record_graphs();
  void draw(int32_t draws);
  void wait(double deadline_ms) const;  // for the stream; throws BUNTING_LOST when it does not end

  // The rest is in layers.cpp.

  // All but drawing, for the first tokens and rows of the arrays, of which the first `draws` are drawn from.
  void queue_layers(int32_t tokens, int32_t rows, int32_t draws);
  void make_layer_inputs(int32_t tokens);
  void project_and_append(int32_t layer, int32_t tokens);
  void attend(int32_t layer);
  // What waits to be added to the residual stream, and what becomes of the sum: see AddNorm.
  struct Pending {
    float const* delta = nullptr;  // [T, H]
    float const* norm = nullptr;
    float delta_scale = 1, sum_scale = 1;
  };
  // What follows a layer's attention; `is_last`: x has the wanted rows alone.
  Pending finish_layer(int32_t layer, float* x, bf16 const* attended, int32_t tokens, bool is_last);
  Pending mix_both(int32_t layer, float* x, Pending const& of_attention, int32_t tokens, bool is_last);
  float const* mix_experts(DeviceLayer const& layer, int32_t tokens, bool is_last);
  float const* use_input(int32_t layer, int32_t tokens, bool is_last);
  // A gated MLP of act_.normed.
  float const* multiply_gated(GatedWeights const& mlp, int32_t tokens, int32_t width);
  // A product into act_.delta.
  float const* project_back(bf16 const* x, WeightMatrix const& w, float const* bias, int32_t tokens,
                            int32_t k);
  void multiply(Gemm g);
  void multiply_experts(Gemm g);
  // Adds to x what is pending; act_.normed becomes norm(x).
  void normalise(float* x, Pending const& pending, float const* weight, int32_t tokens,
                 float* exact = nullptr);
  // The same with y and `exact` of AddNorm, either of which may be null.
  void add_and_norm(float* x, Pending const& pending, float const* weight, int32_t tokens, bf16* y,
                    float* exact);

  Model const& model_;
  bunting_engine_limits limits_;
  int32_t blocks_;                      // of attention
  std::unique_ptr<CublasLt> cublaslt_;  // if it was asked for
  DeviceWeights weights_;
  KvMemory pages_;
  DeviceMemory work_;
  StepInputs inputs_;
  MappedMemory results_;
  MappedMemory hidden_;  // [step_hidden_max, H] bf16
  Activations act_;
  mutable Stream stream_;
  bool is_recording_ = false;

  std::vector<DecodeGraph> graphs_;  // by rising tokens
  int32_t draws_ = 0;
  mutable std::vector<float> logits_;
};

}  // namespace bunting::cuda
