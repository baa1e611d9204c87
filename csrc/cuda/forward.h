// forward.h - one step of the transformer on a GPU: what csrc/cpu/forward.h is on the CPU, with the kernels
// of kernels/.
//
//   page copies; x = embed(ids); per layer: norm, q|k|v, rotate and append, attention, + Wo, norm, gate|up,
//   SwiGLU, + Wdown; then for the wanted rows the norm, and for those to draw from logits and the draw
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

// What the host tells the device about one step: arrays in one block of memory, written on the host, copied
// at once. Up to `pages`, places depend on the sizes of what is before alone.
struct StepArrays {
  // How many there are of each kind.
  struct Sizes {
    size_t tokens, pages, rows, draws, copies, items, blocks, pairs_of_heads, merge_rows, sample_pairs,
        mask_words;
  };
  int32_t* tokens = nullptr;     // [T]
  int32_t* positions = nullptr;  // [T]
  int32_t* slots = nullptr;      // [T] page * Tp + slot
  int32_t* wanted = nullptr;     // [rows] token rows: those to draw from, then those of hidden states
  AttentionItem* items = nullptr;
  int32_t* item_begin = nullptr;
  int32_t* merge_begin = nullptr;
  int32_t* merge_rows = nullptr;
  int32_t* pages = nullptr;  // page ids, chunk after chunk
  PageCopy* copies = nullptr;
  uint32_t* draws = nullptr;  // [draws, BUNTING_ROW_WORDS]
  int32_t* pairs = nullptr;   // biases and seen tokens
  uint32_t* masks = nullptr;  // ceil(V / 32) words for each row that has one

  // Lays the arrays out from `base` on and returns the bytes; with a null base it only measures.
  size_t place(Sizes const& sizes, char* base);
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
  float* gate_up = nullptr;         // [T, 2 F]
  bf16* activated = nullptr;        // [T, F]
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
  std::array<Part, 3> write_arrays(StepPlan const& plan, DecodeGraph const* graph);
  void write_rows(StepPlan const& plan);
  // All but drawing, for the first tokens and rows of the arrays, of which the first `draws` are drawn from.
  void queue_layers(int32_t tokens, int32_t rows, int32_t draws);
  void draw(int32_t draws);
  // The graph for a step of decodes alone; null: the step is queued kernel by kernel.
  DecodeGraph const* graph_of(StepPlan const& plan) const;
  void record_graphs();
  void attend(int32_t layer);
  // A product into the residual stream, which the next norm adds.
  float const* project_back(bf16 const* x, WeightMatrix const& w, float const* bias, int32_t tokens,
                            int32_t k);
  void multiply(Gemm g);
  void normalise(float* x, float const* delta, float const* weight, int32_t tokens);
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

  std::vector<DecodeGraph> graphs_;  // by rising tokens
  AttentionPlan plan_;
  std::vector<AttentionChunk> chunks_;
  std::vector<SharedRange> shared_;
  int32_t draws_ = 0;
  mutable std::vector<float> logits_;
};

}  // namespace bunting::cuda
