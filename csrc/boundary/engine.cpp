// engine.cpp - the C boundary of include/engine.h. Each function runs inside guarded(), which converts
// exceptions to a status and keeps the sentence for bunting_last_error().
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "boundary/guarded.h"
#include "boundary/handles.h"
#include "cpu/draft_model.h"
#include "cpu/forward.h"
#include "cpu/meter.h"
#ifdef BUNTING_CUDA
#include "cuda/cublaslt.h"
#include "cuda/failed_step.h"
#include "cuda/forward.h"
#include "cuda/runtime.h"
#endif
#include "boundary/step_block.h"
#include "host/cpu_features.h"
#include "host/machine.h"
#include "include/places.h"
#include "model/model.h"
#include "model/stored_tensor.h"

#ifdef BUNTING_CUDA
using EngineForward = bunting::cuda::Forward;
#else
using EngineForward = bunting::Forward;
#endif

struct bunting_meter : bunting::Meter {
  using bunting::Meter::Meter;
};

struct bunting_engine {
  bunting_engine(bunting::Model const& model, [[maybe_unused]] bunting::Model const* draft_model,
                 bunting_engine_limits const& limits, [[maybe_unused]] bunting_progress progress)
      : model(model),
        page_bytes(model.page_bytes()),
        pages(limits.pages),
        states(limits.states),
        reader({.pages = limits.pages,
                .page_tokens = limits.page_tokens,
                .states = limits.states,
                .tokens_max = limits.step_tokens_max,
                .chunks_max = limits.step_chunks_max,
                .draws_max = limits.step_draws_max,
                .hidden_max = limits.step_hidden_max,
                .top_logprobs_max = limits.top_logprobs_max,
                .drafts_max = limits.drafts_max,
                .adapters_max = limits.adapters_max,
                .vocab = model.shape().vocab,
                .context_max = model.shape().context_max,
                .hidden_size = model.shape().hidden,
                .is_bidirectional = model.is_bidirectional()}),
#ifdef BUNTING_CUDA
        forward(model, limits, progress) {
  }
#else
        pool(limits.threads, bunting::ThreadPool::Cores::own),
        forward(model, limits, pool) {
    if (!draft_model) return;
    draft.emplace(*draft_model, model, limits, pool);
    page_bytes += draft_model->page_bytes();
  }
#endif

  bunting::Model const& model;
  uint64_t page_bytes;  // of both models
  int32_t pages, states;
  bunting::StepReader reader;
#ifndef BUNTING_CUDA
  bunting::ThreadPool pool;
#endif
  EngineForward forward;
#ifndef BUNTING_CUDA
  std::optional<bunting::DraftModel> draft;
#endif
  void* result = nullptr;       // result buffer of the step in flight; null: no step
  void const* block = nullptr;  // block of that step
  uint64_t block_bytes = 0;
};

// gpu/native.ts accesses these structs by byte offset.
static_assert(sizeof(bunting_machine) == 128 && offsetof(bunting_machine, memory_bytes) == 16 &&
              offsetof(bunting_machine, processor) == 32);
static_assert(
    sizeof(bunting_model_shape) == 240 && offsetof(bunting_model_shape, compute) == 48 &&
    offsetof(bunting_model_shape, norm_epsilon) == 64 && offsetof(bunting_model_shape, logit_cap) == 88 &&
    offsetof(bunting_model_shape, layer_inputs) == 92 && offsetof(bunting_model_shape, attention) == 112 &&
    offsetof(bunting_model_shape, router_options) == 140 && offsetof(bunting_model_shape, streams) == 156 &&
    offsetof(bunting_model_shape, layer) == 160 && offsetof(bunting_model_shape, formats) == 176 &&
    offsetof(bunting_model_shape, state_key_heads) == 184 &&
    offsetof(bunting_model_shape, state_dt_min) == 208 && offsetof(bunting_model_shape, latent_rank) == 216 &&
    offsetof(bunting_model_shape, head) == 236);
static_assert(sizeof(bunting_layer_shape) == 80 && offsetof(bunting_layer_shape, parallel) == 32 &&
              offsetof(bunting_layer_shape, scaled) == 56 && offsetof(bunting_layer_shape, chunked) == 60 &&
              offsetof(bunting_layer_shape, gated_output) == 64 &&
              offsetof(bunting_layer_shape, laurel_rank) == 68 &&
              offsetof(bunting_layer_shape, gate_cutoff) == 76);
static_assert(sizeof(bunting_rope) == 32 && offsetof(bunting_rope, query_growth) == 16);
static_assert(sizeof(bunting_engine_limits) == 88 && offsetof(bunting_engine_limits, gemm) == 32 &&
              offsetof(bunting_engine_limits, devices) == 40 &&
              offsetof(bunting_engine_limits, states) == 72 &&
              offsetof(bunting_engine_limits, adapters_max) == 80);
static_assert(sizeof(bunting_device) == 256 && offsetof(bunting_device, memory_bytes) == 16 &&
              offsetof(bunting_device, name) == 32 && offsetof(bunting_device, note) == 128);

namespace {

using bunting::fail;
using bunting::guarded;
using bunting::require;

// The allowed number of devices depends on the engine.
void check_limits(bunting_engine_limits const& limits) {
  bunting::check_limits(limits);
#ifdef BUNTING_CUDA
  if (limits.adapters_max > 0)
    fail(BUNTING_INVALID, "engine limits: %d adapters; GPUs compute none yet", limits.adapters_max);
  if (limits.device_count != 1)
    fail(BUNTING_INVALID,
         "engine limits: %d devices; a model is not split over GPUs yet, exactly 1 is allowed",
         limits.device_count);
#else
  if (limits.device_count != 0)
    fail(BUNTING_INVALID, "engine limits: %d devices; a CPU engine takes none", limits.device_count);
#endif
}

// Checks the arguments of a copy of pages to or from the caller.
void check_copy(bunting_engine const& engine, int32_t const* pages, int32_t count, uint64_t size) {
  if (engine.model.is_bidirectional()) fail(BUNTING_INVALID, "the pages of an encoder do not last");
  if (count < 0 || count > engine.pages)
    fail(BUNTING_INVALID, "a copy of %d pages: the engine has %d", count, engine.pages);
  if (size != uint64_t(count) * engine.page_bytes)
    fail(BUNTING_INVALID, "%llu bytes for %d pages of %llu", (unsigned long long)size, count,
         (unsigned long long)engine.page_bytes);
  for (int32_t i = 0; i < count; i++)
    if (pages[i] < 0 || pages[i] >= engine.pages)
      fail(BUNTING_INVALID, "page %d: the engine has pages 0 to %d", pages[i], engine.pages - 1);
}

// Calls `copy` with the keys and values of each model: the pages, and their number, from a byte of the
// caller's memory on.
template <typename Copy>
void copy_pages(bunting_engine& engine, int32_t const* pages, int32_t count, Copy const& copy) {
#ifndef BUNTING_CUDA
  if (engine.draft) {
    uint64_t const own = engine.model.page_bytes();
    for (int32_t i = 0; i < count; i++) {
      copy(engine.forward.pages(), pages + i, 1, size_t(i) * engine.page_bytes);
      copy(engine.draft->pages(), pages + i, 1, size_t(i) * engine.page_bytes + own);
    }
    return;
  }
#endif
  copy(engine.forward.pages(), pages, count, size_t{0});
}

// Checks the arguments of a copy of a state to or from the caller.
void check_state_copy(bunting_engine const& engine, int32_t slot, uint64_t offset, uint64_t size) {
  if (slot < 0 || slot >= engine.states)
    fail(BUNTING_INVALID, "state slot %d: the engine has %d", slot, engine.states);
  uint64_t const all = engine.model.state_bytes();
  if (offset > all || size > all - offset)
    fail(BUNTING_INVALID, "%llu bytes from %llu on of a state of %llu", (unsigned long long)size,
         (unsigned long long)offset, (unsigned long long)all);
}

double measuring_seconds(int32_t ms) {
  if (ms < 1 || ms > 60'000) fail(BUNTING_INVALID, "%d ms; wanted: 1 to 60000", ms);
  return ms / 1000.0;
}

// Checks pages and places of a copy between them.
void check_places([[maybe_unused]] bunting_engine const& engine, [[maybe_unused]] int32_t const* places,
                  [[maybe_unused]] int32_t count, [[maybe_unused]] uint64_t size) {
#ifdef BUNTING_CUDA
  int32_t const has = engine.forward.places().count();
  for (int32_t i = 0; i < count; i++)
    if (places[i] < 0 || places[i] >= has)
      fail(BUNTING_INVALID, "place %d: the engine has %d", places[i], has);
  if (size > engine.model.page_bytes())
    fail(BUNTING_INVALID, "%llu bytes in a place of %llu", (unsigned long long)size,
         (unsigned long long)engine.model.page_bytes());
#else
  fail(BUNTING_INVALID, "the pages of a CPU engine are in the host's memory already");
#endif
}

// The allowed formats depend on the engine.
void check_formats(bunting::Model const& model) {
#ifdef BUNTING_CUDA
  if (model.shape().kv == BUNTING_KV_INT8 || model.shape().kv == BUNTING_KV_INT4)
    fail(BUNTING_INVALID, "GPUs keep keys and values in bf16 or fp8, not in %s",
         model.shape().kv == BUNTING_KV_INT8 ? "int8" : "int4");
  if (model.is_for_cpus())
    fail(BUNTING_INVALID,
         "GPUs keep weights in bf16, int8, int6, int4 or fp8, not in GGUF's Q5_0 or K types");
  if (model.has_apart_v()) fail(BUNTING_INVALID, "GPUs keep V in the same format as Q and K");
#else
  if (model.shape().kv == BUNTING_KV_FP8)
    fail(BUNTING_INVALID, "CPUs keep keys and values in bf16, f32, int8 or int4, not in fp8");
  if (model.has_fp8())
    fail(BUNTING_INVALID, "CPUs keep weights in bf16, f32, int8, int6 or int4, not in fp8");
#endif
}

void check_draft([[maybe_unused]] bunting::Model const& model) {
#ifdef BUNTING_CUDA
  fail(BUNTING_INVALID, "a GPU computes no draft model");
#else
  bunting::DraftModel::check(model);
#endif
}

}  // namespace

extern "C" {

int32_t bunting_abi_version(void) {
  return BUNTING_ABI_VERSION;
}

char const* bunting_last_error(void) {
  return bunting::last_error;
}

bunting_status bunting_machine_probe(bunting_machine* out) {
  return guarded([&] {
    require(out, "out");
    *out = bunting::probe_machine();
  });
}

bunting_status bunting_device_probe([[maybe_unused]] int32_t index, bunting_device* out) {
  return guarded([&] {
    require(out, "out");
#ifdef BUNTING_CUDA
    *out = bunting::cuda::probe_device(index);
#else
    fail(BUNTING_INVALID, "this library computes on the CPU");
#endif
  });
}

bunting_status bunting_cublaslt_probe([[maybe_unused]] int32_t index, char* description,
                                      [[maybe_unused]] int32_t description_bytes) {
  return guarded([&] {
    require(description, "description");
#ifdef BUNTING_CUDA
    bunting::cuda::use_device(index);
    std::snprintf(description, size_t(description_bytes), "%s",
                  bunting::cuda::CublasLt("").description().c_str());
#else
    fail(BUNTING_INVALID, "this library computes on the CPU");
#endif
  });
}

bunting_status bunting_meter_open(int32_t isa, int32_t threads, bunting_meter** out) {
  return guarded([&] {
    require(out, "out");
    int32_t const level = isa == BUNTING_ISA_AUTO ? bunting::usable_isa() : isa;
    if (level > bunting::best_isa() || !bunting::kernels_for(level))
      fail(BUNTING_INVALID, "instruction set %d: this machine or this library lacks it", isa);
    if (threads < 1 || threads > 4096) fail(BUNTING_INVALID, "%d threads; wanted: 1 to 4096", threads);
    *out = std::make_unique<bunting_meter>(level, threads).release();
  });
}

bunting_status bunting_meter_ceiling(bunting_meter* meter, int32_t ceiling, int32_t ms, double* per_second) {
  return guarded([&] {
    require(per_second, "per_second");
    double const seconds = measuring_seconds(ms);
    switch (ceiling) {
      case BUNTING_CEILING_READ:
        *per_second = meter->read(seconds);
        return;
      case BUNTING_CEILING_F32:
        *per_second = meter->peak(bunting::Dtype::f32, seconds);
        return;
      case BUNTING_CEILING_BF16:
        *per_second = meter->peak(bunting::Dtype::bf16, seconds);
        return;
      case BUNTING_CEILING_INT8:
        *per_second = meter->peak(bunting::Dtype::q8, seconds);
        return;
      default:
        fail(BUNTING_INVALID, "ceiling %d is none of BUNTING_CEILING_*", ceiling);
    }
  });
}

bunting_status bunting_meter_gemm(bunting_meter* meter, int32_t format, int32_t rows, int32_t columns,
                                  int32_t depth, int32_t ms, double* rates) {
  return guarded([&] {
    require(rates, "rates");
    auto const type = bunting::matrix_type(format, bunting::Dtype::bf16);
    if (!type) fail(BUNTING_INVALID, "format %d is none of BUNTING_FORMAT_* and no stored type", format);
    auto const [operations, bytes] = meter->gemm(*type, rows, columns, depth, measuring_seconds(ms));
    rates[0] = operations, rates[1] = bytes;
  });
}

bunting_status bunting_meter_attention(bunting_meter* meter, int32_t tokens, int32_t positions, int32_t ms,
                                       double* rates) {
  return guarded([&] {
    require(rates, "rates");
    auto const [operations, bytes] = meter->attention(tokens, positions, measuring_seconds(ms));
    rates[0] = operations, rates[1] = bytes;
  });
}

bunting_status bunting_meter_close(bunting_meter* meter) {
  return guarded([&] { delete meter; });
}

bunting_status bunting_model_plan(bunting_model_shape const* shape, int32_t page_tokens,
                                  uint64_t* weight_bytes, uint64_t* page_bytes, uint64_t* state_bytes) {
  return guarded([&] {
    require(shape, "shape");
    require(weight_bytes, "weight_bytes");
    require(page_bytes, "page_bytes");
    require(state_bytes, "state_bytes");
    if (page_tokens != bunting::kPageTokens)
      fail(BUNTING_INVALID, "pages of %d tokens: this engine has pages of %d", page_tokens,
           bunting::kPageTokens);
    bunting::Model const model(*shape);
    check_formats(model);
    *weight_bytes = model.weight_bytes();
    *page_bytes = model.page_bytes();
    *state_bytes = model.state_bytes();
  });
}

bunting_status bunting_engine_plan(bunting_model_shape const* shape, bunting_engine_limits const* limits,
                                   uint64_t* workspace_bytes, uint64_t* copy_bytes, uint64_t* host_bytes) {
  return guarded([&] {
    require(shape, "shape");
    require(limits, "limits");
    require(workspace_bytes, "workspace_bytes");
    require(copy_bytes, "copy_bytes");
    require(host_bytes, "host_bytes");
    check_limits(*limits);
    bunting::Model const model(*shape);
    check_formats(model);
    *workspace_bytes = EngineForward::workspace_bytes(model, *limits);
#ifdef BUNTING_CUDA
    *copy_bytes = bunting::cuda::DeviceWeights::bytes(model);
    *host_bytes = EngineForward::host_bytes(model, *limits);
#else
    *copy_bytes = *host_bytes = 0;
#endif
  });
}

bunting_status bunting_model_open(bunting_model_shape const* shape, bunting_model** out) {
  return guarded([&] {
    require(shape, "shape");
    require(out, "out");
    auto model = std::make_unique<bunting_model>(*shape);
    check_formats(*model);
#ifdef BUNTING_CUDA
    model->allocate(bunting::Model::Loading::deferred);
#else
    model->allocate();
#endif
    *out = model.release();
  });
}

bunting_status bunting_model_factor(bunting_model* model, int32_t tensor, int32_t layer, float factor) {
  return guarded([&] { model->set_factor(tensor, layer, factor); });
}

bunting_status bunting_model_load(bunting_model* model, int32_t tensor, int32_t layer, char const* path,
                                  uint64_t offset, int32_t dtype, int64_t rows, int64_t cols) {
  return guarded([&] {
    require(path, "path");
    model->load(tensor, layer, path, offset, dtype, rows, cols);
  });
}

bunting_status bunting_model_load_quantised(bunting_model* model, int32_t tensor, int32_t layer,
                                            char const* paths, uint64_t const* offsets,
                                            bunting_quantised const* how, int32_t dtype, int64_t rows,
                                            int64_t cols) {
  return guarded([&] {
    require(paths, "paths");
    require(offsets, "offsets");
    require(how, "how");
    bunting::QuantisedSource source{*how, {}, {}, dtype & BUNTING_EVERY_SECOND ? 2 : 1};
    std::copy_n(offsets, BUNTING_PARTS, source.offsets);
    char const* path = paths;
    for (int part = 0; part < BUNTING_PARTS; part++) path += std::strlen(path) + 1;
    source.paths.assign(paths, path);
    model->load(tensor, layer, paths, offsets[0], dtype & ~BUNTING_EVERY_SECOND, rows, cols, &source);
  });
}

bunting_status bunting_model_seal(bunting_model* model) {
  return guarded([&] { model->seal(); });
}

bunting_status bunting_model_save(bunting_model* model, char const* path, uint8_t const* key,
                                  bunting_progress progress) {
  return guarded([&] {
    require(path, "path");
    require(key, "key");
    model->save(path, key, progress);
  });
}

bunting_status bunting_model_restore(bunting_model* model, char const* path, uint8_t const* key,
                                     bunting_progress progress) {
  return guarded([&] {
    require(path, "path");
    require(key, "key");
    model->restore(path, key, progress);
  });
}

bunting_status bunting_model_close(bunting_model* model) {
  return guarded([&] { delete model; });
}

bunting_status bunting_draft_plan(bunting_model_shape const* shape, bunting_engine_limits const* limits,
                                  uint64_t* workspace_bytes) {
  return guarded([&] {
    require(shape, "shape");
    require(limits, "limits");
    require(workspace_bytes, "workspace_bytes");
    check_limits(*limits);
    bunting::Model const model(*shape);
    check_formats(model);
    check_draft(model);
    *workspace_bytes = bunting::DraftModel::workspace_bytes(model, *limits);
  });
}

bunting_status bunting_engine_open(bunting_model const* model, bunting_model const* draft,
                                   bunting_engine_limits const* limits, bunting_progress progress,
                                   bunting_engine** out) {
  return guarded([&] {
    require(limits, "limits");
    require(out, "out");
    check_limits(*limits);
    if (!model->sealed()) fail(BUNTING_INVALID, "the model is not sealed");
    if ((limits->states > 0) != model->has_states())
      fail(BUNTING_INVALID, "engine limits: %d state slots; the model has %s", limits->states,
           model->has_states() ? "recurrent layers" : "no recurrent layers");
    if (draft) {
      check_draft(*draft);
      if (!draft->sealed()) fail(BUNTING_INVALID, "the draft model is not sealed");
      if (model->has_head() || model->is_bidirectional() || limits->drafts_max == 0)
        fail(
            BUNTING_INVALID,
            "a draft model goes with a model that has no head and is no encoder, and with drafts; drafts_max "
            "is %d",
            limits->drafts_max);
    } else if (limits->drafts_max > 0 && !model->has_head()) {
      fail(BUNTING_INVALID, "engine limits: %d drafts; the model has no head", limits->drafts_max);
    }
    *out = std::make_unique<bunting_engine>(*model, draft, *limits, progress).release();
  });
}

bunting_status bunting_engine_close(bunting_engine* engine) {
  return guarded([&] { delete engine; });
}

bunting_status bunting_engine_put_adapter([[maybe_unused]] bunting_engine* engine,
                                          [[maybe_unused]] int32_t slot,
                                          [[maybe_unused]] bunting_adapter const* adapter) {
  return guarded([&] {
#ifdef BUNTING_CUDA
    fail(BUNTING_INVALID, "GPUs compute no adapters yet");
#else
    if (engine->result) fail(BUNTING_INVALID, "a step is in flight");
    if (adapter && !adapter->sealed()) fail(BUNTING_INVALID, "the adapter is not sealed");
    if (adapter && &adapter->model() != &engine->model)
      fail(BUNTING_INVALID, "the adapter is one of another model");
    engine->forward.adapters().put(slot, adapter);
#endif
  });
}

bunting_status bunting_engine_read_pages(bunting_engine* engine, int32_t const* pages, int32_t count,
                                         void* bytes, uint64_t size) {
  return guarded([&] {
    check_copy(*engine, pages, count, size);
    copy_pages(*engine, pages, count, [&](auto& memory, int32_t const* which, int32_t number, size_t at) {
      memory.read(which, number, static_cast<char*>(bytes) + at);
    });
  });
}

bunting_status bunting_engine_write_pages(bunting_engine* engine, int32_t const* pages, int32_t count,
                                          void const* bytes, uint64_t size) {
  return guarded([&] {
    check_copy(*engine, pages, count, size);
    copy_pages(*engine, pages, count, [&](auto& memory, int32_t const* which, int32_t number, size_t at) {
      memory.write(which, number, static_cast<char const*>(bytes) + at);
    });
  });
}

bunting_status bunting_engine_read_state(bunting_engine* engine, int32_t slot, uint64_t offset, void* bytes,
                                         uint64_t size) {
  return guarded([&] {
    check_state_copy(*engine, slot, offset, size);
    engine->forward.states().read(slot, offset, static_cast<char*>(bytes), size);
  });
}

bunting_status bunting_engine_write_state(bunting_engine* engine, int32_t slot, uint64_t offset,
                                          void const* bytes, uint64_t size) {
  return guarded([&] {
    check_state_copy(*engine, slot, offset, size);
    engine->forward.states().write(slot, offset, static_cast<char const*>(bytes), size);
  });
}

bunting_status bunting_engine_open_places([[maybe_unused]] bunting_engine* engine,
                                          [[maybe_unused]] int32_t count) {
  return guarded([&] {
    check_places(*engine, nullptr, 0, 0);
#ifdef BUNTING_CUDA
    if (count < 1) fail(BUNTING_INVALID, "%d places", count);
    if (engine->model.is_bidirectional()) fail(BUNTING_INVALID, "the pages of an encoder do not last");
    if (engine->forward.places().count() > 0) fail(BUNTING_INVALID, "the engine has places already");
    engine->forward.open_places(count);
#endif
  });
}

bunting_status bunting_engine_send_pages(bunting_engine* engine, int32_t const* pages, int32_t const* places,
                                         int32_t count) {
  return guarded([&] {
    check_copy(*engine, pages, count, uint64_t(count) * engine->model.page_bytes());
    check_places(*engine, places, count, 0);
#ifdef BUNTING_CUDA
    engine->forward.pages().send(pages, places, count, engine->forward.places());
#endif
  });
}

bunting_status bunting_engine_send_state(bunting_engine* engine, int32_t slot, uint64_t offset, uint64_t size,
                                         int32_t place) {
  return guarded([&] {
    check_state_copy(*engine, slot, offset, size);
    check_places(*engine, &place, 1, size);
#ifdef BUNTING_CUDA
    engine->forward.states().send(slot, offset, engine->forward.places().at(place), size);
#endif
  });
}

bunting_status bunting_engine_wait_sent(bunting_engine* engine) {
  return guarded([&] {
    check_places(*engine, nullptr, 0, 0);
#ifdef BUNTING_CUDA
    engine->forward.pages().wait_sent();
    engine->forward.states().wait_sent();
#endif
  });
}

bunting_status bunting_engine_fetch_pages(bunting_engine* engine, int32_t const* pages, int32_t const* places,
                                          int32_t count) {
  return guarded([&] {
    check_copy(*engine, pages, count, uint64_t(count) * engine->model.page_bytes());
    check_places(*engine, places, count, 0);
#ifdef BUNTING_CUDA
    engine->forward.pages().fetch(pages, places, count, engine->forward.places());
#endif
  });
}

bunting_status bunting_engine_fetch_state(bunting_engine* engine, int32_t slot, uint64_t offset,
                                          uint64_t size, int32_t place) {
  return guarded([&] {
    check_state_copy(*engine, slot, offset, size);
    check_places(*engine, &place, 1, size);
#ifdef BUNTING_CUDA
    engine->forward.states().write(slot, offset, engine->forward.places().at(place), size);
#endif
  });
}

bunting_status bunting_engine_read_place(bunting_engine* engine, int32_t place, [[maybe_unused]] void* bytes,
                                         uint64_t size) {
  return guarded([&] {
    check_places(*engine, &place, 1, size);
#ifdef BUNTING_CUDA
    std::memcpy(bytes, engine->forward.places().at(place), size);
#endif
  });
}

bunting_status bunting_engine_write_place(bunting_engine* engine, int32_t place,
                                          [[maybe_unused]] void const* bytes, uint64_t size) {
  return guarded([&] {
    check_places(*engine, &place, 1, size);
#ifdef BUNTING_CUDA
    std::memcpy(engine->forward.places().at(place), bytes, size);
#endif
  });
}

bunting_status bunting_step_start(bunting_engine* engine, void const* block, uint64_t block_bytes,
                                  void* result, uint64_t result_bytes) {
  return guarded([&] {
    if (engine->result) fail(BUNTING_INVALID, "a step is in flight");
    require(static_cast<char*>(result), "result");
    if (reinterpret_cast<uintptr_t>(result) % 4 != 0)
      fail(BUNTING_INVALID, "step result: not 4-byte aligned");
    engine->reader.read(block, block_bytes, result_bytes);
#ifndef BUNTING_CUDA
    engine->forward.adapters().check(engine->reader.plan());
#endif
    engine->result = result;
    engine->block = block;
    engine->block_bytes = 4 * uint64_t(static_cast<bunting_step_header const*>(block)->words_total);
  });
}

bunting_status bunting_step_wait(bunting_engine* engine, [[maybe_unused]] int32_t const* way) {
  return guarded([&] {
    if (!engine->result) fail(BUNTING_INVALID, "no step is in flight");
    void* const result = std::exchange(engine->result, nullptr);
#ifdef BUNTING_CUDA
    try {
      engine->forward.run(engine->reader.plan(), result);
    } catch (bunting::Error const& error) {
      if (error.status() != BUNTING_LOST || !bunting::cuda::steps_through_kernels()) throw;
      std::string const path = bunting::cuda::keep_step_block(engine->block, engine->block_bytes);
      if (path.empty()) throw;
      fail(BUNTING_LOST, "%s; the block of its step is in %s", error.what(), path.c_str());
    }
#else
    bunting::StepPlan const& plan = engine->reader.plan();
    if (!engine->forward.run(plan, result, way)) fail(BUNTING_GAVE_WAY, "the step was given up");
    if (engine->draft) engine->draft->run(plan, result);
#endif
  });
}

bunting_status bunting_engine_logits(bunting_engine const* engine, float const** logits, int32_t* rows) {
  return guarded([&] {
    require(logits, "logits");
    require(rows, "rows");
    if (engine->result) fail(BUNTING_INVALID, "a step is in flight");
    *logits = engine->forward.logits();
    *rows = engine->forward.draws();
  });
}

}  // extern "C"
