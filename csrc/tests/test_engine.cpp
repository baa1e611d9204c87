// test_engine.cpp - tests of opening an engine, of edge cases of a step, and of forbidden effects of a step:
// allocations, and errors that spread from one row to another.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <thread>

#include "tests/test.h"
#include "tests/tiny_model.h"

namespace {
std::atomic<int64_t> allocations{0};  // count over the whole test program
}

// Replaces all forms, so that every allocation is counted and each delete matches its own new.
void* operator new(size_t bytes, std::nothrow_t const&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes ? bytes : 1);
}
void* operator new(size_t bytes) {
  if (void* const memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t align) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  size_t const unit = size_t(align), rounded = (bytes + unit - 1) / unit * unit;
  if (void* const memory = std::aligned_alloc(unit, rounded ? rounded : unit)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace bunting::test {
namespace {

constexpr int32_t kVocab = 131;

ChunkSpec whole(uint64_t seed, int32_t count, int32_t first_page) {
  return {.start = 0,
          .tokens = random_tokens(seed, count, kVocab),
          .pages = pages_from(first_page, (count + 15) / 16)};
}

TEST(engine_step_allocates_nothing) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  EnginePointer const engine = open_engine(model.get(), tiny_limits());
  StepSpec step{{1, 2, 3}, {whole(1, 50, 10), whole(2, 1, 20), whole(3, 70, 30)}};
  step.chunks[0].row = {.temperature = 1, .top_p = 0.9f, .top_k = 20, .top_logprobs = 5};
  step.chunks[2].row.seen = {1, 1, 2, 3};
  std::vector<uint32_t> const block = encode(step);
  std::vector<uint32_t> result(1000);
  for (int round = 0; round < 3; round++) {
    int64_t const before = allocations.load();
    bunting_status const started =
        bunting_step_start(engine.get(), block.data(), block.size() * 4, result.data(), result.size() * 4);
    bunting_status const waited = bunting_step_wait(engine.get(), nullptr);
    int64_t const made = allocations.load() - before;
    CHECK(started == BUNTING_OK && waited == BUNTING_OK, "%s", bunting_last_error());
    CHECK(made == 0, "round %d: %lld allocations", round, (long long)made);
  }
}

#ifndef BUNTING_CUDA
// Appends of an aborted step have no effect: the same step is computed as if there had been none. A step
// aborted late has appended in most layers.
TEST(engine_gives_a_step_up) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  EnginePointer const engine = open_engine(model.get(), tiny_limits());
  EnginePointer const other = open_engine(model.get(), tiny_limits());
  StepSpec const step{{}, {whole(1, 100, 0)}};
  StepOutcome const expected = run_step(other.get(), step);
  std::vector<uint32_t> const block = encode(step);
  std::vector<uint32_t> result(1000);
  for (int round = 0; round < 40; round++) {
    std::atomic<int32_t> way{round == 0 ? 1 : 0};
    std::thread ringer([&] {
      for (int spin = 0; spin < 200 * round; spin++) std::atomic_signal_fence(std::memory_order_seq_cst);
      way.store(1, std::memory_order_relaxed);
    });
    REQUIRE(bunting_step_start(engine.get(), block.data(), block.size() * 4, result.data(),
                               result.size() * 4) == BUNTING_OK,
            "%s", bunting_last_error());
    bunting_status const status = bunting_step_wait(engine.get(), reinterpret_cast<int32_t const*>(&way));
    ringer.join();
    CHECK(status == BUNTING_OK || status == BUNTING_GAVE_WAY, "round %d: %s", round, bunting_last_error());
    CHECK(round > 0 || status == BUNTING_GAVE_WAY, "a step was computed that was given up before");
    StepOutcome const again = run_step(engine.get(), step);
    CHECK(again.logits == expected.logits && again.token(0) == expected.token(0),
          "round %d: other logits after a step that was given up", round);
  }
}
#endif

TEST(engine_runs_steps_at_the_edges) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  EnginePointer const engine = open_engine(model.get(), tiny_limits());
  CHECK(run_step(engine.get(), StepSpec{}).rows() == 0, "an empty step has rows");
  CHECK(run_step(engine.get(), StepSpec{{0, 1, 16}, {}}).rows() == 0, "copies alone have rows");
  ChunkSpec silent = whole(1, 33, 0);
  silent.sampled = false;
  CHECK(run_step(engine.get(), StepSpec{{}, {silent}}).rows() == 0, "a step that samples nothing has rows");
  CHECK(run_step(engine.get(), StepSpec{{}, {whole(1, 128, 0)}}).rows() == 1, "a full step");
  StepSpec decodes;
  for (int32_t i = 0; i < 8; i++) decodes.chunks.push_back(whole(uint64_t(i), 1, i));
  CHECK(run_step(engine.get(), decodes).rows() == 8, "as many chunks as fit");
  // Computes the last position of the context.
  run_step(engine.get(), StepSpec{{}, {whole(1, 128, 0)}});
  ChunkSpec rest{.start = 128, .tokens = random_tokens(3, 72, kVocab), .pages = pages_from(0, 13)};
  StepOutcome const last = run_step(engine.get(), StepSpec{{}, {rest}});
  CHECK(last.rows() == 1 && last.row(0)[0] == 0, "the last position of the context");
}

// Greedy picks the largest logit; a ban, a bias and a mask move it; logprobs are those of the raw logits.
TEST(engine_draws_as_told) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  EnginePointer const engine = open_engine(model.get(), tiny_limits());
  ChunkSpec chunk = whole(1, 20, 0);
  chunk.row.top_logprobs = 2;
  StepOutcome const plain = run_step(engine.get(), StepSpec{{}, {chunk}});
  REQUIRE(plain.rows() == 1, "%d rows", plain.rows());
  int32_t best = 0;
  double sum = 0;
  for (int32_t t = 0; t < kVocab; t++) {
    if (plain.logits[size_t(t)] > plain.logits[size_t(best)]) best = t;
    sum += std::exp(double(plain.logits[size_t(t)]));
  }
  CHECK(plain.token(0) == best, "drew %d, the arg-max is %d", plain.token(0), best);
  float logprob;
  std::memcpy(&logprob, plain.row(0) + 2, sizeof logprob);
  double const expected = double(plain.logits[size_t(best)]) - std::log(sum);
  CHECK(std::fabs(double(logprob) - expected) < 1e-4, "logprob %g, expected %g", double(logprob), expected);
  CHECK(plain.row(0)[3] == 2 && plain.row(0)[4] == best, "alternatives: %d, first %d", plain.row(0)[3],
        plain.row(0)[4]);

  float const banned = -std::numeric_limits<float>::infinity();
  int32_t banned_bits;
  std::memcpy(&banned_bits, &banned, sizeof banned);
  chunk.row.biases = {best, banned_bits};
  StepOutcome const second = run_step(engine.get(), StepSpec{{}, {chunk}});
  CHECK(second.token(0) == plain.row(0)[6], "without the best, drew %d instead of the second %d",
        second.token(0), plain.row(0)[6]);
  chunk.row.mask.assign(5, 0);
  chunk.row.mask[3] = 1u << 7;
  StepOutcome const masked = run_step(engine.get(), StepSpec{{}, {chunk}});
  CHECK(masked.token(0) == 3 * 32 + 7, "the mask allows one token, drew %d", masked.token(0));
  chunk.row.mask[3] = 0;
  StepOutcome const nothing = run_step(engine.get(), StepSpec{{}, {chunk}});
  CHECK(nothing.row(0)[0] == 2, "nothing is allowed, status %d", nothing.row(0)[0]);
}

// A token with an infinite embedding spoils only its own sequence, and not the page that it leaves behind.
// The embedding is finite in the file, because loading would reject infinity, and rounds to infinity.
TEST(engine_contains_nan) {
  constexpr int32_t kPoison = 77;
  {
    bunting_model_shape const shape = tiny_shape();
    TinyFile const file(shape);
    file.poke(BUNTING_T_EMBED, 0, int64_t(kPoison) * shape.hidden + 3, std::numeric_limits<float>::max());
    ModelPointer const model = load_model(shape, file);
    REQUIRE(model, "no model");
    EnginePointer const engine = open_engine(model.get(), tiny_limits());
    ChunkSpec const clean{.start = 0, .tokens = std::vector<int32_t>(21, 5), .pages = pages_from(0, 2)};
    ChunkSpec const spoiled{
        .start = 0, .tokens = std::vector<int32_t>(21, kPoison), .pages = pages_from(4, 2)};
    StepOutcome const alone = run_step(engine.get(), StepSpec{{}, {clean}});
    StepOutcome const both = run_step(engine.get(), StepSpec{{}, {spoiled, clean}});
    REQUIRE(both.rows() == 2, "%d rows", both.rows());
    CHECK(both.row(0)[0] == 1, "status %d of a row that is not finite", both.row(0)[0]);
    CHECK(both.row(1)[0] == 0 && both.token(1) == alone.token(0), "the neighbour's row changed");
    ChunkSpec reuse = clean;
    reuse.pages = spoiled.pages;
    StepOutcome const reused = run_step(engine.get(), StepSpec{{}, {reuse}});
    CHECK(reused.logits == alone.logits, "what an earlier sequence left in a page shows");
  }
}

uint64_t tiny_page_bytes() {
  uint64_t weights = 0, page = 0, states = 0;
  bunting_model_shape const shape = tiny_shape();
  CHECK(bunting_model_plan(&shape, 16, &weights, &page, &states) == BUNTING_OK, "%s", bunting_last_error());
  return page;
}

// While steps run, another thread reads pages of a finished prompt and writes pages that no step uses. Both
// prompts then continue with the expected bits.
TEST(engine_copies_pages_beside_steps) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  EnginePointer const engine = open_engine(model.get(), tiny_limits());
  size_t const page_bytes = size_t(tiny_page_bytes());
  ChunkSpec const prompt = whole(1, 64, 0);
  run_step(engine.get(), StepSpec{{}, {prompt}});
  ChunkSpec next{.start = 64, .tokens = {5}, .pages = pages_from(0, 5)};
  StepOutcome const expected = run_step(engine.get(), StepSpec{{}, {next}});
  std::vector<int32_t> const from = pages_from(0, 4), to = pages_from(30, 4);
  std::vector<char> bytes(4 * page_bytes);
  std::atomic<bool> is_over{false};
  std::atomic<int32_t> failures{0};
  std::thread copier([&] {
    do {
      bool const is_read =
          bunting_engine_read_pages(engine.get(), from.data(), 4, bytes.data(), bytes.size()) == BUNTING_OK;
      bool const is_written =
          bunting_engine_write_pages(engine.get(), to.data(), 4, bytes.data(), bytes.size()) == BUNTING_OK;
      failures += !is_read + !is_written;
    } while (!is_over);
  });
  ChunkSpec beside = whole(2, 100, 40);
  StepOutcome const first = run_step(engine.get(), StepSpec{{}, {next, beside}});
  for (int round = 0; round < 20; round++) {
    StepOutcome const again = run_step(engine.get(), StepSpec{{}, {next, beside}});
    CHECK(again.logits == first.logits, "round %d: copies of pages show", round);
  }
  is_over = true;
  copier.join();
  CHECK(failures == 0, "%d copies failed", failures.load());
  CHECK(std::memcmp(first.logits.data(), expected.logits.data(), kVocab * sizeof(float)) == 0,
        "the prompt whose pages are read changed");
  next.pages = {30, 31, 32, 33, 50};
  StepOutcome const copied = run_step(engine.get(), StepSpec{{}, {next}});
  CHECK(copied.logits == expected.logits, "the copied pages differ");
}

TEST(engine_refuses_wrong_copies_of_pages) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  EnginePointer const engine = open_engine(model.get(), tiny_limits());
  size_t const page_bytes = size_t(tiny_page_bytes());
  std::vector<char> bytes(2 * page_bytes);
  auto const status = [&](std::vector<int32_t> const& pages, int32_t count, size_t size) {
    bunting_status const read =
        bunting_engine_read_pages(engine.get(), pages.data(), count, bytes.data(), size);
    bunting_status const write =
        bunting_engine_write_pages(engine.get(), pages.data(), count, bytes.data(), size);
    CHECK(read == write, "reading ended with %d, writing with %d", read, write);
    return read;
  };
  CHECK(status({0, 63}, 2, 2 * page_bytes) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(status({}, 0, 0) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(status({0, 64}, 2, 2 * page_bytes) == BUNTING_INVALID, "a page beyond the last one");
  CHECK(status({-1, 0}, 2, 2 * page_bytes) == BUNTING_INVALID, "page -1");
  CHECK(status({0, 1}, 2, 2 * page_bytes - 1) == BUNTING_INVALID, "too few bytes");
  CHECK(status({}, -1, 0) == BUNTING_INVALID, "a negative count");
}

TEST(engine_refuses_wrong_limits) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  auto const status = [&](int32_t bunting_engine_limits::* limit, int32_t value) {
    bunting_engine_limits limits = tiny_limits();
    limits.*limit = value;
    bunting_engine* engine = nullptr;
    return bunting_engine_open(model.get(), nullptr, &limits, nullptr, &engine);
  };
  CHECK(status(&bunting_engine_limits::threads, 0) == BUNTING_INVALID, "no threads");
  CHECK(status(&bunting_engine_limits::pages, 0) == BUNTING_INVALID, "no pages");
  CHECK(status(&bunting_engine_limits::page_tokens, 32) == BUNTING_INVALID, "other pages");
  CHECK(status(&bunting_engine_limits::step_tokens_max, -1) == BUNTING_INVALID, "negative step");
  CHECK(status(&bunting_engine_limits::step_chunks_max, 0) == BUNTING_INVALID, "no chunks");
  CHECK(status(&bunting_engine_limits::step_draws_max, 0) == BUNTING_INVALID, "no rows");
  CHECK(status(&bunting_engine_limits::device_count, 1) == BUNTING_INVALID, "a GPU for the CPU engine");
  CHECK(status(&bunting_engine_limits::top_logprobs_max, -1) == BUNTING_INVALID, "negative logprobs");
}

}  // namespace
}  // namespace bunting::test
