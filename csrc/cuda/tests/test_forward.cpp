// Tests of whole steps on the emulated device: against the CPU engine, and against each other.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "cpu/forward.h"
#include "cuda/forward.h"
#include "cuda/tests/device_test.h"
#include "cuda/tests/models.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

constexpr int32_t kStates = 4;

// Model and an engine for it on the device.
struct Gpu {
  TinyFile file;
  Model model;
  bunting_engine_limits limits = tiny_limits();
  std::optional<cuda::Forward> forward;
  std::optional<StepReader> reader;

  explicit Gpu(bunting_model_shape const& shape) : file(shape), model(shape) {
    load(file, model);
    limits.states = model.has_states() ? kStates : 0;
    forward.emplace(model, limits);
    reader.emplace(StepLimits{.pages = limits.pages,
                              .page_tokens = limits.page_tokens,
                              .states = limits.states,
                              .tokens_max = limits.step_tokens_max,
                              .chunks_max = limits.step_chunks_max,
                              .draws_max = limits.step_draws_max,
                              .hidden_max = limits.step_hidden_max,
                              .top_logprobs_max = limits.top_logprobs_max,
                              .vocab = shape.vocab,
                              .context_max = shape.context_max,
                              .hidden_size = shape.hidden});
  }

  // Runs the step and returns the logits of the sampled rows, one after the other.
  std::vector<float> run(StepSpec const& step) {
    std::vector<uint32_t> const block = encode(step);
    std::vector<uint32_t> result(2000);
    forward->run(reader->read(block.data(), block.size() * 4, result.size() * 4), result.data());
    float const* const logits = forward->logits();
    return {logits, logits + int64_t(forward->draws()) * model.shape().vocab};
  }
};

// Returns the smallest cosine between rows of `width`.
double least_cosine(std::vector<float> const& x, std::vector<float> const& y, size_t width) {
  double least = x.size() == y.size() ? 1 : -1;
  for (size_t row = 0; row + width <= x.size() && x.size() == y.size(); row += width) {
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = row; i < row + width; ++i) {
      xy += double(x[i]) * double(y[i]);
      xx += double(x[i]) * double(x[i]);
      yy += double(y[i]) * double(y[i]);
    }
    double const cosine = xy / std::sqrt(xx * yy);
    if (!(cosine >= least)) least = cosine;
  }
  return least;
}

// Returns the squared difference of all rows, relative to the squares of y.
double error_of(std::vector<float> const& x, std::vector<float> const& y) {
  double error = 0, yy = 0;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    error += (double(x[i]) - double(y[i])) * (double(x[i]) - double(y[i]));
    yy += double(y[i]) * double(y[i]);
  }
  return error / yy;
}

std::vector<int32_t> slice(std::vector<int32_t> const& tokens, int32_t begin, int32_t end) {
  return {tokens.begin() + begin, tokens.begin() + end};
}

// Runs a prompt in two chunks, beside another one, and two decodes; returns the logits of all rows.
std::vector<float> a_few_steps(Gpu& gpu) {
  int32_t const vocab = gpu.model.shape().vocab;
  std::vector<int32_t> const first = random_tokens(1, 90, vocab), second = random_tokens(2, 20, vocab);
  StepSpec const steps[] = {
      {{}, {{0, slice(first, 0, 70), pages_from(10, 5)}, {0, slice(second, 0, 18), pages_from(20, 2)}}},
      {{}, {{70, slice(first, 70, 88), pages_from(10, 6)}, {18, slice(second, 18, 19), pages_from(20, 2)}}},
      {{21, 30, 3}, {{88, slice(first, 88, 89), pages_from(10, 6)}, {19, slice(second, 19, 20), {20, 30}}}},
  };
  std::vector<float> logits;
  for (StepSpec const& step : steps) {
    std::vector<float> const rows = gpu.run(step);
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

// CPU engine with its own copy of the same weights.
struct Cpu {
  Model model;
  ThreadPool pool{tiny_limits().threads};
  std::optional<Forward> forward;

  Cpu(Gpu const& gpu, bunting_model_shape const& shape) : model(shape) {
    load(gpu.file, model);
    forward.emplace(model, gpu.limits, pool);
  }

  std::vector<float> run(Gpu& gpu, StepSpec const& step) {
    std::vector<uint32_t> const block = encode(step);
    std::vector<uint32_t> result(2000);
    forward->run(gpu.reader->read(block.data(), block.size() * 4, result.size() * 4), result.data(), nullptr);
    return {forward->logits(), forward->logits() + int64_t(forward->draws()) * model.shape().vocab};
  }
};

// Gives each chunk a state slot by its index, which begins from itself.
void use_states(StepSpec& step) {
  int32_t slot = 0;
  for (ChunkSpec& chunk : step.chunks) {
    chunk.state = slot++;
    chunk.from = chunk.start > 0 ? chunk.state : -1;
  }
}

// Compares the device with the CPU engine. Both engines round to bf16 in different places, and the effect
// depends on the kind of layer. So the reference computes in f32. The device's error over all rows may be
// at most twice that of the CPU engine's portable bf16 kernels. All three compute the same bits on every
// machine.
void agrees_with_the_cpu_engine(bunting_model_shape const& shape, size_t kind) {
  Gpu gpu(shape);
  bunting_model_shape exact_shape = shape, portable_shape = shape;
  exact_shape.compute = BUNTING_F32;
  exact_shape.isa = portable_shape.isa = BUNTING_ISA_PORTABLE;
  Cpu exact(gpu, exact_shape), portable(gpu, portable_shape);
  size_t const vocab = size_t(shape.vocab);
  std::vector<int32_t> const first = random_tokens(1, 90, shape.vocab),
                             second = random_tokens(2, 20, shape.vocab);
  // A chunk without samples beside a whole prompt, then its rest beside a decode, then decodes.
  StepSpec const steps[] = {
      {{},
       {{0, slice(first, 0, 70), pages_from(10, 5), false}, {0, slice(second, 0, 18), pages_from(20, 2)}}},
      {{}, {{70, slice(first, 70, 88), pages_from(10, 6)}, {18, slice(second, 18, 19), pages_from(20, 2)}}},
      {{21, 30, 3}, {{88, slice(first, 88, 89), pages_from(10, 6)}, {19, slice(second, 19, 20), {20, 30}}}},
  };
  std::vector<float> want, got, of_portable;
  auto const append = [](std::vector<float>& to, std::vector<float> const& rows) {
    to.insert(to.end(), rows.begin(), rows.end());
  };
  for (StepSpec step : steps) {
    if (gpu.model.has_states()) use_states(step);
    append(want, exact.run(gpu, step));
    append(got, gpu.run(step));
    append(of_portable, portable.run(gpu, step));
  }
  double const least = least_cosine(got, want, vocab),
               portable_least = least_cosine(of_portable, want, vocab), error = error_of(got, want),
               portable_error = error_of(of_portable, want);
  CHECK(least > 0.999 && portable_least > 0.999, "kind %zu: cosine %.6f, the CPU engine's in bf16 is %.6f",
        kind, least, portable_least);
  CHECK(error <= 2 * portable_error, "kind %zu: error %g, the CPU engine's in bf16 is %g", kind, error,
        portable_error);
}

}  // namespace

TEST(cuda_forward_agrees_with_the_cpu_engine) {
  std::vector<bunting_model_shape> const shapes = shapes_of_all_kinds();
  for (size_t kind = 0; kind < shapes.size(); ++kind) agrees_with_the_cpu_engine(shapes[kind], kind);
}

// A prompt continues from copies of its pages, in other places, with the same bits.
TEST(cuda_forward_copies_pages) {
  for (int32_t const kv : {BUNTING_KV_PLAIN, BUNTING_KV_FP8}) {
    bunting_model_shape shape = shape_for_gpu();
    shape.head_size = 64;
    shape.rope = tiny_rope(64);
    shape.kv = kv;
    Gpu gpu(shape);
    std::vector<int32_t> const from = {9, 3, 20, 4}, to = {11, 40, 2, 5};
    gpu.run({{}, {{.start = 0, .tokens = random_tokens(7, 64, shape.vocab), .pages = from}}});
    StepSpec step{{}, {{.start = 64, .tokens = {5}, .pages = {9, 3, 20, 4, 30}}}};
    std::vector<float> const expected = gpu.run(step);
    std::vector<char> bytes(4 * size_t(gpu.model.page_bytes()));
    gpu.forward->pages().read(from.data(), 4, bytes.data());
    gpu.forward->pages().write(to.data(), 4, bytes.data());
    step.chunks[0].pages = {11, 40, 2, 5, 31};
    CHECK(gpu.run(step) == expected, "kv %d: the copied pages differ", kv);
  }
}

// Pages and states go to places of the host beside steps: one that writes them at once waits for their
// copies, also where it copies a page or a load writes it. They come back elsewhere with the same bits.
TEST(cuda_forward_sends_pages_beside_steps) {
  size_t const region_bytes = cuda::HostPlaces::region_bytes;
  for (bool const has_states : {false, true}) {
    bunting_model_shape const shape = has_states ? recurrent_shapes()[0] : shape_for_gpu();
    Gpu gpu(shape);
    size_t const page_bytes = size_t(gpu.model.page_bytes()), state_bytes = size_t(gpu.model.state_bytes());
    cuda::HostPlaces::region_bytes = 3 * page_bytes;
    int32_t const pieces = int32_t((state_bytes + page_bytes - 1) / page_bytes);
    gpu.forward->open_places(5 + pieces);
    auto const with_state = [&](ChunkSpec chunk, int32_t slot, int32_t from) {
      if (has_states) chunk.state = slot, chunk.from = from;
      return chunk;
    };
    std::vector<int32_t> const from = {9, 3, 20, 4}, to = {11, 40, 2, 5}, places = {4, 0, 3, 1};
    std::vector<int32_t> const text = random_tokens(7, 64, shape.vocab);
    gpu.run({{}, {with_state({.tokens = text, .pages = from}, 0, -1)}});
    ChunkSpec next{.start = 64, .tokens = {5}, .pages = {9, 3, 20, 4, 30}};
    std::vector<float> const expected = gpu.run({{}, {with_state(next, 1, 0)}});
#ifndef BUNTING_ON_GPU
    cuda::set_mishaps({.copy_ms = 20});
#endif
    gpu.forward->pages().send(from.data(), places.data(), 4, gpu.forward->places());
    auto const piece_bytes = [&](int32_t piece) {
      return std::min(page_bytes, state_bytes - size_t(piece) * page_bytes);
    };
    for (int32_t i = 0; i < pieces; ++i)
      gpu.forward->states().send(0, size_t(i) * page_bytes, gpu.forward->places().at(5 + i), piece_bytes(i));
    std::vector<int32_t> const other = random_tokens(8, 64, shape.vocab);
    gpu.run({{3, 9, 16}, {with_state({.start = 16, .tokens = slice(other, 0, 48), .pages = from}, 0, 1)}});
    gpu.forward->pages().wait_sent();
    gpu.forward->states().wait_sent();
    // Places that hold other bytes are taken for others: the second copy of a page ends before a load writes
    // it.
    gpu.forward->pages().send(to.data(), std::vector<int32_t>{2}.data(), 1, gpu.forward->places());
    gpu.forward->pages().fetch(to.data(), places.data(), 4, gpu.forward->places());
    for (int32_t i = 0; i < pieces; ++i)
      gpu.forward->states().write(2, size_t(i) * page_bytes, gpu.forward->places().at(5 + i), piece_bytes(i));
#ifndef BUNTING_ON_GPU
    cuda::set_mishaps({});
#endif
    next.pages = {11, 40, 2, 5, 31};
    CHECK(gpu.run({{}, {with_state(next, 3, 2)}}) == expected, "states %d: the pages from the host differ",
          has_states);
    std::vector<char> const zeros(page_bytes);
    CHECK(std::memcmp(gpu.forward->places().at(2), zeros.data(), page_bytes) == 0,
          "a load wrote what was on its way");
  }
  cuda::HostPlaces::region_bytes = region_bytes;
}

TEST(cuda_forward_gives_long_steps_more_time) {
  bunting_model_shape shape = shape_for_gpu();
  shape.layers = 32, shape.hidden = 4096, shape.feed_forward = 14336;
  shape.query_heads = 32, shape.kv_heads = 8, shape.head_size = 128, shape.rope = tiny_rope(128);
  shape.context_max = 131072;
  Model const model(shape);
  StepPlan plan;
  plan.tokens = plan.rows = plan.draws = 1;
  plan.position = {0};
  double const usual = cuda::step_deadline_ms(), decode = cuda::step_deadline_ms(model, plan) - usual;
  CHECK(decode > 0 && decode < 100, "a decode has %g ms more", decode);
  plan.tokens = 2048;
  plan.position.assign(2048, 120'000);
  // 131 TFLOP of attention and 28 of GEMMs.
  double const chunk = cuda::step_deadline_ms(model, plan) - usual;
  CHECK(chunk > 140'000 && chunk < 180'000, "a chunk far out has %g ms more", chunk);
}

// The engine allocates everything when it opens: steps of all kinds work on a device without free memory.
TEST(cuda_forward_takes_no_memory_after_it_is_open) {
  Gpu gpu(shape_for_gpu());
  uint64_t const free_bytes = cuda::device_info(0).memory_free_bytes;
#ifndef BUNTING_ON_GPU
  cuda::set_mishaps({.fail_allocation = 0});
#endif
  a_few_steps(gpu);
#ifdef BUNTING_ON_GPU
  int64_t const tolerance = 4 << 20;  // others may use the GPU too
#else
  int64_t const tolerance = 0;
#endif
  int64_t const taken = int64_t(free_bytes) - int64_t(cuda::device_info(0).memory_free_bytes);
  CHECK(taken <= tolerance, "%lld bytes were taken", (long long)taken);
#ifndef BUNTING_ON_GPU
  cuda::set_mishaps({});
#endif
}

#ifndef BUNTING_ON_GPU
// Every allocation may be the one that finds no memory: then the engine does not open, and gives back what it
// has.
TEST(cuda_forward_gives_back_what_it_has_when_memory_is_short) {
  Gpu gpu(shape_for_gpu());
  gpu.forward.reset();
  uint64_t const free_bytes = cuda::device_info(0).memory_free_bytes;
  // The weights go by way of ordinary memory if one of their two slots cannot be pinned.
  constexpr int32_t kSlots = 2;
  int32_t failures = 0;
  for (int32_t opens = 0; opens <= kSlots; ++failures) {
    cuda::set_mishaps({.fail_allocation = failures});
    try {
      gpu.forward.emplace(gpu.model, gpu.limits);
      ++opens;
      gpu.forward.reset();
    } catch (Error const& error) {
      CHECK(error.status() == BUNTING_NO_MEMORY, "allocation %d: %s", failures, error.what());
      uint64_t const free_now = cuda::device_info(0).memory_free_bytes;
      CHECK(free_now == free_bytes, "allocation %d: %lld bytes are gone", failures,
            (long long)(free_bytes - free_now));
    }
  }
  CHECK(failures > 5, "%d allocations", failures);
  cuda::set_mishaps({});
}

// With BUNTING_CUDA_SYNC=1 the block of a step that loses the device is kept, and runs again.
TEST(cuda_forward_keeps_the_block_of_a_lost_step) {
  bunting_model_shape const shape = shape_for_gpu();
  TinyFile const file(shape);
  ModelPointer const model = load_model(shape, file);
  bunting_engine_limits const limits = tiny_limits();
  std::vector<uint32_t> const block = encode({{}, {{0, {1, 2, 3}, {4}}}});
  std::vector<uint32_t> result(2000);
  setenv("BUNTING_CUDA_SYNC", "1", 1);
  std::string said;
  {
    EnginePointer const engine = open_engine(model.get(), limits);
    cuda::set_mishaps({.lose_device = 5});
    bunting_step_start(engine.get(), block.data(), block.size() * 4, result.data(), result.size() * 4);
    CHECK(bunting_step_wait(engine.get(), nullptr) == BUNTING_LOST, "not lost");
    said = bunting_last_error();
  }
  cuda::set_mishaps({});
  unsetenv("BUNTING_CUDA_SYNC");
  std::string const before = "; the block of its step is in ";
  REQUIRE(said.find(before) != said.npos, "%s", said.c_str());
  std::string const path = said.substr(said.find(before) + before.size());
  std::ifstream kept(path, std::ios::binary);
  std::string const bytes{std::istreambuf_iterator<char>(kept), {}};
  std::remove(path.c_str());
  REQUIRE(bytes.size() == block.size() * 4, "%zu bytes are kept", bytes.size());
  std::vector<uint32_t> again(block.size());
  std::memcpy(again.data(), bytes.data(), bytes.size());
  EnginePointer const engine = open_engine(model.get(), limits);
  CHECK(run_step(engine.get(), again, 1).status == BUNTING_OK, "%s", bunting_last_error());
}

// An engine that cannot record a step starts its kernels one by one, with the same results.
TEST(cuda_forward_works_without_graphs) {
  Gpu gpu(shape_for_gpu());
  std::vector<float> const want = a_few_steps(gpu);
  cuda::Mishaps const mishaps[] = {
      {.fail_in = "begin_recording"}, {.fail_in = "end_recording"}, {.no_memory_in = "end_recording"}};
  for (cuda::Mishaps const& mishap : mishaps) {
    gpu.forward.reset();
    cuda::set_mishaps(mishap);
    gpu.forward.emplace(gpu.model, gpu.limits);
    CHECK(a_few_steps(gpu) == want, "other logits");
  }
  cuda::set_mishaps({});
}
#endif

// A step whose biases and seen tokens do not fit in memory together is drawn in parts, with the same results.
TEST(cuda_forward_draws_in_parts) {
  bunting_model_shape const shape = shape_for_gpu();
  StepSpec step;
  for (int32_t i = 0; i < 4; ++i) {
    ChunkSpec chunk{0, random_tokens(uint64_t(i), 5, shape.vocab), pages_from(4 * i, 1)};
    RowSpec row;
    for (int32_t token = i % 2; token < shape.vocab; token += 1 + i % 2) {
      row.biases.insert(row.biases.end(), {token, std::bit_cast<int32_t>(float(token % 7))});
      row.seen.insert(row.seen.end(), {token, 1 + token % 3});
    }
    row.presence = 0.5f * float(i);
    chunk.row = row;
    step.chunks.push_back(chunk);
  }
  std::vector<uint32_t> const block = encode(step);
  auto const drawn = [&] {
    Gpu gpu(shape);
    std::vector<uint32_t> result(2000);
    gpu.forward->run(gpu.reader->read(block.data(), block.size() * 4, result.size() * 4), result.data());
    result[1] = 0;  // the time
    return result;
  };
  std::vector<uint32_t> const together = drawn();
  size_t const usual = std::exchange(cuda::StepArrays::pairs_at_once, 0);
  std::vector<uint32_t> const in_parts = drawn();
  cuda::StepArrays::pairs_at_once = usual;
  CHECK(together[0] == 4, "%u draws", together[0]);
  CHECK(in_parts == together, "other draws");
}

// The arrays of a step are pinned, so they must be small beside a machine's memory.
TEST(cuda_forward_pins_little_memory) {
  bunting_model_shape shape = tiny_shape();
  shape.layers = 1, shape.hidden = 4096, shape.vocab = 128256;
  shape.query_heads = 32, shape.kv_heads = 8, shape.head_size = 128, shape.rope = tiny_rope(128);
  shape.context_max = 131072;
  Model const model(shape);
  bunting_engine_limits limits = tiny_limits();
  limits.step_tokens_max = limits.step_chunks_max = limits.step_draws_max = 2048;
  size_t const bytes = cuda::StepInputs::bytes(model, limits, 264);
  CHECK(bytes < size_t(256) << 20, "%zu bytes", bytes);
}

// With layers in fp8, and with keys and values in fp8, logits stay close to those in bf16.
TEST(cuda_forward_in_fp8_stays_near_bf16) {
  bunting_model_shape shape = shape_for_gpu();
  shape.head_size = 64;
  shape.rope = tiny_rope(64);
  Gpu plain(shape);
  std::vector<float> const want = a_few_steps(plain);
  size_t const vocab = size_t(shape.vocab);
  bunting_model_shape with_kv = shape;
  with_kv.kv = BUNTING_KV_FP8;
  Gpu kv(with_kv);
  // Bytes per token, layer and head: one per number and two for the multiplier, for keys and for values.
  uint64_t const page = uint64_t(shape.layers) * uint64_t(shape.kv_heads) * 2 * 16 * (64 + 2);
  CHECK(kv.model.page_bytes() == page, "pages of %llu bytes", (unsigned long long)kv.model.page_bytes());
  std::vector<float> const with_less_kv = a_few_steps(kv);
  CHECK(with_less_kv != want && least_cosine(with_less_kv, want, vocab) > 0.99, "keys and values: cosine %g",
        least_cosine(with_less_kv, want, vocab));

  std::vector<uint8_t> formats(size_t(3 + 7 * shape.layers), BUNTING_FORMAT_FP8);
  formats[0] = formats[1] = BUNTING_FORMAT_PLAIN;
  shape.formats = formats.data();
  Gpu weights(shape);
  CHECK(cuda::DeviceWeights::bytes(weights.model) < cuda::DeviceWeights::bytes(plain.model), "no smaller");
  std::vector<float> const with_less_weights = a_few_steps(weights);
  CHECK(with_less_weights != want && least_cosine(with_less_weights, want, vocab) > 0.98,
        "weights: cosine %g", least_cosine(with_less_weights, want, vocab));
}

// Integers take less memory, and logits stay close to bf16.
TEST(cuda_forward_in_integers_stays_near_bf16) {
  bunting_model_shape shape = shape_for_gpu();
  shape.head_size = 64;
  shape.rope = tiny_rope(64);
  Gpu plain(shape);
  std::vector<float> const want = a_few_steps(plain);
  size_t const plain_bytes = cuda::DeviceWeights::bytes(plain.model);
  for (auto [format, least] : {std::pair(BUNTING_FORMAT_INT8, 0.999), std::pair(BUNTING_FORMAT_Q8_0, 0.999),
                               std::pair(BUNTING_FORMAT_INT6, 0.99), std::pair(BUNTING_FORMAT_INT4, 0.9)}) {
    std::vector<uint8_t> const formats(size_t(3 + 7 * shape.layers), uint8_t(format));
    shape.formats = formats.data();
    Gpu grouped(shape);
    size_t const bytes = cuda::DeviceWeights::bytes(grouped.model);
    CHECK(bytes < plain_bytes, "format %d: %zu bytes, plain %zu", format, bytes, plain_bytes);
    double const cosine = least_cosine(a_few_steps(grouped), want, size_t(shape.vocab));
    CHECK(cosine > least, "format %d: cosine %g", format, cosine);
  }
}

// Computes one sequence chunked and whole, with pages and tokens in any order, alone and in a batch, with
// cascade and flat plans. The bits must be the same.
TEST(cuda_forward_does_not_depend_on_how_a_step_was_composed) {
  constexpr int32_t kPrompt = 330, kCommon = 288, kPages = 21;
  for (int32_t window : {0, 100}) {
    bunting_model_shape shape = shape_for_gpu();
    shape.layer = tiny_layers([&](auto& layer) { layer.sliding_window = window; });
    Gpu gpu(shape);
    std::vector<int32_t> const tokens = random_tokens(3, kPrompt, shape.vocab);
    std::vector<int32_t> other = random_tokens(4, kPrompt, shape.vocab);
    std::copy_n(tokens.begin(), kCommon, other.begin());

    // Computes the prompt in chunks of `size`; returns the logits after its last token.
    auto const in_chunks = [&](int32_t size, std::vector<int32_t> const& pages, int32_t company) {
      std::vector<float> logits;
      for (int32_t begin = 0; begin < kPrompt; begin += size) {
        int32_t const end = std::min(begin + size, kPrompt), used = (end + 15) / 16;
        StepSpec step;
        step.chunks.push_back({begin, slice(tokens, begin, end), slice(pages, 0, used), end == kPrompt});
        ChunkSpec const beside{0, slice(other, 0, 17), {60, 61}, false};
        if (company > 0) step.chunks.push_back(beside);
        if (company > 1) std::swap(step.chunks[0], step.chunks[1]);
        logits = gpu.run(step);
      }
      return logits;
    };
    std::vector<int32_t> backwards = pages_from(30, kPages);
    std::reverse(backwards.begin(), backwards.end());
    std::vector<float> const whole = in_chunks(110, pages_from(0, kPages), 0);
    CHECK(in_chunks(110, backwards, 0) == whole, "window %d: other pages, other bits", window);
    CHECK(in_chunks(37, backwards, 0) == whole, "window %d: smaller chunks, other bits", window);
    CHECK(in_chunks(100, backwards, 1) == whole, "window %d: company, other bits", window);
    CHECK(in_chunks(60, backwards, 2) == whole, "window %d: company before it, other bits", window);

    // Another sequence reuses the shared pages; then both decode their last tokens in one step.
    in_chunks(110, pages_from(0, kPages), 0);
    std::vector<int32_t> theirs = pages_from(0, kCommon / 16);
    for (int32_t page : {50, 51, 52}) theirs.push_back(page);
    gpu.run({{}, {{kCommon, slice(other, kCommon, kPrompt - 1), theirs, false}}});
    std::vector<float> flat;
    for (std::vector<int32_t> const& shared : {std::vector<int32_t>{}, {0, 2, 0, kCommon}}) {
      std::vector<float> const both =
          gpu.run({{},
                   {{kPrompt - 1, slice(other, kPrompt - 1, kPrompt), theirs},
                    {kPrompt - 1, slice(tokens, kPrompt - 1, kPrompt), pages_from(0, kPages)}},
                   shared});
      CHECK(std::equal(whole.begin(), whole.end(), both.begin() + shape.vocab),
            "window %d: a decode beside another has other bits, %zu spans", window, shared.size() / 4);
      if (shared.empty()) flat = both;
      CHECK(both == flat, "window %d: cascade and flat differ", window);
    }
  }
}

// Draws from several tokens of a chunk: the logits after each equal those of single steps.
TEST(cuda_forward_samples_tokens_of_a_chunk_as_single_steps_do) {
  Gpu gpu(shape_for_gpu());
  size_t const vocab = size_t(gpu.model.shape().vocab);
  constexpr int32_t kStart = 30, kEnd = 50;
  std::vector<int32_t> const tokens = random_tokens(3, kEnd, int32_t(vocab));
  auto const chunk = [&](int32_t start, int32_t end) {
    return ChunkSpec{start, slice(tokens, start, end), pages_from(0, (end + 15) / 16)};
  };
  gpu.run({{}, {chunk(0, kStart)}});
  StepSpec step{{}, {chunk(kStart, kEnd), {0, slice(tokens, 0, 20), {40, 41}}}};
  std::vector<int32_t> positions;
  for (int32_t const position : {30, 31, 33, 40, 48}) {
    step.chunks[0].earlier.push_back({position - kStart, {}});
    positions.push_back(position);
  }
  positions.push_back(kEnd - 1);
  std::vector<float> const together = gpu.run(step);
  REQUIRE(together.size() == (positions.size() + 1) * vocab, "%zu logits", together.size());
  for (size_t r = 0; r < positions.size(); ++r) {
    std::vector<float> const alone = gpu.run({{}, {chunk(positions[r], positions[r] + 1)}});
    CHECK(std::equal(alone.begin(), alone.end(), together.begin() + int64_t(r * vocab)),
          "logits differ after position %d", positions[r]);
  }
}

}  // namespace bunting::test
