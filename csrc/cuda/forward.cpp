// forward.cpp - opens an engine's memory, runs steps, and records decode-only steps as graphs.
#include "cuda/forward.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "boundary/error.h"
#include "cuda/device_use.h"

namespace bunting::cuda {
namespace {

// Sizes of decode steps that are recorded as one launch. Products of up to eight tokens cost the same.
constexpr int32_t kGraphTokens[] = {1, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};

size_t result_row_words(bunting_engine_limits const& limits) {
  return BUNTING_RESULT_ROW_WORDS + 2 * size_t(limits.top_logprobs_max);
}

size_t result_bytes(bunting_engine_limits const& limits) {
  return size_t(limits.step_draws_max) * result_row_words(limits) * 4;
}

size_t hidden_bytes(Model const& model, bunting_engine_limits const& limits) {
  return size_t(limits.step_hidden_max) * size_t(model.shape().hidden) * sizeof(bf16);
}

float to_float(bf16 value) {
  uint32_t const bits = uint32_t(value) << 16;
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Selects the engine's device and returns how many blocks of attention it runs at a time. Refuses a model
// that the kernels cannot compute.
int32_t attention_blocks(Model const& model, bunting_engine_limits const& limits) {
  check_shape(model);
  use_device(limits.devices[0]);
  int32_t per_multiprocessor = 0;
  for (int32_t i = 0; i < model.shape().layers; ++i) {
    if (!model.has_attention(i) || model.is_latent(i)) continue;
    int32_t const fit =
        attention_blocks_resident(model.layer_shape(i).head_size, model.shape().kv == BUNTING_KV_FP8);
    per_multiprocessor = per_multiprocessor == 0 ? fit : std::min(per_multiprocessor, fit);
  }
  return device_info(limits.devices[0]).multiprocessors * per_multiprocessor;
}

}  // namespace

bunting_device probe_device(int32_t index) {
  std::string why_none;
  bunting_device out{};
  out.devices = device_count(why_none);
  if (out.devices == 0) fail(BUNTING_INVALID, "%s", why_none.c_str());
  DeviceInfo const info = device_info(index);
  out.capability = info.capability;
  out.multiprocessors = info.multiprocessors;
  out.memory_bytes = info.memory_bytes;
  out.memory_free_bytes = info.memory_free_bytes;
  std::snprintf(out.name, sizeof out.name, "%s", info.name.c_str());
  std::snprintf(out.note, sizeof out.note, "%s", info.note.c_str());
  return out;
}

double step_deadline_ms(Model const& model, StepPlan const& plan) {
  constexpr double kSlowFlopsPerMs = 1e9;
  constexpr double kRecurrenceFlops = 32;  // per number of a state; most of a GPU waits for the tokens' order
  bunting_model_shape const& s = model.shape();
  double const hidden = s.hidden, tokens = plan.tokens;
  double seen = 0;  // sum of visible positions over all tokens
  for (int32_t t = 0; t < plan.tokens; ++t) seen += plan.position[size_t(t)] + 1;
  double flops = 2 * hidden * s.vocab * double(plan.draws);
  for (int32_t i = 0; i < s.layers; ++i) {
    double wide = double(model.feed_forward(i)) * (model.has_experts(i) ? s.experts_used : 1);
    if (model.has_beside(i)) wide += model.layer_shape(i).feed_forward;
    double const query = model.has_attention(i) ? double(model.query_width(i)) : 0;
    double const qkv = model.has_attention(i) ? double(model.qkv_width(i)) + query : 0;
    flops += 2 * hidden * (qkv + query + 3 * wide) * tokens + 4 * query * seen;
    if (!model.has_state(i)) continue;
    double const values = double(model.state_value_width());
    flops += 2 * hidden * (double(model.state_in_width()) + values) * tokens;
    flops += kRecurrenceFlops * s.state_key_size * values * tokens;
  }
  return step_deadline_ms() + flops / kSlowFlopsPerMs;
}

uint64_t Forward::workspace_bytes(Model const& model, bunting_engine_limits const& limits) {
  int32_t const blocks = attention_blocks(model, limits);
  return StepInputs::bytes(model, limits, blocks) + Activations().place(model, limits, blocks, nullptr) +
         (limits.gemm == BUNTING_GEMM_CUBLASLT ? CublasLt::kWorkspaceBytes : 0);
}

uint64_t Forward::host_bytes(Model const& model, bunting_engine_limits const& limits) {
  return model.table_bytes() + DeviceWeights::host_bytes(model) +
         StepInputs::bytes(model, limits, attention_blocks(model, limits)) + result_bytes(limits) +
         hidden_bytes(model, limits);
}

Forward::Forward(Model const& model, bunting_engine_limits const& limits, bunting_progress progress)
    : model_(model),
      limits_(limits),
      blocks_(attention_blocks(model, limits)),
      cublaslt_(limits.gemm == BUNTING_GEMM_CUBLASLT ? std::make_unique<CublasLt>("") : nullptr),
      weights_(model, progress),
      pages_(model, limits.pages),
      states_(model, limits.states),
      work_(Activations().place(model, limits, blocks_, nullptr), "the workspaces of a step"),
      inputs_(model, limits, blocks_),
      results_(result_bytes(limits), "the results of a step"),
      hidden_(hidden_bytes(model, limits), "the hidden states of a step") {
  act_.place(model, limits, blocks_, work_.data());
  record_graphs();
}

void Forward::open_places(int32_t count) {
  set_current_device(limits_.devices[0]);
  places_ = HostPlaces(count, size_t(model_.page_bytes()));
}

void Forward::record_graphs() {
  if (steps_through_kernels()) return;
  is_recording_ = true;
  try {
    record_each();
  } catch (Error const& error) {
    if (error.status() == BUNTING_LOST) throw;
    graphs_.clear();
    std::fprintf(stderr,
                 "GPU %d records no decode steps and starts each kernel by itself, which is slower: %s\n",
                 limits_.devices[0], error.what());
  }
  is_recording_ = false;
}

void Forward::record_each() {
  int32_t const most = std::min({limits_.step_chunks_max, limits_.step_tokens_max, limits_.step_draws_max});
  for (int32_t tokens : kGraphTokens) {
    if (tokens > most) break;
    StepArrays::Sizes const sizes = inputs_.place_decodes(tokens);
    stream_.begin_recording();
    queue_layers(tokens, tokens, tokens, tokens);
    graphs_.push_back({tokens, sizes, stream_.end_recording()});
  }
}

DecodeGraph const* Forward::graph_of(StepPlan const& plan) const {
  if (plan.tokens == 0 || plan.tokens != plan.chunks || plan.draws != plan.tokens) return nullptr;
  for (DecodeGraph const& graph : graphs_)
    if (plan.tokens <= graph.tokens) return &graph;
  return nullptr;
}

void Forward::run(StepPlan const& plan, void* result) {
  auto const started = std::chrono::steady_clock::now();
  DecodeGraph const* const graph = graph_of(plan);
  pages_.settle(plan);
  states_.settle(plan);
  inputs_.send(plan, graph ? &graph->sizes : nullptr, stream_);
  pages_.copy(stream_, inputs_.on_device().copies, plan.moves);
  if (graph)
    stream_.launch(graph->graph);
  else if (plan.tokens > 0)
    queue_layers(plan.tokens, plan.chunks, plan.rows, plan.draws);
  double const deadline_ms = step_deadline_ms(model_, plan);
  for (int32_t drawn = 0; drawn < plan.draws;) {
    int32_t const end = inputs_.send_pairs(plan, drawn, stream_);
    draw(drawn, end);
    drawn = end;
    if (drawn < plan.draws) wait(deadline_ms);  // the next rows reuse the memory of these rows' pairs
  }
  wait(deadline_ms);
  draws_ = plan.draws;
  std::chrono::duration<float, std::milli> const elapsed = std::chrono::steady_clock::now() - started;
  bunting_step_result const header{plan.draws, elapsed.count(), plan.hidden(), 0};
  std::memcpy(result, &header, sizeof header);
  char* const results = static_cast<char*>(result) + sizeof header;
  size_t const drawn_bytes = size_t(plan.draws) * result_row_words(limits_) * 4;
  std::memcpy(results, results_.data(), drawn_bytes);
  float* const hidden = reinterpret_cast<float*>(results + drawn_bytes);
  bf16 const* const from = reinterpret_cast<bf16 const*>(hidden_.data());
  for (size_t i = 0; i < size_t(plan.hidden()) * size_t(model_.shape().hidden); ++i)
    hidden[i] = to_float(from[i]);
}

void Forward::draw(int32_t begin, int32_t end) {
  size_t const vocab = size_t(model_.shape().vocab), row_words = result_row_words(limits_);
  sample(stream_, {.logits = act_.logits + size_t(begin) * vocab,
                   .changed = act_.changed + size_t(begin) * vocab,
                   .rows = inputs_.on_device().draws + size_t(begin) * BUNTING_ROW_WORDS,
                   .pairs = inputs_.on_device().pairs,
                   .words = inputs_.on_device().masks,
                   .results = reinterpret_cast<uint32_t*>(results_.data()) + size_t(begin) * row_words,
                   .result_words = int32_t(row_words),
                   .row_count = end - begin,
                   .vocab = model_.shape().vocab});
}

float const* Forward::logits() const {
  logits_.resize(size_t(draws_) * size_t(model_.shape().vocab));
  stream_.copy(logits_.data(), act_.logits, logits_.size() * sizeof(float));
  wait(step_deadline_ms());
  return logits_.data();
}

void Forward::wait(double deadline_ms) const {
  stream_.finish(deadline_ms, "has not finished a step");
}

}  // namespace bunting::cuda
