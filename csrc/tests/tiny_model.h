// tiny_model.h - a small random model and steps on it, through the C boundary.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "include/engine.h"

namespace bunting::test {

// Returns a shape with inconvenient sizes: H pads to a tile, F to a panel, V to neither.
bunting_model_shape tiny_shape();
// Return 64 layers with pre-norms, norms of the heads of q and k, and biases on them, modified by `change`;
// and the rope of a head size. Both live as long as the program.
bunting_layer_shape const* tiny_layers(std::function<void(bunting_layer_shape&)> const& change);
bunting_rope const* tiny_rope(int32_t head_size);
// Returns a shape like Gemma 4, otherwise like `plain`: an MLP beside experts, per-layer inputs, layer
// scales. Of its three layers the first has heads of 32, a window and another width. The second has fewer
// heads, of `head_size`, and values that are keys. The third reads the second's keys.
bunting_model_shape tiny_mixed_shape(bunting_model_shape const& plain, int32_t head_size);
// Returns a shape with latent layers, otherwise like `plain`; with a latent of queries, if it has a rank.
bunting_model_shape tiny_latent_shape(bunting_model_shape const& plain, int32_t query_rank);
// Returns a shape like Gemma 3n, otherwise like `plain`: three layers with LAuReL and per-layer inputs, three
// residual streams, and sparse gates in the first layer.
bunting_model_shape tiny_streams_shape(bunting_model_shape const& plain);
bunting_engine_limits tiny_limits();

// File with every tensor of a shape, random but reproducible; removed with the object.
class TinyFile {
 public:
  struct Tensor {
    int32_t tensor, layer;
    int64_t rows, cols;
    uint64_t offset;
  };
  // `dtype` is the storage type; `skew` bytes come before the first tensor.
  explicit TinyFile(bunting_model_shape const& shape, int32_t dtype = BUNTING_F32, uint64_t skew = 0);
  ~TinyFile();
  TinyFile(TinyFile const&) = delete;
  TinyFile& operator=(TinyFile const&) = delete;

  std::string const& path() const { return path_; }
  std::vector<Tensor> const& tensors() const { return tensors_; }
  int32_t dtype() const { return dtype_; }
  // Overwrites one element of a tensor; f32 files only.
  void poke(int32_t tensor, int32_t layer, int64_t element, float value) const;

 private:
  std::string path_;
  std::vector<Tensor> tensors_;
  int32_t dtype_;
};

struct CloseModel {
  void operator()(bunting_model* model) const { bunting_model_close(model); }
};
struct CloseEngine {
  void operator()(bunting_engine* engine) const { bunting_engine_close(engine); }
};
using ModelPointer = std::unique_ptr<bunting_model, CloseModel>;
using EnginePointer = std::unique_ptr<bunting_engine, CloseEngine>;

// Return null, after a failed check, if a call fails.
ModelPointer load_model(bunting_model_shape const& shape, TinyFile const& file);
EnginePointer open_engine(bunting_model const* model, bunting_engine_limits const& limits,
                          bunting_model const* draft = nullptr);

// Row to draw; defaults are greedy.
struct RowSpec {
  float temperature = 0, top_p = 1, min_p = 0, repetition = 1, presence = 0, frequency = 0;
  int32_t top_k = 0, position = 0, top_logprobs = -1;
  uint64_t seed = 0;
  std::vector<int32_t> biases = {}, seen = {};  // flat pairs
  std::vector<uint32_t> mask = {};
  bool hidden = false;  // true: returns the hidden state instead of a draw
};
struct ChunkSpec {
  int32_t start = 0;
  std::vector<int32_t> tokens = {}, pages = {};
  bool sampled = true;  // true: draws after the chunk's last token
  RowSpec row = {};
  // Outputs for earlier tokens of the chunk, by rising token.
  struct Earlier {
    int32_t token;
    RowSpec row;
  };
  std::vector<Earlier> earlier = {};
  int32_t state = -1, from = -1;    // state slots
  std::vector<int32_t> saves = {};  // flat pairs (count, slot)
  int32_t next = -1, drafts = 0;    // for a head
  bool is_read = true;              // by a draft model, after the tokens that follow
  std::vector<int32_t> unread = {};
  int32_t adapter = 0;  // slot
  int32_t rows() const { return int32_t(earlier.size()) + sampled; }
  int32_t hidden() const;  // number of rows that return hidden states
};
struct StepSpec {
  std::vector<int32_t> copies = {};  // flat triples
  std::vector<ChunkSpec> chunks = {};
  std::vector<int32_t> shared = {};  // flat quadruples
  int32_t drafts_max = 0;            // of the engine
};

std::vector<uint32_t> encode(StepSpec const& step);

struct StepOutcome {
  bunting_status status = BUNTING_LOST;
  std::vector<int32_t> result;  // words, including the header
  std::vector<float> logits;    // [rows, V]
  int32_t drafts_max = 0;       // of the engine
  int32_t rows() const { return result.empty() ? 0 : result[0]; }
  // Returns the words of one draw.
  int32_t const* row(int32_t index) const;
  // Returns hidden state `index`, [H].
  std::vector<float> hidden(int32_t index) const;
  int32_t token(int32_t index) const { return row(index)[1]; }
  // Returns the tokens that the head drafted after a draw.
  std::vector<int32_t> drafts(int32_t index) const;
};

// Starts a step and waits for it. Copies the logits if the step succeeds.
StepOutcome run_step(bunting_engine* engine, std::vector<uint32_t> const& block, int32_t draws,
                     int32_t hidden = 0, int32_t drafts_max = 0);
StepOutcome run_step(bunting_engine* engine, StepSpec const& step);

// Returns first, first + 1, ... for `count` pages.
std::vector<int32_t> pages_from(int32_t first, int32_t count);
std::vector<int32_t> random_tokens(uint64_t seed, int32_t count, int32_t vocab);

}  // namespace bunting::test
