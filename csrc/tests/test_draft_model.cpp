// test_draft_model.cpp - tests of a second model that drafts: it changes no draw, and drafts what it draws
// when it is served alone, for every chunking, batch, number of threads, and from copied pages.
#include <algorithm>
#include <cstring>

#include "cpu/kernels/kernels.h"
#include "host/machine.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

constexpr int32_t kPrompt = 41, kDrafts = 5, kDecodes = 40;

struct Kind {
  char const* name;
  int32_t compute, draft_compute, kv;
  bool is_latent;
  uint8_t format;
};
constexpr Kind kKinds[] = {
    {"f32", BUNTING_F32, BUNTING_F32, BUNTING_KV_PLAIN, false, 0},
    {"int8, keys in int8", BUNTING_BF16, BUNTING_F32, BUNTING_KV_INT8, false, BUNTING_FORMAT_INT8},
    {"a latent target", BUNTING_BF16, BUNTING_BF16, BUNTING_KV_PLAIN, true, 0},
};

bunting_model_shape target_shape(Kind const& kind, int32_t isa, std::vector<uint8_t>& formats) {
  bunting_model_shape shape = tiny_shape();
  if (kind.is_latent) shape = tiny_latent_shape(shape, 32);
  shape.compute = kind.compute, shape.kv = kind.kv, shape.isa = isa;
  formats.assign(size_t(3 + 7 * shape.layers), kind.format);
  shape.formats = formats.data();
  return shape;
}

// Three layers of another width and with other heads, a vocabulary that ends before the target's, and a
// shorter context.
bunting_model_shape draft_shape(Kind const& kind, int32_t isa) {
  bunting_model_shape shape = tiny_shape();
  shape.compute = kind.draft_compute, shape.isa = isa;
  shape.layers = 3, shape.hidden = 56, shape.feed_forward = 40, shape.kv_heads = 1;
  shape.vocab = tiny_shape().vocab - 3, shape.context_max = 90;
  return shape;
}

bunting_engine_limits limits_of(int32_t drafts, int32_t threads = 2) {
  bunting_engine_limits limits = tiny_limits();
  limits.drafts_max = drafts, limits.threads = threads;
  return limits;
}

// Tokens that a model draws behind a text when it is served alone, the likeliest each.
std::vector<int32_t> chain_of(bunting_engine* alone, std::vector<int32_t> const& text, int32_t count) {
  std::vector<int32_t> chain;
  ChunkSpec chunk{.tokens = text, .pages = pages_from(0, (int32_t(text.size()) + 15) / 16)};
  while (int32_t(chain.size()) < count) {
    chain.push_back(run_step(alone, {.chunks = {chunk}}).token(0));
    chunk.start += int32_t(chunk.tokens.size());
    chunk.tokens = {chain.back()};
    chunk.pages = pages_from(0, chunk.start / 16 + 1);
  }
  return chain;
}

// A sequence on an engine: its tokens, and the numbers that are computed and that the draft model has read.
struct Text {
  std::vector<int32_t> tokens;
  int32_t first_page = 0, computed = 0, read = 0;

  // A chunk of the next `count` tokens with `drafted` ones behind them. One that is not read drafts nothing.
  ChunkSpec chunk(int32_t count, bool is_read = true, std::vector<int32_t> const& drafted = {}) const {
    ChunkSpec chunk;
    chunk.start = computed;
    chunk.tokens.assign(tokens.begin() + computed, tokens.begin() + computed + count);
    chunk.tokens.insert(chunk.tokens.end(), drafted.begin(), drafted.end());
    chunk.pages = pages_from(first_page, (computed + int32_t(chunk.tokens.size()) + 15) / 16);
    chunk.sampled = computed + count == int32_t(tokens.size());
    chunk.is_read = is_read;
    chunk.drafts = chunk.sampled && is_read ? kDrafts : 0;
    if (is_read) chunk.unread.assign(tokens.begin() + read, tokens.begin() + computed);
    for (int32_t i = 0; i < int32_t(drafted.size()); i++) chunk.earlier.push_back({count - 1 + i, {}});
    return chunk;
  }
  void advance(int32_t count, bool is_read = true) {
    computed += count;
    if (is_read) read = computed;
  }
};

struct Models {
  std::vector<uint8_t> formats;
  bunting_model_shape target, draft;
  TinyFile target_file, draft_file;
  ModelPointer target_model, draft_model;

  Models(Kind const& kind, int32_t isa)
      : target(target_shape(kind, isa, formats)),
        draft(draft_shape(kind, isa)),
        target_file(target),
        draft_file(draft),
        target_model(load_model(target, target_file)),
        draft_model(load_model(draft, draft_file)) {}
  EnginePointer drafting(int32_t threads = 2) const {
    return open_engine(target_model.get(), limits_of(kDrafts, threads), draft_model.get());
  }
};

// Logits of each draw of a text, which is computed in pieces of `piece` tokens and then one by one, and the
// drafts after it. Every `every`-th decode is read; the others are, with the last token of their page.
struct Outcome {
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<int32_t>> drafts;
  std::vector<int32_t> tokens, drawn;
};
Outcome outcome_of(bunting_engine* engine, int32_t piece, int32_t drafts_max, int32_t every = 1) {
  Outcome outcome;
  Text text{random_tokens(7, kPrompt, tiny_shape().vocab - 3)};
  while (outcome.logits.size() < kDecodes) {
    int32_t const left = int32_t(text.tokens.size()) - text.computed, count = std::min(piece, left);
    int32_t const number = int32_t(outcome.logits.size());
    bool const is_read = number == 0 || number % every == 0 || (text.computed + count) % 16 == 0;
    ChunkSpec chunk = text.chunk(count, is_read);
    if (drafts_max == 0) chunk.drafts = 0;
    StepOutcome const step = run_step(engine, {.chunks = {chunk}, .drafts_max = drafts_max});
    text.advance(count, is_read);
    if (!chunk.sampled) continue;
    outcome.logits.push_back(step.logits);
    outcome.drafts.push_back(drafts_max > 0 ? step.drafts(0) : std::vector<int32_t>{});
    outcome.drawn.push_back(step.token(0));
    // Tokens that the draft model has, too.
    text.tokens.push_back(step.token(0) % (tiny_shape().vocab - 3));
  }
  outcome.tokens = text.tokens;
  return outcome;
}

// Drafts after each draw as the draft model, served alone, draws them.
std::vector<std::vector<int32_t>> wanted_of(bunting_engine* alone, Outcome const& of) {
  std::vector<std::vector<int32_t>> wanted;
  for (int32_t i = 0; i < kDecodes; i++) {
    int32_t const length = kPrompt + i + 1;
    std::vector<int32_t> const text(of.tokens.begin(), of.tokens.begin() + length);
    wanted.push_back(chain_of(alone, text, std::min(kDrafts, std::max(0, 90 - length + 1))));
  }
  return wanted;
}

}  // namespace

TEST(a_draft_model_changes_no_draw_and_drafts_as_it_is_served_alone) {
  for (int32_t isa = 0; isa <= usable_isa(); isa++) {
    if (!kernels_for(isa)) continue;
    for (Kind const& kind : kKinds) {
      Models const models(kind, isa);
      REQUIRE(models.target_model && models.draft_model, "%s: no model", kind.name);
      EnginePointer const engine = models.drafting(), single = models.drafting(1),
                          plain = open_engine(models.target_model.get(), limits_of(0)),
                          alone = open_engine(models.draft_model.get(), limits_of(0));
      Outcome const without = outcome_of(plain.get(), kPrompt, 0);
      Outcome const with = outcome_of(engine.get(), kPrompt, kDrafts);
      CHECK(without.logits == with.logits, "isa %d, %s: logits differ with a draft model", isa, kind.name);
      auto const wanted = wanted_of(alone.get(), with);
      for (int32_t i = 0; i < kDecodes; i++) {
        // A token that the draft model does not have was replaced in the text.
        if (with.drawn[size_t(i)] >= models.draft.vocab) continue;
        CHECK(with.drafts[size_t(i)] == wanted[size_t(i)], "isa %d, %s: drafts after draw %d differ", isa,
              kind.name, i);
      }
      for (int32_t const piece : {1, 7, 16})
        CHECK(outcome_of(piece == 7 ? single.get() : engine.get(), piece, kDrafts).drafts == with.drafts,
              "isa %d, %s: drafts differ with chunks of %d", isa, kind.name, piece);
      // Tokens that were left unread are read before the next draft.
      Outcome const lazy = outcome_of(engine.get(), kPrompt, kDrafts, 3);
      for (int32_t i = 0; i < kDecodes; i++)
        CHECK(lazy.drafts[size_t(i)].empty() || lazy.drafts[size_t(i)] == with.drafts[size_t(i)],
              "isa %d, %s: drafts after draw %d differ behind unread tokens", isa, kind.name, i);
      CHECK(lazy.drafts[3] == with.drafts[3] && lazy.drafts[1].empty(), "drafts behind unread tokens");
    }
  }
}

TEST(a_draft_model_drafts_after_the_last_right_draw_and_from_copied_pages) {
  Models const models(kKinds[0], BUNTING_ISA_AUTO);
  EnginePointer const engine = models.drafting(), other_engine = models.drafting(1);
  Outcome const outcome = outcome_of(engine.get(), kPrompt, kDrafts);
  std::vector<int32_t> const& tokens = outcome.tokens;
  uint64_t target_bytes, draft_bytes, weights, states;
  bunting_model_plan(&models.target, 16, &weights, &target_bytes, &states);
  bunting_model_plan(&models.draft, 16, &weights, &draft_bytes, &states);
  uint64_t const page_bytes = target_bytes + draft_bytes;
  for (int32_t right = 0; right <= 3; right++) {
    // The pages of another engine, which has computed the prompt.
    Text text{std::vector<int32_t>(tokens.begin(), tokens.begin() + kPrompt), 20};
    ChunkSpec prompt = text.chunk(kPrompt);
    run_step(other_engine.get(), {.chunks = {prompt}, .drafts_max = kDrafts});
    text.advance(kPrompt);
    std::vector<char> bytes(3 * page_bytes);
    std::vector<int32_t> const from = pages_from(20, 3), to = pages_from(40, 3);
    CHECK(bunting_engine_read_pages(other_engine.get(), from.data(), 3, bytes.data(), bytes.size()) ==
              BUNTING_OK,
          "read: %s", bunting_last_error());
    CHECK(bunting_engine_write_pages(engine.get(), to.data(), 3, bytes.data(), bytes.size()) == BUNTING_OK,
          "write: %s", bunting_last_error());
    CHECK(bunting_engine_write_pages(engine.get(), to.data(), 3, bytes.data(), 3 * target_bytes) ==
              BUNTING_INVALID,
          "pages of one model");
    // Moves within a step copy them once more.
    text.first_page = 50;
    text.tokens.push_back(tokens[size_t(kPrompt)]);
    std::vector<int32_t> checked(tokens.begin() + kPrompt + 1, tokens.begin() + kPrompt + 4);
    for (int32_t i = right; i < 3; i++) checked[size_t(i)] = (checked[size_t(i)] + 1) % models.draft.vocab;
    Text beside{random_tokens(9, 20, models.draft.vocab), 30};
    StepOutcome const step =
        run_step(engine.get(), {.copies = {40, 50, 16, 41, 51, 16, 42, 52, 16},
                                .chunks = {text.chunk(1, true, checked), beside.chunk(20)},
                                .drafts_max = kDrafts});
    REQUIRE(step.status == BUNTING_OK, "%s", bunting_last_error());
    for (int32_t row = 0; row < 4; row++)
      CHECK(step.drafts(row) == (row == right ? outcome.drafts[size_t(right) + 1] : std::vector<int32_t>{}),
            "%d right: row %d has %zu drafts", right, row, step.drafts(row).size());
    CHECK(step.drafts(4).size() == size_t(kDrafts), "the chunk beside has %zu drafts", step.drafts(4).size());
    float ms[2];
    std::memcpy(&ms[0], step.result.data() + 1, 4), std::memcpy(&ms[1], step.result.data() + 3, 4);
    CHECK(ms[1] > 0 && ms[1] < ms[0], "%g of %g ms for drafts", double(ms[1]), double(ms[0]));
  }
}

TEST(unread_tokens_of_many_chunks_are_read_in_several_steps) {
  Models const models(kKinds[0], BUNTING_ISA_AUTO);
  bunting_engine_limits limits = limits_of(kDrafts);
  limits.step_tokens_max = 16;
  EnginePointer const engine = open_engine(models.target_model.get(), limits, models.draft_model.get()),
                      alone = open_engine(models.draft_model.get(), limits_of(0));
  constexpr int32_t kTexts = 6;
  std::vector<Text> texts;
  StepSpec step{.drafts_max = kDrafts};
  for (int32_t i = 0; i < kTexts; i++) {
    Text text{random_tokens(uint64_t(20 + i), 30, models.draft.vocab), 2 * i};
    run_step(engine.get(), {.chunks = {text.chunk(16)}, .drafts_max = kDrafts});
    text.advance(16);
    run_step(engine.get(), {.chunks = {text.chunk(13, false)}, .drafts_max = kDrafts});
    text.advance(13, false);
    step.chunks.push_back(text.chunk(1));
    texts.push_back(text);
  }
  StepOutcome const outcome = run_step(engine.get(), step);
  for (int32_t i = 0; i < kTexts; i++) {
    std::vector<int32_t>& tokens = texts[size_t(i)].tokens;
    tokens.push_back(outcome.token(i));
    if (outcome.token(i) >= models.draft.vocab) continue;
    CHECK(outcome.drafts(i) == chain_of(alone.get(), tokens, kDrafts), "text %d: drafts differ", i);
  }
}

TEST(draft_models_that_cannot_be_computed_are_refused) {
  Models const models(kKinds[0], BUNTING_ISA_AUTO);
  bunting_engine* engine = nullptr;
  bunting_engine_limits const limits = limits_of(kDrafts), without = limits_of(0);
  CHECK(bunting_engine_open(models.target_model.get(), models.draft_model.get(), &without, nullptr,
                            &engine) == BUNTING_INVALID,
        "a draft model without drafts");
  CHECK(bunting_engine_open(models.target_model.get(), nullptr, &limits, nullptr, &engine) == BUNTING_INVALID,
        "drafts without a draft model");
  uint64_t bytes = 0, own, copy, host;
  bunting_model_shape encoder = models.draft;
  encoder.attention = BUNTING_ATTENTION_BIDIRECTIONAL;
  CHECK(bunting_draft_plan(&encoder, &limits, &bytes) == BUNTING_INVALID, "an encoder drafts");
  CHECK(bunting_draft_plan(&models.draft, &limits, &bytes) == BUNTING_OK, "%s", bunting_last_error());
  bunting_engine_plan(&models.draft, &without, &own, &copy, &host);
  CHECK(bytes > own, "%llu bytes, alone %llu", (unsigned long long)bytes, (unsigned long long)own);
}

TEST(a_step_block_with_wrong_unread_tokens_is_refused) {
  Models const models(kKinds[0], BUNTING_ISA_AUTO);
  EnginePointer const engine = models.drafting();
  Text text{random_tokens(7, kPrompt, models.draft.vocab)};
  run_step(engine.get(), {.chunks = {text.chunk(kPrompt - 1)}, .drafts_max = kDrafts});
  text.computed = kPrompt - 1, text.read = 32;
  auto const status = [&](auto const& spoil) {
    ChunkSpec chunk = text.chunk(1);
    spoil(chunk);
    return run_step(engine.get(), encode({.chunks = {chunk}}), 1, 0, kDrafts).status;
  };
  CHECK(status([](ChunkSpec&) {}) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(status([](ChunkSpec& c) { c.unread.push_back(1); }) == BUNTING_INVALID, "more than its page has");
  CHECK(status([](ChunkSpec& c) { c.unread[0] = tiny_shape().vocab; }) == BUNTING_INVALID,
        "an unknown token");
  CHECK(status([](ChunkSpec& c) { c.is_read = false, c.unread = {}; }) == BUNTING_INVALID,
        "drafts without reading");
  CHECK(status([](ChunkSpec& c) { c.is_read = false; }) == BUNTING_INVALID, "tokens of no chunk");
}

}  // namespace bunting::test
