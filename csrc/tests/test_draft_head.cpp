// test_draft_head.cpp - tests of the head that drafts: it changes no draw, and drafts the same tokens for
// every chunking, batch and number of threads.
#include <algorithm>
#include <cstring>
#include <string>

#include "cpu/kernels/kernels.h"
#include "host/machine.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

constexpr int32_t kPrompt = 41, kDrafts = 3;

struct HeadKind {
  char const* name;
  int32_t compute, head, kv;
  bool is_latent;
  uint8_t format;
};
constexpr HeadKind kKinds[] = {
    {"f32", BUNTING_F32, BUNTING_HEAD_PRESENT | BUNTING_HEAD_NORMED, BUNTING_KV_PLAIN, false, 0},
    {"bf16, hidden first", BUNTING_BF16, BUNTING_HEAD_PRESENT | BUNTING_HEAD_HIDDEN_FIRST, BUNTING_KV_PLAIN,
     false, 0},
    {"int8, keys in int8", BUNTING_BF16, BUNTING_HEAD_PRESENT | BUNTING_HEAD_NORMED, BUNTING_KV_INT8, false,
     BUNTING_FORMAT_INT8},
    {"latents", BUNTING_BF16, BUNTING_HEAD_PRESENT | BUNTING_HEAD_NORMED, BUNTING_KV_PLAIN, true, 0},
};

// A model of two layers and, if wanted, a head; `formats` lives as long as the shape.
bunting_model_shape shape_of(HeadKind const& kind, int32_t isa, bool has_head,
                             std::vector<uint8_t>& formats) {
  bunting_model_shape shape = tiny_shape();
  if (kind.is_latent) shape = tiny_latent_shape(shape, 32);
  shape.compute = kind.compute, shape.kv = kind.kv, shape.isa = isa;
  if (has_head) shape.head = kind.head, shape.layers = 3;
  formats.assign(size_t(3 + 7 * shape.layers), kind.format);
  shape.formats = formats.data();
  return shape;
}

bunting_engine_limits limits_of(int32_t drafts, int32_t threads = 2) {
  bunting_engine_limits limits = tiny_limits();
  limits.drafts_max = drafts, limits.threads = threads;
  return limits;
}

// A sequence on an engine: its tokens and the number that are computed.
struct Text {
  bunting_engine* engine;
  std::vector<int32_t> tokens;
  int32_t first_page = 0, computed = 0;

  // A chunk of the next `count` tokens, the last of them unknown to the sequence if `drafted` has any.
  ChunkSpec chunk(int32_t count, std::vector<int32_t> const& drafted = {}) const {
    ChunkSpec chunk;
    chunk.start = computed;
    chunk.tokens.assign(tokens.begin() + computed, tokens.begin() + computed + count);
    chunk.tokens.insert(chunk.tokens.end(), drafted.begin(), drafted.end());
    int32_t const end = computed + int32_t(chunk.tokens.size());
    chunk.pages = pages_from(first_page, (end + 15) / 16);
    chunk.sampled = computed + count == int32_t(tokens.size());
    chunk.next = chunk.sampled ? -1 : tokens[size_t(computed + count)];
    chunk.drafts = chunk.sampled ? kDrafts : 0;
    for (int32_t i = 0; i < int32_t(drafted.size()); i++) chunk.earlier.push_back({count - 1 + i, {}});
    return chunk;
  }
};

// Drafts after each draw of a text: its prompt in chunks of `piece` tokens, then single decodes.
std::vector<std::vector<int32_t>> drafts_of(bunting_engine* engine, int32_t piece, int32_t decodes,
                                            std::vector<std::vector<float>>* logits,
                                            int32_t drafts_max = kDrafts) {
  Text text{engine, random_tokens(7, kPrompt, tiny_shape().vocab)};
  std::vector<std::vector<int32_t>> drafts;
  for (int32_t decoded = 0; decoded < decodes;) {
    int32_t const count = std::min(piece, int32_t(text.tokens.size()) - text.computed);
    ChunkSpec chunk = text.chunk(count);
    if (drafts_max == 0) chunk.next = -1, chunk.drafts = 0;
    StepOutcome const step = run_step(engine, {.chunks = {chunk}, .drafts_max = drafts_max});
    text.computed += count;
    if (!chunk.sampled) continue;
    if (drafts_max > 0) drafts.push_back(step.drafts(0));
    if (logits) logits->push_back(step.logits);
    text.tokens.push_back(step.token(0));
    decoded++;
  }
  return drafts;
}

}  // namespace

TEST(a_head_changes_no_draw_and_drafts_alike_for_all_chunks) {
  for (int32_t isa = 0; isa <= usable_isa(); isa++) {
    if (!kernels_for(isa)) continue;
    for (HeadKind const& kind : kKinds) {
      std::vector<uint8_t> formats, plain_formats;
      bunting_model_shape const shape = shape_of(kind, isa, true, formats),
                                plain = shape_of(kind, isa, false, plain_formats);
      TinyFile const file(shape), plain_file(plain);
      ModelPointer const model = load_model(shape, file), without = load_model(plain, plain_file);
      REQUIRE(model && without, "%s: no model", kind.name);
      EnginePointer const engine = open_engine(model.get(), limits_of(kDrafts)),
                          single = open_engine(model.get(), limits_of(kDrafts, 1)),
                          silent = open_engine(model.get(), limits_of(0)),
                          other = open_engine(without.get(), limits_of(0));
      std::vector<std::vector<float>> wanted, logits, of_silent;
      drafts_of(other.get(), kPrompt, 20, &wanted, 0);
      drafts_of(silent.get(), kPrompt, 20, &of_silent, 0);
      auto const drafts = drafts_of(engine.get(), kPrompt, 20, &logits);
      CHECK(wanted == logits && wanted == of_silent, "isa %d, %s: logits differ with a head", isa, kind.name);
      for (int32_t const piece : {1, 7, 16})
        CHECK(drafts_of(piece == 7 ? single.get() : engine.get(), piece, 20, nullptr) == drafts,
              "isa %d, %s: drafts differ with chunks of %d", isa, kind.name, piece);
      // The row of position p drafts as far as the page of p reaches.
      for (int32_t i = 0; i < 20; i++) {
        int32_t const position = kPrompt - 1 + i, room = 16 - position % 16;
        CHECK(int32_t(drafts[size_t(i)].size()) == std::min(kDrafts, room), "%zu drafts at position %d",
              drafts[size_t(i)].size(), position);
      }
    }
  }
}

TEST(a_head_drafts_after_the_last_right_draw) {
  HeadKind const& kind = kKinds[0];
  std::vector<uint8_t> formats;
  bunting_model_shape const shape = shape_of(kind, BUNTING_ISA_AUTO, true, formats);
  TinyFile const file(shape);
  ModelPointer const model = load_model(shape, file);
  EnginePointer const engine = open_engine(model.get(), limits_of(kDrafts));
  // Single steps give the right tokens, and the drafts after each.
  Text text{engine.get(), random_tokens(7, kPrompt, shape.vocab)};
  std::vector<int32_t> drawn;
  std::vector<std::vector<int32_t>> drafts;
  for (int32_t i = 0; i < 5; i++) {
    int32_t const count = int32_t(text.tokens.size()) - text.computed;
    StepOutcome const step = run_step(engine.get(), {.chunks = {text.chunk(count)}, .drafts_max = kDrafts});
    text.computed += count;
    drawn.push_back(step.token(0)), drafts.push_back(step.drafts(0));
    text.tokens.push_back(drawn.back());
  }
  // Another sequence checks the drawn tokens as drafts, the last `wrong` of which are not what is drawn.
  for (int32_t right = 0; right <= 3; right++) {
    Text other{engine.get(), random_tokens(7, kPrompt, shape.vocab), 32};
    run_step(engine.get(), {.chunks = {other.chunk(kPrompt)}, .drafts_max = kDrafts});
    other.computed = kPrompt;
    other.tokens.push_back(drawn[0]);
    std::vector<int32_t> checked(drawn.begin() + 1, drawn.begin() + 4);
    for (int32_t i = right; i < 3; i++) checked[size_t(i)] = (checked[size_t(i)] + 1) % shape.vocab;
    // A second chunk of the step has its own drafts.
    Text beside{engine.get(), random_tokens(9, 20, shape.vocab), 40};
    StepOutcome const step = run_step(
        engine.get(), {.chunks = {other.chunk(1, checked), beside.chunk(20)}, .drafts_max = kDrafts});
    for (int32_t row = 0; row < 4; row++) {
      CHECK(step.drafts(row) == (row == right ? drafts[size_t(right) + 1] : std::vector<int32_t>{}),
            "%d right: row %d has %zu drafts", right, row, step.drafts(row).size());
      if (row <= right)
        CHECK(step.token(row) == drawn[size_t(row) + 1], "%d right: draw %d differs", right, row);
    }
    CHECK(step.drafts(4).size() == size_t(kDrafts), "the chunk beside has %zu drafts", step.drafts(4).size());
  }
}

TEST(heads_that_cannot_be_computed_are_refused) {
  HeadKind const& kind = kKinds[0];
  std::vector<uint8_t> formats;
  bunting_model_shape shape = shape_of(kind, BUNTING_ISA_AUTO, true, formats);
  uint64_t weights, pages, states;
  shape.head = BUNTING_HEAD_NORMED;
  CHECK(bunting_model_plan(&shape, 16, &weights, &pages, &states) == BUNTING_INVALID,
        "a head without presence");
  shape.head = kind.head, shape.no_final_norm = 1;
  CHECK(bunting_model_plan(&shape, 16, &weights, &pages, &states) == BUNTING_INVALID, "no final norm");
  bunting_model_shape const plain = shape_of(kind, BUNTING_ISA_AUTO, false, formats);
  TinyFile const file(plain);
  ModelPointer const model = load_model(plain, file);
  bunting_engine* engine = nullptr;
  bunting_engine_limits const limits = limits_of(kDrafts);
  CHECK(bunting_engine_open(model.get(), nullptr, &limits, nullptr, &engine) == BUNTING_INVALID,
        "drafts without a head");
}

}  // namespace bunting::test
