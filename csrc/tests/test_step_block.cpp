// test_step_block.cpp - tests of bad step blocks: each is rejected with a sentence and changes nothing, on
// the CPU engine and, in bunting_emulator_tests, on the CUDA engine.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "boundary/error.h"
#include "boundary/step_block.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Returns a block with every kind of array: a decode that copies a page first, a prompt chunk that does not
// sample, and a prompt that samples twice. It has biases, seen tokens and masks, and two sequences that share
// a page.
StepSpec rich_step() {
  StepSpec step;
  step.copies = {1, 4, 5};
  step.chunks.push_back({.start = 20, .tokens = {3}, .pages = {0, 4}});
  step.chunks.push_back(
      {.start = 0, .tokens = random_tokens(1, 18, 131), .pages = {10, 11}, .sampled = false});
  RowSpec row{.temperature = 0.7f,
              .top_p = 0.9f,
              .min_p = 0.01f,
              .repetition = 1.1f,
              .presence = 0.5f,
              .frequency = 0.2f};
  row.top_k = 40;
  row.top_logprobs = 5;
  row.biases = {7, int32_t(bits_of(1.5f)), 8, int32_t(bits_of(-std::numeric_limits<float>::infinity()))};
  row.seen = {9, 2, 10, 0};
  row.mask.assign(5, 0xffffffffu);
  step.chunks.push_back({.start = 0, .tokens = {1, 2, 3}, .pages = {12}, .row = row, .earlier = {{1, row}}});
  step.chunks.push_back({.start = 16, .tokens = {4}, .pages = {20, 13}, .sampled = false});
  step.chunks.push_back({.start = 17, .tokens = {5}, .pages = {20, 14}, .sampled = false});
  step.shared = {22, 24, 0, 16};
  return step;
}

constexpr int32_t kRows = 3;  // rows of rich_step()

struct Fixture {
  TinyFile file{tiny_shape()};
  ModelPointer model = load_model(tiny_shape(), file);
  EnginePointer engine = model ? open_engine(model.get(), tiny_limits()) : nullptr;
};

uint32_t* words_at(std::vector<uint32_t>& block, int32_t bunting_step_header::* at) {
  bunting_step_header header;
  std::memcpy(&header, block.data(), sizeof header);
  return block.data() + header.*at;
}

TEST(step_block_rich_step_runs) {
  Fixture fixture;
  REQUIRE(fixture.engine, "no engine");
  StepOutcome const outcome = run_step(fixture.engine.get(), rich_step());
  REQUIRE(outcome.rows() == kRows, "%d rows", outcome.rows());
  for (int32_t r = 1; r < kRows; r++)
    CHECK(outcome.row(r)[0] == 0 && outcome.row(r)[3] == 5, "row %d: status %d, %d alternatives", r,
          outcome.row(r)[0], outcome.row(r)[3]);
}

TEST(step_block_refuses_each_wrong_thing) {
  Fixture fixture;
  REQUIRE(fixture.engine, "no engine");
  using Block = std::vector<uint32_t>;
  using Header = bunting_step_header;
  constexpr uint32_t kMinusOne = uint32_t(-1);
  struct Case {
    char const* name;
    void (*spoil)(Block&);
  };
  Case const cases[] = {
      {"magic", [](Block& b) { b[0]++; }},
      {"words_total beyond the buffer", [](Block& b) { b[1]++; }},
      {"words_total below the header", [](Block& b) { b[1] = 19; }},
      {"negative count", [](Block& b) { b[2] = kMinusOne; }},
      {"huge count", [](Block& b) { b[3] = 0x7fffffff; }},
      {"array in the header", [](Block& b) { b[12] = 0; }},
      {"array offset near 2^31", [](Block& b) { b[13] = 0x7ffffffe; }},
      {"move from page -1", [](Block& b) { words_at(b, &Header::moves_at)[0] = kMinusOne; }},
      {"move to page 64 of 64", [](Block& b) { words_at(b, &Header::moves_at)[1] = 64; }},
      {"move of 0 tokens", [](Block& b) { words_at(b, &Header::moves_at)[2] = 0; }},
      {"move of 17 tokens", [](Block& b) { words_at(b, &Header::moves_at)[2] = 17; }},
      {"move onto itself", [](Block& b) { words_at(b, &Header::moves_at)[1] = 1; }},
      {"move from another tier", [](Block& b) { words_at(b, &Header::moves_at)[3] = 1; }},
      {"token -1", [](Block& b) { words_at(b, &Header::tokens_at)[0] = kMinusOne; }},
      {"token outside the vocabulary", [](Block& b) { words_at(b, &Header::tokens_at)[2] = 131; }},
      {"rows of chunks overlap", [](Block& b) { words_at(b, &Header::chunks_at)[BUNTING_CHUNK_WORDS] = 0; }},
      {"chunk of 0 tokens", [](Block& b) { words_at(b, &Header::chunks_at)[1] = 0; }},
      {"chunk leaves the tokens",
       [](Block& b) { words_at(b, &Header::chunks_at)[2 * BUNTING_CHUNK_WORDS + 1] = 0x7fffffff; }},
      {"negative start", [](Block& b) { words_at(b, &Header::chunks_at)[2] = kMinusOne; }},
      {"beyond the context", [](Block& b) { words_at(b, &Header::chunks_at)[2] = 200; }},
      {"start near 2^31", [](Block& b) { words_at(b, &Header::chunks_at)[2] = 0x7fffffff; }},
      {"first page entry negative", [](Block& b) { words_at(b, &Header::chunks_at)[3] = kMinusOne; }},
      {"page entries leave the array", [](Block& b) { words_at(b, &Header::chunks_at)[3] = 8; }},
      {"too few pages", [](Block& b) { words_at(b, &Header::chunks_at)[4] = 1; }},
      {"too many pages", [](Block& b) { words_at(b, &Header::chunks_at)[4] = 3; }},
      {"first row out of order", [](Block& b) { words_at(b, &Header::chunks_at)[5] = 1; }},
      {"-1 rows", [](Block& b) { words_at(b, &Header::chunks_at)[BUNTING_CHUNK_WORDS + 6] = kMinusOne; }},
      {"a row of no chunk",
       [](Block& b) { words_at(b, &Header::chunks_at)[2 * BUNTING_CHUNK_WORDS + 6] = 1; }},
      {"more rows than there are",
       [](Block& b) { words_at(b, &Header::chunks_at)[2 * BUNTING_CHUNK_WORDS + 6] = 0x7fffffff; }},
      {"a chunk takes the next one's rows", [](Block& b) { words_at(b, &Header::chunks_at)[6] = 2; }},
      {"an adapter", [](Block& b) { words_at(b, &Header::chunks_at)[7] = 1; }},
      {"a second text behind the chunk", [](Block& b) { words_at(b, &Header::chunks_at)[8] = 1 << 20; }},
      {"a next token outside the vocabulary", [](Block& b) { words_at(b, &Header::chunks_at)[12] = 131; }},
      {"next token -2", [](Block& b) { words_at(b, &Header::chunks_at)[12] = uint32_t(-2); }},
      {"drafts without a head", [](Block& b) { words_at(b, &Header::chunks_at)[13] = 1; }},
      {"-1 drafts", [](Block& b) { words_at(b, &Header::chunks_at)[13] = kMinusOne; }},
      {"page 64 of 64", [](Block& b) { words_at(b, &Header::pages_at)[0] = 64; }},
      {"page -1", [](Block& b) { words_at(b, &Header::pages_at)[4] = kMinusOne; }},
      {"two chunks write one page", [](Block& b) { words_at(b, &Header::pages_at)[4] = 10; }},
      {"one chunk writes a page twice", [](Block& b) { words_at(b, &Header::pages_at)[3] = 10; }},
      {"a chunk reads what another writes", [](Block& b) { words_at(b, &Header::pages_at)[0] = 12; }},
      {"a chunk reads what it writes", [](Block& b) { words_at(b, &Header::pages_at)[0] = 4; }},
      {"temperature < 0", [](Block& b) { words_at(b, &Header::rows_at)[0] = bits_of(-1); }},
      {"temperature NaN", [](Block& b) { words_at(b, &Header::rows_at)[0] = bits_of(NAN); }},
      {"temperature infinite", [](Block& b) { words_at(b, &Header::rows_at)[0] = bits_of(INFINITY); }},
      {"top_p > 1", [](Block& b) { words_at(b, &Header::rows_at)[1] = bits_of(1.5f); }},
      {"min_p < 0", [](Block& b) { words_at(b, &Header::rows_at)[2] = bits_of(-0.5f); }},
      {"repetition 0", [](Block& b) { words_at(b, &Header::rows_at)[3] = bits_of(0); }},
      {"presence NaN", [](Block& b) { words_at(b, &Header::rows_at)[4] = bits_of(NAN); }},
      {"top_k < 0", [](Block& b) { words_at(b, &Header::rows_at)[6] = kMinusOne; }},
      {"biases leave the pairs", [](Block& b) { words_at(b, &Header::rows_at)[20 + 10] = 7; }},
      {"negative count of biases", [](Block& b) { words_at(b, &Header::rows_at)[20 + 11] = kMinusOne; }},
      {"bias of token 131", [](Block& b) { words_at(b, &Header::pairs_at)[0] = 131; }},
      {"bias NaN", [](Block& b) { words_at(b, &Header::pairs_at)[1] = bits_of(NAN); }},
      {"bias +inf", [](Block& b) { words_at(b, &Header::pairs_at)[1] = bits_of(INFINITY); }},
      {"seen token -1", [](Block& b) { words_at(b, &Header::pairs_at)[4] = kMinusOne; }},
      {"seen count -1", [](Block& b) { words_at(b, &Header::pairs_at)[5] = kMinusOne; }},
      {"mask leaves the words", [](Block& b) { words_at(b, &Header::rows_at)[20 + 14] = 6; }},
      {"mask at -2", [](Block& b) { words_at(b, &Header::rows_at)[20 + 14] = uint32_t(-2); }},
      {"too many logprobs", [](Block& b) { words_at(b, &Header::rows_at)[20 + 15] = 6; }},
      {"logprobs -2", [](Block& b) { words_at(b, &Header::rows_at)[20 + 15] = uint32_t(-2); }},
      {"a draw after token 1 of 1", [](Block& b) { words_at(b, &Header::rows_at)[16] = 1; }},
      {"a draw after token -1", [](Block& b) { words_at(b, &Header::rows_at)[20 + 16] = kMinusOne; }},
      {"two draws after one token", [](Block& b) { words_at(b, &Header::rows_at)[40 + 16] = 1; }},
      {"draws out of order", [](Block& b) { words_at(b, &Header::rows_at)[40 + 16] = 0; }},
      {"reserved word", [](Block& b) { words_at(b, &Header::rows_at)[19] = 1; }},
      {"a wish that is not known", [](Block& b) { words_at(b, &Header::rows_at)[17] = 2; }},
      {"a hidden state that is also drawn from",
       [](Block& b) { words_at(b, &Header::rows_at)[20 + 17] = BUNTING_WANTS_HIDDEN; }},
      {"a state slot without states", [](Block& b) { words_at(b, &Header::chunks_at)[9] = 0; }},
      {"a state to begin from without states", [](Block& b) { words_at(b, &Header::chunks_at)[10] = 0; }},
      {"saves without states", [](Block& b) { words_at(b, &Header::chunks_at)[11] = 1; }},
      {"shared rows leave the step", [](Block& b) { words_at(b, &Header::shared_at)[1] = 25; }},
      {"shared rows begin in a chunk", [](Block& b) { words_at(b, &Header::shared_at)[0] = 20; }},
      {"one chunk shares with no other", [](Block& b) { words_at(b, &Header::shared_at)[1] = 23; }},
      {"a span without a parent begins late", [](Block& b) { words_at(b, &Header::shared_at)[2] = 16; }},
      {"shared positions reversed", [](Block& b) { words_at(b, &Header::shared_at)[3] = 0; }},
      {"shared positions are no whole pages", [](Block& b) { words_at(b, &Header::shared_at)[3] = 8; }},
      {"shared positions are computed in the step",
       [](Block& b) { words_at(b, &Header::shared_at)[3] = 32; }},
      {"shared pages differ", [](Block& b) { words_at(b, &Header::pages_at)[7] = 21; }},
  };
  for (Case const& c : cases) {
    Block block = encode(rich_step());
    c.spoil(block);
    StepOutcome const outcome = run_step(fixture.engine.get(), block, kRows);
    CHECK(outcome.status == BUNTING_INVALID, "%s: status %d", c.name, outcome.status);
    CHECK(std::strlen(bunting_last_error()) > 0, "%s: no sentence", c.name);
  }
  int32_t rows = 0;
  float const* logits = nullptr;
  CHECK(bunting_engine_logits(fixture.engine.get(), &logits, &rows) == BUNTING_OK && rows == 0,
        "%d rows of no step", rows);
  run_step(fixture.engine.get(),
           rich_step());  // the engine still works, and keeps its logits when it rejects more
  run_step(fixture.engine.get(), {1, 2, 3}, kRows);
  CHECK(bunting_engine_logits(fixture.engine.get(), &logits, &rows) == BUNTING_OK && rows == kRows,
        "%d rows of %d", rows, kRows);
}

// Returns sequences A to E, where A, B and C share two pages, and A and B two more.
StepSpec shared_step(std::vector<int32_t> spans) {
  StepSpec step;
  int32_t const tables[5][5] = {
      {0, 1, 2, 3, 10}, {0, 1, 2, 3, 11}, {0, 1, 4, 5, 12}, {6, 7, 8, 9, 13}, {6, 7, 20, 21, 14}};
  for (auto const& table : tables)
    step.chunks.push_back({.start = 64, .tokens = {1}, .pages = {table, table + 5}});
  step.shared = std::move(spans);
  return step;
}

TEST(step_block_takes_shared_spans_that_nest) {
  Fixture fixture;
  REQUIRE(fixture.engine, "no engine");
  struct Case {
    char const* name;
    std::vector<int32_t> spans;
    bool is_legal;
  };
  Case const cases[] = {
      {"none", {}, true},
      {"one", {0, 3, 0, 32}, true},
      {"less than there is", {1, 3, 0, 16}, true},
      {"a child, then another tree", {0, 3, 0, 32, 0, 2, 32, 64, 3, 5, 0, 32}, true},
      {"the same chunks go on", {0, 2, 0, 32, 0, 2, 32, 48, 0, 2, 48, 64}, true},
      {"a child before its parent", {0, 2, 32, 64, 0, 3, 0, 32}, false},
      {"a child leaves a gap", {0, 3, 0, 16, 0, 2, 32, 64}, false},
      {"a child overlaps", {0, 3, 0, 32, 0, 2, 16, 64}, false},
      {"a child has more chunks", {0, 2, 0, 32, 0, 3, 32, 48}, false},
      {"trees out of order", {3, 5, 0, 32, 0, 3, 0, 32}, false},
      {"the same span twice", {0, 3, 0, 32, 0, 3, 0, 32}, false},
      {"as many spans as chunks",
       {0, 2, 0, 16, 0, 2, 16, 32, 0, 2, 32, 48, 0, 2, 48, 64, 3, 5, 0, 16},
       false},
  };
  for (Case const& c : cases) {
    StepOutcome const outcome = run_step(fixture.engine.get(), encode(shared_step(c.spans)), 5);
    CHECK(outcome.status == (c.is_legal ? BUNTING_OK : BUNTING_INVALID), "%s: status %d", c.name,
          outcome.status);
  }
}

// Returns a prompt that saves two checkpoints, a decode, and two chunks that begin from one checkpoint.
StepSpec stateful_step() {
  StepSpec step;
  auto const add = [&](int32_t start, int32_t count, int32_t page, int32_t state, int32_t from,
                       std::vector<int32_t> saves) {
    step.chunks.push_back({.start = start,
                           .tokens = random_tokens(1, count, 131),
                           .pages = pages_from(page, (start + count + 15) / 16),
                           .sampled = false,
                           .state = state,
                           .from = from,
                           .saves = std::move(saves)});
  };
  add(0, 20, 0, 0, -1, {16, 1, 20, 2});
  add(17, 1, 2, 3, 3, {1, 6});
  add(16, 4, 4, 4, 7, {});
  add(16, 5, 6, 5, 7, {});
  return step;
}

TEST(step_block_reads_states_and_refuses_wrong_ones) {
  StepLimits limits{.pages = 64, .page_tokens = 16, .states = 8, .tokens_max = 64, .chunks_max = 8};
  limits.vocab = 131, limits.context_max = 200;
  StepReader reader(limits);
  auto const read = [&](StepSpec const& step) -> StepPlan const& {
    static std::vector<uint32_t> block;
    block = encode(step);
    return reader.read(block.data(), block.size() * 4, 1 << 10);
  };
  StepPlan const& plan = read(stateful_step());
  ChunkState const &first = plan.state[0], &second = plan.state[1], &last = plan.state[3];
  CHECK(first.slot == 0 && first.from == -1 && first.save_count == 2, "first chunk");
  CHECK(first.saves[1].count == 20 && first.saves[1].slot == 2, "second save");
  CHECK(second.slot == 3 && second.from == 3 && second.saves[0].slot == 6, "second chunk");
  CHECK(last.slot == 5 && last.from == 7 && last.save_count == 0, "last chunk");

  struct Case {
    char const* name;
    void (*spoil)(StepSpec&);
  };
  Case const cases[] = {
      {"no slot", [](StepSpec& s) { s.chunks[1].state = -1; }},
      {"slot 8 of 8", [](StepSpec& s) { s.chunks[1].state = 8; }},
      {"one slot of two chunks", [](StepSpec& s) { s.chunks[3].state = 4; }},
      {"zeros in the middle", [](StepSpec& s) { s.chunks[1].from = -1; }},
      {"a state at position 0", [](StepSpec& s) { s.chunks[0].from = 0; }},
      {"from slot 8 of 8", [](StepSpec& s) { s.chunks[1].from = 8; }},
      {"from -2", [](StepSpec& s) { s.chunks[1].from = -2; }},
      {"from a slot that another chunk writes", [](StepSpec& s) { s.chunks[2].from = 3; }},
      {"from a slot that another chunk saves", [](StepSpec& s) { s.chunks[2].from = 1; }},
      {"from a slot that it saves itself", [](StepSpec& s) { s.chunks[2].saves = {2, 7}; }},
      {"a save after 0 tokens", [](StepSpec& s) { s.chunks[0].saves[0] = 0; }},
      {"a save behind the chunk", [](StepSpec& s) { s.chunks[0].saves[2] = 21; }},
      {"saves that do not rise", [](StepSpec& s) { s.chunks[0].saves[2] = 16; }},
      {"a save to slot -1", [](StepSpec& s) { s.chunks[0].saves[1] = -1; }},
      {"a save to slot 8 of 8", [](StepSpec& s) { s.chunks[0].saves[1] = 8; }},
      {"a save to its own slot", [](StepSpec& s) { s.chunks[0].saves[1] = 0; }},
      {"two saves to one slot", [](StepSpec& s) { s.chunks[0].saves[3] = 1; }},
  };
  auto const is_refused = [&](std::vector<uint32_t> const& block) {
    try {
      reader.read(block.data(), block.size() * 4, 1 << 10);
      return false;
    } catch (Error const& error) {
      return error.status() == BUNTING_INVALID;
    }
  };
  for (Case const& c : cases) {
    StepSpec step = stateful_step();
    c.spoil(step);
    CHECK(is_refused(encode(step)), "%s: accepted", c.name);
  }
  for (uint32_t const count : {uint32_t(-1), 1u, 3u, 4u, 0x7fffffffu}) {
    std::vector<uint32_t> block = encode(stateful_step());
    words_at(block, &bunting_step_header::chunks_at)[11] = count;
    CHECK(is_refused(block), "%u saves: accepted", count);
  }
}

TEST(step_block_refuses_more_rows_than_the_limit) {
  Fixture fixture;
  REQUIRE(fixture.engine, "no engine");
  int32_t const most = tiny_limits().step_draws_max;
  for (int32_t const rows : {most, most + 1}) {
    ChunkSpec chunk{
        .start = 0, .tokens = random_tokens(1, rows, 131), .pages = pages_from(0, (rows + 15) / 16)};
    for (int32_t token = 0; token + 1 < rows; token++) chunk.earlier.push_back({token, {}});
    StepOutcome const outcome = run_step(fixture.engine.get(), encode({{}, {chunk}}), rows);
    CHECK(outcome.status == (rows > most ? BUNTING_INVALID : BUNTING_OK), "%d rows: status %d", rows,
          outcome.status);
  }
}

TEST(step_block_refuses_more_hidden_states_than_the_limit_or_the_result_can_hold) {
  Fixture fixture;
  REQUIRE(fixture.engine, "no engine");
  int32_t const most = tiny_limits().step_hidden_max;
  for (int32_t const hidden : {most, most + 1}) {
    ChunkSpec chunk{.start = 0,
                    .tokens = random_tokens(1, hidden, 131),
                    .pages = pages_from(0, (hidden + 15) / 16),
                    .sampled = false};
    for (int32_t token = 0; token < hidden; token++) chunk.earlier.push_back({token, {.hidden = true}});
    StepOutcome const outcome = run_step(fixture.engine.get(), encode({{}, {chunk}}), 0, hidden);
    CHECK(outcome.status == (hidden > most ? BUNTING_INVALID : BUNTING_OK), "%d: status %d", hidden,
          outcome.status);
    CHECK(run_step(fixture.engine.get(), encode({{}, {chunk}}), 0, hidden - 1).status == BUNTING_INVALID,
          "a result without room for the last one");
  }
}

TEST(step_block_refuses_wrong_buffers) {
  Fixture fixture;
  REQUIRE(fixture.engine, "no engine");
  bunting_engine* const engine = fixture.engine.get();
  std::vector<uint32_t> const block = encode(rich_step());
  std::vector<uint32_t> result(1000);
  uint64_t const needed = StepReader::result_bytes(kRows, 5, 0, 0, 0);
  auto const start = [&](void const* from, uint64_t bytes, void* to, uint64_t to_bytes) {
    return bunting_step_start(engine, from, bytes, to, to_bytes);
  };
  CHECK(start(nullptr, 1000, result.data(), needed) == BUNTING_INVALID, "null block");
  CHECK(start(block.data(), block.size() * 4, nullptr, needed) == BUNTING_INVALID, "null result");
  CHECK(start(block.data(), 71, result.data(), needed) == BUNTING_INVALID, "half a header");
  CHECK(start(block.data(), block.size() * 4 - 1, result.data(), needed) == BUNTING_INVALID,
        "a byte is missing");
  CHECK(start(block.data(), block.size() * 4, result.data(), needed - 1) == BUNTING_INVALID, "small result");
  CHECK(start(reinterpret_cast<char const*>(block.data()) + 2, block.size() * 4 - 2, result.data(), needed) ==
            BUNTING_INVALID,
        "odd address");
  CHECK(bunting_step_wait(engine, nullptr) == BUNTING_INVALID, "waited without a step");
  REQUIRE(start(block.data(), block.size() * 4, result.data(), needed) == BUNTING_OK, "%s",
          bunting_last_error());
  CHECK(start(block.data(), block.size() * 4, result.data(), needed) == BUNTING_INVALID, "two steps at once");
  CHECK(bunting_step_wait(engine, nullptr) == BUNTING_OK, "%s", bunting_last_error());
}

// Random damage is either detected or makes another legal step. Both buffers are exactly as large as they
// claim, so the address sanitizer shows any overrun. The emulated GPU checks every access and finds accesses
// beyond the pages. Afterwards the engine computes the same results as before.
TEST(step_block_survives_random_damage) {
  Fixture fixture;
  REQUIRE(fixture.engine, "no engine");
  StepSpec const control{{}, {{.start = 0, .tokens = random_tokens(5, 40, 131), .pages = pages_from(30, 3)}}};
  StepOutcome const before = run_step(fixture.engine.get(), control);
  std::vector<uint32_t> const good = encode(rich_step());
  Random random{2024};
  int32_t ran = 0, refused = 0;
#ifdef BUNTING_CUDA
  constexpr int32_t kRounds = 300;  // few, because a step on the emulated GPU is slow
#else
  constexpr int32_t kRounds = 20000;
#endif
  for (int32_t round = 0; round < kRounds; round++) {
    auto const block = std::make_unique<uint32_t[]>(good.size());
    std::memcpy(block.get(), good.data(), good.size() * 4);
    for (int32_t damage = 1 + random.below(3); damage > 0; damage--) {
      uint32_t& word = block[size_t(random.below(int32_t(good.size())))];
      switch (random.below(5)) {
        case 0:
          word = uint32_t(random.next());
          break;
        case 1:
          word ^= 1u << random.below(32);
          break;
        case 2:
          word += random.below(2) ? 1 : -1;
          break;
        case 3:
          word = uint32_t(random.below(64));
          break;
        default:
          word = random.below(2) ? 0x7fffffffu : 0x80000000u;
      }
    }
    uint64_t const result_words = StepReader::result_bytes(kRows, 5, 0, 0, 0) / 4;
    auto const result = std::make_unique<uint32_t[]>(result_words);
    bunting_status status = bunting_step_start(fixture.engine.get(), block.get(), good.size() * 4,
                                               result.get(), result_words * 4);
    if (status == BUNTING_OK) status = bunting_step_wait(fixture.engine.get(), nullptr);
    CHECK(status == BUNTING_OK || status == BUNTING_INVALID, "round %d: status %d", round, status);
    (status == BUNTING_OK ? ran : refused)++;
  }
  CHECK(ran > kRounds / 200 && refused > kRounds / 20, "%d ran, %d refused: the damage is one-sided", ran,
        refused);
  StepOutcome const after = run_step(fixture.engine.get(), control);
  CHECK(before.logits == after.logits, "the engine computes something else afterwards");
}

}  // namespace
}  // namespace bunting::test
