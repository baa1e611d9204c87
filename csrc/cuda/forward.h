// forward.h - one step of the transformer on a GPU: what csrc/cpu/forward.h is on the CPU, with the kernels
// of kernels/.
//
//   page copies; x = embed(ids); per layer: norm, q|k|v, rotate and append, attention, + Wo, norm, gate|up,
//   activation, + Wdown; then for the wanted rows the norm, and for those
//   to draw from logits and the draw
//
// Which norms, biases, scales and caps there are is told by the layer's shape (engine.h). Between the norm
// and what is added, a layer with experts has: router, choice, groups, gate|up of the experts' rows,
// activation, Wdown of them, sums of each token; a step reads each expert that any token uses once.
//
// What a layer's products add to the residual stream, the next norm adds. After its attention the last layer
// goes on with the wanted rows alone. A step is few copies to the device, the kernels of one stream, and
// results that the last kernel writes into host memory.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "boundary/step_block.h"
#include "cuda/attention_plan.h"
#include "cuda/cublaslt.h"
#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"
#include "cuda/weights.h"
#include "include/engine.h"
#include "model/model.h"

namespace bunting::cuda {

// Attention of a step is planned for layers without a window, and once more, if there are both, for those
// with one: for the widest, narrower ones mask what it covers beyond.
inline constexpr int32_t kPlansMax = 2;

// What the host tells the device about one step: arrays in one block of memory, written on the host, copied
// at once. Up to `pages`, places depend on the sizes of what is before alone.
struct StepArrays {
  // How many there are of each kind.
  struct Sizes {
    size_t tokens, pages, rows, draws, copies, blocks, pairs_of_heads, sample_pairs, mask_words;
    struct {
      size_t items, merge_rows;
    } plan[kPlansMax];
  };
  // A plan of attention (attention_plan.h).
  struct Plan {
    AttentionItem* items = nullptr;
    int32_t* item_begin = nullptr;
    int32_t* merge_begin = nullptr;
    int32_t* merge_rows = nullptr;
  };
  int32_t* tokens = nullptr;     // [T]
  int32_t* positions = nullptr;  // [T]
  int32_t* slots = nullptr;      // [T] page * Tp + slot
  int32_t* wanted = nullptr;     // [rows] token rows: those to draw from, then those of hidden states
  Plan plan[kPlansMax];
  int32_t* pages = nullptr;  // page ids, chunk after chunk
  PageCopy* copies = nullptr;
  uint32_t* draws = nullptr;  // [draws, BUNTING_ROW_WORDS]
  int32_t* pairs = nullptr;   // biases and seen tokens
  uint32_t* masks = nullptr;  // ceil(V / 32) words for each row that has one

  // Lays the arrays out from `base` on and returns the bytes; with a null base it only measures. `plans`: how
  // many there are.
  size_t place(Sizes const& sizes, int32_t plans, char* base);
};

// Activations of a step.
struct Activations {
  float* x = nullptr;               // [T, H] the residual stream
  float* wanted_x = nullptr;        // [rows, H]
  float* delta = nullptr;           // [T, H]
  bf16* normed = nullptr;           // [T, H]
  float* qkv = nullptr;             // [T, (Hq + 2 Hk) D]
  bf16* q = nullptr;                // [T, Hq D]
  bf16* attended = nullptr;         // [T, Hq D]
  bf16* wanted_attended = nullptr;  // [rows, Hq D]
  float* gate_up = nullptr;         // [T, 2 F], or [T k, 2 Fe]
  bf16* activated = nullptr;        // [T, F], or [T k, Fe]
  // Of layers with experts.
  float* router_input = nullptr;    // [T, H] normed, not rounded
  float* router_logits = nullptr;   // [T, E]
  int32_t* chosen = nullptr;        // [T, k], as the next ones; see ChooseExperts and GroupExperts
  float* expert_weights = nullptr;  //
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

  size_t place(Model const& model, bunting_engine_limits const& limits, int32_t attention_blocks, char* base);
};

// What there is, for bunting_device_probe. Throws BUNTING_INVALID.
bunting_device probe_device(int32_t index);

// How long a step may take before its device counts as hanging: the usual time, and what the slowest GPUs
// would need for its arithmetic ten times over. So a long chunk far out in a long context is no hang.
double step_deadline_ms(Model const& model, StepPlan const& plan);

// A step of at most `tokens` decodes as one launch. What is missing in a step is token 0, whose keys and
// values go nowhere; it attends to nothing and is not drawn from.
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
  // Bytes of the arrays.
  struct Part {
    size_t begin = 0, bytes = 0;
  };
  // Writes what the device is told, as `graph` wants it if there is one, and returns what to copy: of a
  // graph, whose places are those of the largest step that it is for, less than lies there.
  std::array<Part, 1 + 2 * kPlansMax> write_arrays(StepPlan const& plan, DecodeGraph const* graph);
  void write_rows(StepPlan const& plan);
  // All but drawing, for the first tokens and rows of the arrays, of which the first `draws` are drawn from.
  void queue_layers(int32_t tokens, int32_t rows, int32_t draws);
  void draw(int32_t draws);
  // The graph for a step of decodes alone; null: the step is queued kernel by kernel.
  DecodeGraph const* graph_of(StepPlan const& plan) const;
  void record_graphs();
  void attend(int32_t layer);
  // What waits to be added to the residual stream: [T, H], and the norm that it goes through, if any.
  struct Pending {
    float const* delta = nullptr;
    float const* norm = nullptr;
  };
  // What follows a layer's attention; `is_last`: x has the rows to sample alone.
  Pending finish_layer(int32_t layer, float* x, bf16 const* attended, int32_t tokens, bool is_last);
  float const* mix_experts(DeviceLayer const& layer, int32_t tokens, bool is_last);
  // A product into act_.delta.
  float const* project_back(bf16 const* x, WeightMatrix const& w, float const* bias, int32_t tokens,
                            int32_t k);
  void multiply(Gemm g);
  void multiply_experts(Gemm g);
  // Adds to x what is pending; act_.normed becomes norm(x).
  void normalise(float* x, Pending const& pending, float const* weight, int32_t tokens,
                 float* exact = nullptr);
  void add(float* x, Pending const& pending, int32_t tokens);
  bool is_fp8() const { return model_.shape().kv == BUNTING_KV_FP8; }  // keys and values
  KvPages kv_layer(int32_t layer) const;
  void wait(double deadline_ms) const;  // for the stream; throws BUNTING_LOST when it does not end

  Model const& model_;
  bunting_engine_limits limits_;
  int32_t blocks_;                      // of attention
  std::unique_ptr<CublasLt> cublaslt_;  // if it was asked for
  DeviceWeights weights_;
  DeviceMemory pages_;
  DeviceMemory work_, device_arrays_;
  MappedMemory host_arrays_, results_;
  MappedMemory hidden_;  // [step_hidden_max, H] bf16
  Activations act_;
  StepArrays host_, device_;
  mutable Stream stream_;
  bool is_recording_ = false;

  std::vector<DecodeGraph> graphs_;     // by rising tokens
  std::vector<AttentionShape> shapes_;  // of each plan
  std::array<AttentionPlan, kPlansMax> plans_;
  std::vector<AttentionChunk> chunks_;
  std::vector<SharedRange> shared_;
  int32_t draws_ = 0;
  mutable std::vector<float> logits_;
};

}  // namespace bunting::cuda
