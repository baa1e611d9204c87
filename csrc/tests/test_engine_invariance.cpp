// test_engine_invariance.cpp - tests of batch invariance: a token's logits have the same bits for every
// chunking, batch, cache state and number of threads.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "cpu/kernels/kernels.h"
#include "host/machine.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

constexpr int32_t kPrompt = 83;

// Kinds of layers: an MLP; experts in the second layer; the special parts of Gemma 4 and of Gemma 3n; latent
// attention, with and without a latent of queries.
enum class Kind { dense, experts, mixed, streams, latent, queries_at_once };

struct Variant {
  int32_t compute, window;
  std::vector<uint8_t> formats;  // formats of the tiny model: two, seven per layer, and one
  int32_t kv = BUNTING_KV_PLAIN;
  Kind kind = Kind::dense;
};

std::vector<Variant> const& variants() {
  static std::vector<Variant> const all = {
      {BUNTING_BF16, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN)},
      {BUNTING_BF16, 21, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN)},
      {BUNTING_F32, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN)},
      {BUNTING_F32, 21, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN)},
      {BUNTING_BF16, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_INT8)},
      {BUNTING_BF16, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_Q8_0)},
      {BUNTING_BF16, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_INT6)},
      {BUNTING_BF16, 21, std::vector<uint8_t>(17, BUNTING_FORMAT_INT4)},
      {BUNTING_F32, 0, {5, 0, 2, 4, 1, 0, 2, 0, 0, 0, 0, 4, 1, 5, 0, 0, 0}},
      {BUNTING_BF16, 21, {4, 5, 2, 4, 1, 5, 4, 0, 0, 0, 1, 4, 2, 5, 0, 0, 0}},
      {BUNTING_BF16, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN), BUNTING_KV_INT8},
      {BUNTING_BF16, 21, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN), BUNTING_KV_INT4},
      {BUNTING_F32, 21, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN), BUNTING_KV_PLAIN, Kind::experts},
      {BUNTING_BF16, 0, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 5, 0, 0, 0}, BUNTING_KV_PLAIN, Kind::experts},
      {BUNTING_F32, 0, std::vector<uint8_t>(24, BUNTING_FORMAT_PLAIN), BUNTING_KV_PLAIN, Kind::mixed},
      {BUNTING_BF16, 0, std::vector<uint8_t>(24, BUNTING_FORMAT_INT8), BUNTING_KV_INT8, Kind::mixed},
      {BUNTING_BF16, 0, std::vector<uint8_t>(24, BUNTING_FORMAT_INT8), BUNTING_KV_INT4, Kind::mixed},
      {BUNTING_F32, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN), BUNTING_KV_PLAIN, Kind::latent},
      {BUNTING_BF16, 0, std::vector<uint8_t>(17, BUNTING_FORMAT_PLAIN), BUNTING_KV_PLAIN,
       Kind::queries_at_once},
      {BUNTING_BF16, 0, {0, 0, 1, 5, 1, 2, 0, 0, 0, 5, 1, 0, 2, 1, 0, 0, 0}, BUNTING_KV_PLAIN, Kind::latent},
      {BUNTING_F32, 0, std::vector<uint8_t>(24, BUNTING_FORMAT_PLAIN), BUNTING_KV_PLAIN, Kind::streams},
      {BUNTING_BF16, 0, std::vector<uint8_t>(24, BUNTING_FORMAT_INT8), BUNTING_KV_PLAIN, Kind::streams},
  };
  return all;
}

std::string name_of(Variant const& variant, int32_t isa) {
  std::string formats;
  for (uint8_t const format : variant.formats) (formats += ' ') += std::to_string(format);
  return std::string(variant.compute == BUNTING_F32 ? "f32" : "bf16") + " isa " + std::to_string(isa) +
         " window " + std::to_string(variant.window) + " formats" + formats + " kv " +
         std::to_string(variant.kv) +
         (variant.kind == Kind::experts           ? " with experts"
          : variant.kind == Kind::mixed           ? " with all of Gemma 4"
          : variant.kind == Kind::streams         ? " with all of Gemma 3n"
          : variant.kind == Kind::latent          ? " with latents"
          : variant.kind == Kind::queries_at_once ? " with latents of keys alone"
                                                  : "");
}

// Logits after every position of a sequence, from steps of one token each: the expected values of all other
// steps.
class Oracle {
 public:
  Oracle(bunting_model const* model, std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
    EnginePointer const engine = open_engine(model, tiny_limits());
    int32_t const count = int32_t(tokens_.size());
    for (int32_t i = 0; i < count; i++) {
      StepOutcome const step = run_step(
          engine.get(),
          StepSpec{{}, {{.start = i, .tokens = {tokens_[size_t(i)]}, .pages = pages_from(0, i / 16 + 1)}}});
      logits_.insert(logits_.end(), step.logits.begin(), step.logits.end());
    }
  }

  std::vector<int32_t> const& tokens() const { return tokens_; }
  std::vector<int32_t> slice(int32_t begin, int32_t end) const {
    return {tokens_.begin() + begin, tokens_.begin() + end};
  }
  // Returns true if row `row` of the step has the logits after `position`, bit for bit.
  bool equal(StepOutcome const& step, int32_t row, int32_t position) const {
    size_t const vocab = size_t(tiny_shape().vocab);
    return step.logits.size() >= size_t(row + 1) * vocab && logits_.size() >= size_t(position + 1) * vocab &&
           std::memcmp(step.logits.data() + size_t(row) * vocab, logits_.data() + size_t(position) * vocab,
                       vocab * sizeof(float)) == 0;
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
};

bunting_layer_shape const* layers_of(int32_t window, bool has_experts) {
  static std::map<std::pair<int32_t, bool>, std::vector<bunting_layer_shape>> kept;
  std::vector<bunting_layer_shape>& layers = kept[{window, has_experts}];
  if (layers.empty()) {
    bunting_layer_shape const* const usual = tiny_layers([&](auto& layer) { layer.sliding_window = window; });
    layers.assign(usual, usual + 2);
    if (has_experts) {
      layers[1].mlp = BUNTING_MLP_EXPERTS;
      layers[1].biases |= BUNTING_BIAS_ROUTER | BUNTING_BIAS_GATE_UP | BUNTING_BIAS_DOWN;
    }
  }
  return layers.data();
}

bunting_model_shape shape_of(Kind kind, int32_t window) {
  bunting_model_shape shape = tiny_shape();
  if (kind == Kind::mixed) return tiny_mixed_shape(shape, 64);
  if (kind == Kind::latent) return tiny_latent_shape(shape, 16);
  if (kind == Kind::queries_at_once) return tiny_latent_shape(shape, 0);
  if (kind == Kind::streams) return tiny_streams_shape(shape);
  shape.layer = layers_of(window, kind == Kind::experts);
  if (kind == Kind::dense) return shape;
  shape.experts = 5;
  shape.experts_used = 2;
  shape.expert_feed_forward = 24;
  shape.router_groups = shape.router_groups_used = 1;
  shape.router_scale = 1;
  shape.residual_scale = 0.5f;
  return shape;
}

// Runs `check` for every level of this machine, in both types and all formats, with and without a sliding
// window.
template <typename Check>
void for_each_variant(Check const& check) {
  std::map<Kind, TinyFile> files;
  for (Kind const kind :
       {Kind::dense, Kind::experts, Kind::mixed, Kind::streams, Kind::latent, Kind::queries_at_once})
    files.try_emplace(kind, shape_of(kind, 0));
  for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= usable_isa(); isa++) {
    if (!kernels_for(isa)) continue;  // a build without this level
    for (Variant const& variant : variants()) {
      bunting_model_shape shape = shape_of(variant.kind, variant.window);
      shape.isa = isa;
      shape.compute = variant.compute;
      shape.formats = variant.formats.data();
      shape.kv = variant.kv;
      ModelPointer const model = load_model(shape, files.at(variant.kind));
      if (model) check(model.get(), name_of(variant, isa), shape);
    }
  }
}

TEST(engine_invariant_to_chunks) {
  for_each_variant([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    Oracle const oracle(model, random_tokens(7, kPrompt, tiny_shape().vocab));
    for (int32_t threads : {1, 2}) {
      bunting_engine_limits limits = tiny_limits();
      limits.threads = threads;
      EnginePointer const engine = open_engine(model, limits);
      for (int32_t size = 2; size <= kPrompt; size = size < 17 ? size + 1 : size + 33) {
        for (int32_t start = 0; start < kPrompt; start += size) {
          int32_t const end = std::min(start + size, kPrompt);
          StepOutcome const step =
              run_step(engine.get(), StepSpec{{},
                                              {{.start = start,
                                                .tokens = oracle.slice(start, end),
                                                .pages = pages_from(9, (end + 15) / 16)}}});
          CHECK(oracle.equal(step, 0, end - 1), "%s threads %d: chunks of %d differ after position %d",
                name.c_str(), threads, size, end - 1);
        }
      }
    }
  });
}

// Each step advances several sequences by random chunks on scattered pages; some chunks do not sample.
TEST(engine_invariant_to_company_and_pages) {
  for_each_variant([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    constexpr int32_t kSequences = 5;
    EnginePointer const engine = open_engine(model, tiny_limits());
    Random random{11};
    std::vector<Oracle> oracles;
    std::vector<int32_t> done(kSequences, 0);
    std::vector<std::vector<int32_t>> pages(kSequences);
    std::vector<int32_t> free = pages_from(0, tiny_limits().pages);
    for (uint64_t s = 0; s < kSequences; s++)
      oracles.emplace_back(model, random_tokens(100 + s, 40 + random.below(40), tiny_shape().vocab));
    for (bool progress = true; progress;) {
      progress = false;
      StepSpec step;
      std::vector<std::pair<int32_t, int32_t>> sampled;  // sequence, position
      int32_t const first = random.below(kSequences);
      for (int32_t i = 0; i < kSequences; i++) {
        size_t const s = size_t((first + i) % kSequences);
        int32_t const length = int32_t(oracles[s].tokens().size());
        int32_t const end = std::min(length, done[s] + random.below(19));
        progress |= done[s] < length;
        if (end == done[s]) continue;
        while (int32_t(pages[s].size()) * 16 < end) {
          size_t const pick = size_t(random.below(int32_t(free.size())));
          pages[s].push_back(free[pick]);
          free.erase(free.begin() + int64_t(pick));
        }
        bool const is_sampled = end == length || random.below(2) == 0;
        step.chunks.push_back({done[s], oracles[s].slice(done[s], end), pages[s], is_sampled});
        if (is_sampled) sampled.emplace_back(int32_t(s), end - 1);
        done[s] = end;
      }
      StepOutcome const outcome = run_step(engine.get(), step);
      CHECK(outcome.rows() == int32_t(sampled.size()), "%s: %d rows, expected %zu", name.c_str(),
            outcome.rows(), sampled.size());
      for (size_t r = 0; r < sampled.size(); r++)
        CHECK(oracles[size_t(sampled[r].first)].equal(outcome, int32_t(r), sampled[r].second),
              "%s: sequence %d differs after position %d", name.c_str(), sampled[r].first, sampled[r].second);
    }
  });
}

// Reuses a prefix of another sequence: its whole pages are shared, and its partial last page is copied.
TEST(engine_invariant_to_cached_prefixes) {
  for_each_variant([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    Oracle const oracle(model, random_tokens(7, kPrompt, tiny_shape().vocab));
    EnginePointer const engine = open_engine(model, tiny_limits());
    for (int32_t cut : {1, 15, 16, 17, 31, 40, 64, 82}) {
      // The donor continues with other tokens, so the copied page has slots that must not be visible.
      std::vector<int32_t> donor = oracle.slice(0, cut);
      for (int32_t i = 0; i < 20; i++) donor.push_back((i * 37 + 5) % tiny_shape().vocab);
      int32_t const donor_pages = int32_t(donor.size() + 15) / 16;
      run_step(engine.get(),
               StepSpec{{}, {{.start = 0, .tokens = donor, .pages = pages_from(20, donor_pages)}}});

      int32_t const whole = cut / 16, used = cut % 16;
      StepSpec step{{},
                    {{.start = cut, .tokens = oracle.slice(cut, kPrompt), .pages = pages_from(20, whole)}}};
      for (int32_t i = whole; i < (kPrompt + 15) / 16; i++) step.chunks[0].pages.push_back(40 + i);
      if (used > 0) step.copies = {20 + whole, 40 + whole, used};
      StepOutcome const outcome = run_step(engine.get(), step);
      CHECK(oracle.equal(outcome, 0, kPrompt - 1), "%s: differs after a cached prefix of %d", name.c_str(),
            cut);
    }
  });
}

// Continues a prompt on an engine that got its prefix from the pages of another one.
TEST(engine_invariant_to_copied_pages) {
  for_each_variant([](bunting_model const* model, std::string const& name, bunting_model_shape const& shape) {
    Oracle const oracle(model, random_tokens(7, kPrompt, tiny_shape().vocab));
    EnginePointer const from = open_engine(model, tiny_limits()), to = open_engine(model, tiny_limits());
    run_step(
        from.get(),
        StepSpec{{}, {{.start = 0, .tokens = oracle.slice(0, kPrompt), .pages = {9, 3, 20, 4, 30, 31}}}});
    uint64_t weights, page_bytes, states;
    REQUIRE(bunting_model_plan(&shape, 16, &weights, &page_bytes, &states) == BUNTING_OK, "%s",
            bunting_last_error());
    std::vector<char> bytes(4 * size_t(page_bytes));
    std::vector<int32_t> const source = {9, 3, 20, 4}, target = {11, 40, 2, 3};
    REQUIRE(bunting_engine_read_pages(from.get(), source.data(), 4, bytes.data(), bytes.size()) == BUNTING_OK,
            "%s", bunting_last_error());
    REQUIRE(bunting_engine_write_pages(to.get(), target.data(), 4, bytes.data(), bytes.size()) == BUNTING_OK,
            "%s", bunting_last_error());
    StepOutcome const rest = run_step(
        to.get(),
        StepSpec{{}, {{.start = 64, .tokens = oracle.slice(64, kPrompt), .pages = {11, 40, 2, 3, 50, 51}}}});
    CHECK(oracle.equal(rest, 0, kPrompt - 1), "%s: differs after copied pages", name.c_str());
  });
}

// Decodes after a common prefix, some of them after a longer one, with and without the shared spans.
TEST(engine_invariant_to_shared_spans) {
  for_each_variant([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    EnginePointer const engine = open_engine(model, tiny_limits());
    auto const compute = [&](uint64_t seed, int32_t start, int32_t end, std::vector<int32_t> const& pages) {
      ChunkSpec chunk{.start = start, .tokens = random_tokens(seed, end - start, tiny_shape().vocab)};
      chunk.pages.assign(pages.begin(), pages.begin() + (end + 15) / 16);
      return chunk;
    };
    std::vector<int32_t> const stem = pages_from(0, 8);  // 128 positions, then the branches
    run_step(engine.get(), StepSpec{{}, {compute(1, 0, 128, stem)}});
    std::vector<int32_t> branch = stem;
    for (int32_t page : {20, 21}) branch.push_back(page);
    run_step(engine.get(), StepSpec{{}, {compute(2, 128, 160, branch)}});
    StepSpec step;
    for (int32_t i = 0; i < 5; i++) {
      std::vector<int32_t> pages = i < 3 ? branch : stem;
      int32_t const start = int32_t(pages.size()) * 16;
      pages.push_back(30 + 2 * i);
      pages.push_back(31 + 2 * i);
      run_step(engine.get(), StepSpec{{}, {compute(10 + uint64_t(i), start, start + 3 + 4 * i, pages)}});
      step.chunks.push_back(compute(20 + uint64_t(i), start + 3 + 4 * i, start + 4 + 4 * i, pages));
    }
    StepOutcome const flat = run_step(engine.get(), step);
    step.shared = {0, 5, 0, 128, 0, 3, 128, 160};
    StepOutcome const shared = run_step(engine.get(), step);
    CHECK(flat.rows() == 5 && flat.logits == shared.logits, "%s: sharing shows", name.c_str());
  });
}

// The shape is wide and long enough to cut all work except the draws into several pieces.
TEST(engine_invariant_to_threads) {
  constexpr int32_t kPrompts = 5;
  bunting_model_shape shape = tiny_shape();
  shape.layers = 1;
  shape.hidden = 512;
  shape.feed_forward = 1000;
  shape.query_heads = 16;
  shape.kv_heads = 8;
  shape.head_size = 32;
  shape.rope = tiny_rope(32);
  TinyFile const file(shape);
  std::vector<uint8_t> formats(size_t(3 + 7 * shape.layers), BUNTING_FORMAT_PLAIN);
  shape.formats = formats.data();
  for (int32_t const kind : {0, 1, 2, 3, 4}) {
    shape.compute = kind == 0 ? BUNTING_F32 : BUNTING_BF16;
    uint8_t const format = kind < 4 ? uint8_t(kind - 1) : uint8_t{BUNTING_FORMAT_Q8_0};
    if (kind > 1) std::fill(formats.begin(), formats.end(), format);
    ModelPointer const model = load_model(shape, file);
    REQUIRE(model, "no model");
    StepSpec prompts;
    for (int32_t i = 0; i < kPrompts; i++)
      prompts.chunks.push_back({.start = 0,
                                .tokens = random_tokens(uint64_t(i), 190, shape.vocab),
                                .pages = pages_from(12 * i, 12)});
    StepOutcome first;
    for (int32_t const threads : {1, 2, 3, 7}) {
      bunting_engine_limits limits = tiny_limits();
      limits.threads = threads;
      limits.step_tokens_max = 190 * kPrompts;
      EnginePointer const engine = open_engine(model.get(), limits);
      StepOutcome const step = run_step(engine.get(), prompts);
      REQUIRE(step.rows() == kPrompts, "%d rows", step.rows());
      if (threads == 1) first = step;
      CHECK(std::memcmp(step.logits.data(), first.logits.data(), first.logits.size() * sizeof(float)) == 0,
            "kind %d: %d threads compute something else than one", kind, threads);
    }
  }
}

// Several tokens of a chunk are drawn from, each with its own parameters, as speculative decoding and
// jump-forward tokens need.
TEST(engine_samples_tokens_of_a_chunk_as_single_steps_do) {
  for_each_variant([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    Oracle const oracle(model, random_tokens(7, kPrompt, tiny_shape().vocab));
    auto const row_at = [](int32_t position) {
      return RowSpec{.temperature = position % 3 == 0 ? 0.0f : 0.9f,
                     .top_p = 0.95f,
                     .position = position,
                     .top_logprobs = position % 4,
                     .seed = 99,
                     .seen = {position, 1},
                     .mask = std::vector<uint32_t>(5, 0x55555555u << position % 2)};
    };
    EnginePointer const engine = open_engine(model, tiny_limits());
    auto const chunk = [&](int32_t start, int32_t end) {
      return ChunkSpec{.start = start,
                       .tokens = oracle.slice(start, end),
                       .pages = pages_from(0, (end + 15) / 16),
                       .row = row_at(end - 1)};
    };
    constexpr int32_t kStart = 30, kEnd = 50;
    run_step(engine.get(), StepSpec{{}, {chunk(0, kStart)}});
    StepSpec step{{}, {chunk(kStart, kEnd), {.tokens = oracle.slice(0, 20), .pages = {40, 41}}}};
    std::vector<int32_t> positions;
    for (int32_t const position : {30, 31, 33, 40, 48}) {
      step.chunks[0].earlier.push_back({position - kStart, row_at(position)});
      positions.push_back(position);
    }
    positions.push_back(kEnd - 1);
    StepOutcome const together = run_step(engine.get(), step);
    REQUIRE(together.rows() == int32_t(positions.size()) + 1, "%s: %d rows", name.c_str(), together.rows());
    for (int32_t r = 0; r < int32_t(positions.size()); r++) {
      int32_t const position = positions[size_t(r)];
      CHECK(oracle.equal(together, r, position), "%s: logits differ after position %d", name.c_str(),
            position);
      StepOutcome const alone = run_step(engine.get(), StepSpec{{}, {chunk(position, position + 1)}});
      CHECK(std::memcmp(together.row(r), alone.row(0),
                        4 * (BUNTING_RESULT_ROW_WORDS + 2 * size_t(position % 4))) == 0,
            "%s: another draw after position %d", name.c_str(), position);
    }
    CHECK(oracle.equal(together, together.rows() - 1, 19), "%s: the neighbour's logits differ", name.c_str());
  });
}

// Hidden states are the same for a whole prompt and for chunks, in any batch, and with draws between them.
// Such a draw equals that of a step of draws alone.
TEST(engine_brings_the_same_hidden_states_whatever_else_is_wanted) {
  for_each_variant([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    constexpr int32_t kTokens = 37;
    Oracle const oracle(model, random_tokens(7, kPrompt, tiny_shape().vocab));
    EnginePointer const engine = open_engine(model, tiny_limits());
    auto const chunk = [&](int32_t start, int32_t end, auto const& is_hidden) {
      ChunkSpec spec{.start = start,
                     .tokens = oracle.slice(start, end),
                     .pages = pages_from(0, (end + 15) / 16),
                     .sampled = false};
      for (int32_t token = start; token < end; token++)
        spec.earlier.push_back({token - start, {.hidden = is_hidden(token)}});
      return spec;
    };
    StepOutcome const whole =
        run_step(engine.get(), StepSpec{{}, {chunk(0, kTokens, [](int32_t) { return true; })}});
    REQUIRE(whole.status == BUNTING_OK && whole.rows() == 0 && whole.result[2] == kTokens,
            "%s: %d draws, %d hidden states", name.c_str(), whole.rows(), whole.result[2]);
    CHECK(whole.hidden(0) != whole.hidden(1), "%s: two tokens have one hidden state", name.c_str());
    for (int32_t const cut : {1, 16, 20}) {
      int32_t done = 0;
      for (auto const& [start, end] : {std::pair{0, cut}, std::pair{cut, kTokens}}) {
        ChunkSpec const company{.start = 0, .tokens = oracle.slice(0, 9), .pages = {40}};
        ChunkSpec const mixed = chunk(start, end, [](int32_t token) { return token % 3 != 0; });
        StepOutcome const outcome = run_step(engine.get(), StepSpec{{}, {company, mixed}});
        CHECK(oracle.equal(outcome, 0, 8), "%s: the neighbour's logits differ", name.c_str());
        int32_t draws = 1, hidden = 0;
        for (int32_t token = start; token < end; token++) {
          bool const is_equal = token % 3 == 0 ? oracle.equal(outcome, draws++, token)
                                               : outcome.hidden(hidden++) == whole.hidden(token);
          CHECK(is_equal, "%s: token %d differs, cut at %d", name.c_str(), token, cut);
          done++;
        }
      }
      CHECK(done == kTokens, "%d tokens", done);
    }
  });
}

TEST(engine_draws_the_same_tokens_alone_and_in_company) {
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  REQUIRE(model, "no model");
  EnginePointer const engine = open_engine(model.get(), tiny_limits());
  RowSpec const row{
      .temperature = 0.9f, .top_p = 0.95f, .top_k = 50, .position = 3, .top_logprobs = 5, .seed = 99};
  ChunkSpec const mine{
      .start = 0, .tokens = random_tokens(1, 20, 131), .pages = pages_from(0, 2), .row = row};
  ChunkSpec const other{.start = 0, .tokens = random_tokens(2, 33, 131), .pages = pages_from(5, 3)};
  StepOutcome const alone = run_step(engine.get(), StepSpec{{}, {mine}});
  StepOutcome const company = run_step(engine.get(), StepSpec{{}, {other, mine}});
  REQUIRE(alone.rows() == 1 && company.rows() == 2, "rows: %d and %d", alone.rows(), company.rows());
  for (int32_t word = 0; word < BUNTING_RESULT_ROW_WORDS + 10; word++)
    CHECK(alone.row(0)[word] == company.row(1)[word], "word %d of the result row differs", word);
}

}  // namespace
// A long context is cut for eight threads but not for one. Its pages are only partly written: the rest is
// zeros.
TEST(engine_results_do_not_depend_on_how_a_long_context_is_cut) {
  bunting_model_shape shape = tiny_shape();
  shape.query_heads = 2;
  shape.kv_heads = 1;
  shape.head_size = 256;
  shape.rope = tiny_rope(256);
  shape.context_max = 4096;
  TinyFile const file(shape);
  ModelPointer const model = load_model(shape, file);
  std::vector<int32_t> const tokens = random_tokens(3, 4000, shape.vocab);
  auto const run = [&](int32_t threads) {
    bunting_engine_limits limits = tiny_limits();
    limits.threads = threads;
    limits.pages = 256;
    EnginePointer const engine = open_engine(model.get(), limits);
    std::vector<float> logits;
    for (auto [start, end] : {std::pair{0, 40}, {1000, 1100}, {2040, 2049}, {3900, 3999}, {3999, 4000}}) {
      StepOutcome const step =
          run_step(engine.get(), StepSpec{{},
                                          {{.start = start,
                                            .tokens = {tokens.begin() + start, tokens.begin() + end},
                                            .pages = pages_from(0, (end + 15) / 16)}}});
      logits.insert(logits.end(), step.logits.begin(), step.logits.end());
    }
    return logits;
  };
  std::vector<float> const one = run(1), eight = run(8);
  CHECK(one.size() == 5 * size_t(shape.vocab) && one == eight, "%zu logits differ", one.size());
}

}  // namespace bunting::test
