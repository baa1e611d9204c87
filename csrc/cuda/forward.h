// forward.h - one step of the transformer on a GPU, with the kernels of kernels/; csrc/cpu/forward.h is the
// CPU's.
//
//   page copies; x = embed(ids); per layer: norm, q|k|v, rotate and append, attention, + Wo, norm, gate|up,
//   activation, + Wdown; a recurrent layer has its mixer in place of attention; then for the requested rows
//   the norm, and for those to draw from logits and the draw
//
// The layer's shape (engine.h) says which norms, biases, scales and caps exist. In a layer with experts the
// MLP is: router, choice, grouping, gate|up of the experts' rows, activation, their Wdown, sums per token. A
// step reads each expert in use once. Layers with per-layer inputs end with two more products.
//
// The next norm kernel adds the pending outputs of a layer to the residual stream. After its attention the
// last layer computes only the requested rows. A step is a few copies to the device and the kernels of one
// stream. The last kernel writes the results into host memory.
#pragma once

#include <memory>
#include <vector>

#include "boundary/step_block.h"
#include "cuda/activations.h"
#include "cuda/cublaslt.h"
#include "cuda/host_places.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kv_memory.h"
#include "cuda/runtime.h"
#include "cuda/state_memory.h"
#include "cuda/step_arrays.h"
#include "cuda/weights.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting::cuda {

// Describes GPU `index` for bunting_device_probe. Throws BUNTING_INVALID.
bunting_device probe_device(int32_t index);

// Returns the time after which a step counts as hung: the usual deadline plus ten times the arithmetic time
// of the slowest GPUs. So a long chunk at a late position in a long context does not count as hung.
double step_deadline_ms(Model const& model, StepPlan const& plan);

// Recorded step of at most `tokens` decodes, run as one launch.
struct DecodeGraph {
  int32_t tokens;
  StepArrays::Sizes sizes;  // sizes of the arrays before the pages
  Graph graph;
};

class Forward {
 public:
  // Allocates all device memory: weights, pages, workspaces. Throws as DeviceWeights does.
  Forward(Model const& model, bunting_engine_limits const& limits, bunting_progress progress = nullptr);

  // Bytes of device memory besides pages and weights.
  static uint64_t workspace_bytes(Model const& model, bunting_engine_limits const& limits);
  // Bytes of the host's memory at most: while the weights are on their way, and for what steps exchange.
  static uint64_t host_bytes(Model const& model, bunting_engine_limits const& limits);

  // Computes a step and writes `result` (engine.h). Throws BUNTING_LOST if the device does not finish in
  // time.
  void run(StepPlan const& plan, void* result);

  // Number of rows that the last step drew from, and their logits [draws, V], which logits() copies from the
  // device.
  int32_t draws() const { return draws_; }
  float const* logits() const;
  // KV pages and state slots; another thread may copy those that no step in flight uses.
  KvMemory& pages() { return pages_; }
  StateMemory& states() { return states_; }
  // Host memory for offloaded pages and states; empty until open_places().
  HostPlaces const& places() const { return places_; }
  // Throws BUNTING_NO_MEMORY.
  void open_places(int32_t count);

 private:
  // Returns the graph for a decode-only step; null: the engine queues the step kernel by kernel.
  DecodeGraph const* graph_of(StepPlan const& plan) const;
  // Records decode steps; without graphs, if the driver cannot, steps are queued kernel by kernel.
  void record_graphs();
  void record_each();
  // Queues the draws of rows [begin, end).
  void draw(int32_t begin, int32_t end);
  void wait(double deadline_ms) const;  // waits for the stream; throws BUNTING_LOST if it does not finish

  // layers.cpp defines the following functions.

  // Queues all kernels but drawing, for the first tokens and rows of the arrays; the first `draws` rows are
  // drawn from.
  void queue_layers(int32_t tokens, int32_t chunks, int32_t rows, int32_t draws);
  void make_layer_inputs(int32_t tokens);
  void project_and_append(int32_t layer, int32_t tokens);
  void attend(int32_t layer, int32_t tokens);
  int64_t attended_width(int32_t layer) const;
  // latents.cpp defines these: the same for a latent layer; and the heads' outputs from their latents.
  void project_and_append_latents(int32_t layer, int32_t tokens);
  void attend_to_latents(int32_t layer, int32_t tokens);
  bf16 const* turn_from_latents(int32_t layer, bf16 const* attended, int32_t tokens);
  // Result that still has to be added to the residual stream, and its scales: see AddNorm.
  struct Pending {
    float const* delta = nullptr;  // [T, H]
    float const* norm = nullptr;
    float delta_scale = 1, sum_scale = 1;
  };
  // Outputs of a layer's attention and recurrent mixer, before O; null: the layer has none.
  struct Mixed {
    bf16 const* attended = nullptr;   // [T, Hq D]
    bf16 const* recurrent = nullptr;  // [T, Gv Dv]
  };
  // Queues a layer from the projections by O on. `is_last`: x has only the requested rows.
  Pending finish_layer(int32_t layer, float* x, Mixed const& mixed, int32_t tokens, bool is_last);
  Pending finish_mixer(int32_t layer, float* x, Mixed const& mixed, int32_t tokens);
  Pending mix_both(int32_t layer, float* x, Pending const& of_mixer, int32_t tokens, bool is_last);
  // `shared` [T, H] and its `gates` [T], or null, are added to the experts' sum.
  float const* mix_experts(DeviceLayer const& layer, int32_t tokens, bool is_last,
                           float const* shared = nullptr, float const* gates = nullptr);
  float const* mix_shared(int32_t index, int32_t tokens, bool is_last);
  float const* use_input(int32_t layer, int32_t tokens, bool is_last);
  // Queues the activations of a gated MLP of act_.normed; and all of the MLP; and all of a plain one.
  void activate(GatedWeights const& mlp, int32_t tokens, int32_t width);
  float const* multiply_gated(GatedWeights const& mlp, int32_t tokens, int32_t width);
  float const* multiply_plain(DeviceLayer const& layer, int32_t tokens, int32_t width);
  // Queues a product into act_.delta.
  float const* project_back(bf16 const* x, WeightMatrix const& w, float const* bias, int32_t tokens,
                            int32_t k);
  void multiply(Gemm g);
  void multiply_experts(Gemm g);
  // Adds the pending result to x and writes norm(x) to act_.normed.
  void normalise(float* x, Pending const& pending, float const* weight, int32_t tokens,
                 float* exact = nullptr);
  // Does the same with y and `exact` of AddNorm, either of which may be null.
  void add_and_norm(float* x, Pending const& pending, float const* weight, int32_t tokens, bf16* y,
                    float* exact);

  // recurrent_layers.cpp defines the next ones.

  // Queues the recurrent mixer of a layer from act_.normed and act_.router_input to act_.mixed.
  void mix_states(int32_t layer, int32_t tokens, int32_t chunks);
  void mix_short(int32_t layer, StateStep const& step);

  Model const& model_;
  bunting_engine_limits limits_;
  int32_t blocks_;                      // blocks of attention
  std::unique_ptr<CublasLt> cublaslt_;  // null unless --gemm selects it
  DeviceWeights weights_;
  HostPlaces places_;
  KvMemory pages_;
  StateMemory states_;
  DeviceMemory work_;
  StepInputs inputs_;
  MappedMemory results_;
  MappedMemory hidden_;  // [step_hidden_max, H] bf16
  Activations act_;
  mutable Stream stream_;
  bool is_recording_ = false;

  std::vector<DecodeGraph> graphs_;  // by rising number of tokens
  int32_t draws_ = 0;
  mutable std::vector<float> logits_;
};

}  // namespace bunting::cuda
