// test_engine_states.cpp - tests of recurrent layers: a token's logits have the same bits for every chunking,
// batch, save and restored state; and files may store their tensors in other orders.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>

#include "cpu/kernels/kernels.h"
#include "host/machine.h"
#include "tests/test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

constexpr int32_t kSlots = 12;
#ifdef BUNTING_CUDA
constexpr bool kIsGpu = true;
#else
constexpr bool kIsGpu = false;
#endif

bunting_engine_limits stateful_limits() {
  bunting_engine_limits limits = tiny_limits();
  limits.states = kSlots;
  return limits;
}

using Change = void (*)(bunting_layer_shape&);

void without_attention(bunting_layer_shape& layer) {
  layer.biases = 0;
  layer.qk_norm = BUNTING_QK_NORM_NONE;
  layer.rope = -1;
}

// Returns a model with these layers that are 0, 1, 2, ... in `layers`.
bunting_model_shape stateful_shape(std::vector<Change> const& layers) {
  static std::deque<std::vector<bunting_layer_shape>> kept;
  std::vector<bunting_layer_shape>& all = kept.emplace_back();
  for (Change const change : layers) all.push_back(*tiny_layers(change));
  bunting_model_shape shape = tiny_shape();
  shape.layers = int32_t(all.size());
  shape.layer = all.data();
  shape.state_conv = 4;
  return shape;
}

void delta(bunting_layer_shape& layer) {
  without_attention(layer);
  layer.mixer = BUNTING_MIXER_DELTA;
}
void ssm_alone(bunting_layer_shape& layer) {
  without_attention(layer);
  layer.mixer = BUNTING_MIXER_SSM;
  layer.mlp = BUNTING_MLP_NONE;
  layer.norms = BUNTING_NORM_ATTN;
}
void mlp_alone(bunting_layer_shape& layer) {
  without_attention(layer);
  layer.mixer = BUNTING_MIXER_NONE;
  layer.norms = BUNTING_NORM_MLP;
}
void attention_alone(bunting_layer_shape& layer) {
  layer.mlp = BUNTING_MLP_NONE;
  layer.norms = BUNTING_NORM_ATTN;
}
void convolution(bunting_layer_shape& layer) {
  without_attention(layer);
  layer.mixer = BUNTING_MIXER_CONV;
}
void both(bunting_layer_shape& layer) {
  layer.mixer = BUNTING_MIXER_ATTENTION_SSM;
}
void gated(bunting_layer_shape& layer) {
  layer.gated_output = 1;
}
void plain(bunting_layer_shape&) {}

struct Family {
  char const* name;
  bunting_model_shape shape;
};

std::vector<Family> families() {
  auto const with_heads = [](bunting_model_shape shape, int32_t key_heads, int32_t heads, int32_t key_size,
                             int32_t value_size, int32_t options) {
    shape.state_key_heads = key_heads, shape.state_heads = heads;
    shape.state_key_size = key_size, shape.state_value_size = value_size;
    shape.state_options = options;
    shape.state_dt_max = INFINITY;
    return shape;
  };
  return {
      {"qwen", with_heads(stateful_shape({delta, gated, delta}), 2, 4, 16, 32, BUNTING_STATE_NORM_HEADS)},
      {"qwen with tiled heads", with_heads(stateful_shape({delta, gated}), 2, 6, 32, 16,
                                           BUNTING_STATE_NORM_HEADS | BUNTING_STATE_TILED_HEADS)},
      {"nemotron",
       with_heads(stateful_shape({ssm_alone, mlp_alone, attention_alone, ssm_alone}), 2, 4, 32, 16,
                  BUNTING_STATE_CONV_BIAS | BUNTING_STATE_NORM_GROUPS | BUNTING_STATE_GATE_FIRST |
                      BUNTING_STATE_SKIP)},
      {"granite", with_heads(stateful_shape({plain, both, mlp_alone}), 1, 3, 16, 48,
                             BUNTING_STATE_NORM_WIDE | BUNTING_STATE_SKIP)},
      {"falcon", with_heads(stateful_shape({both, both}), 1, 2, 16, 32, BUNTING_STATE_CONV_BIAS)},
      {"lfm", stateful_shape({convolution, plain, convolution})},
  };
}

// GPUs compute in bf16 alone, and formats there are a matter of the products.
#ifdef BUNTING_CUDA
constexpr int32_t kFormats[] = {BUNTING_FORMAT_INT4};
#else
constexpr int32_t kFormats[] = {-1, int{BUNTING_FORMAT_PLAIN}, int{BUNTING_FORMAT_INT8},
                                int{BUNTING_FORMAT_INT4}};
#endif

// Runs `check` for every family, in both types and some formats, on every level of this machine.
template <typename Check>
void for_each_family(Check const& check) {
  std::deque<std::vector<uint8_t>> formats;
  for (Family const& family : families()) {
    TinyFile const file(family.shape);
    for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= (kIsGpu ? 0 : usable_isa()); isa++) {
      if (!kernels_for(isa)) continue;  // a build without this level
      for (int32_t const format : kFormats) {
        bunting_model_shape shape = family.shape;
        shape.isa = isa;
        shape.compute = format < 0 ? BUNTING_F32 : BUNTING_BF16;
        auto& all = formats.emplace_back(size_t(3 + 10 * shape.layers), uint8_t(std::max(0, format)));
        if (format == BUNTING_FORMAT_INT4)  // z has a matrix of its own
          for (int32_t layer = 0; layer < shape.layers; layer++)
            all[size_t(3 + 7 * shape.layers + 3 * layer + 1)] = BUNTING_FORMAT_Q8_0;
        shape.formats = all.data();
        ModelPointer const model = load_model(shape, file);
        if (model)
          check(
              model.get(),
              std::string(family.name) + " isa " + std::to_string(isa) + " format " + std::to_string(format),
              shape);
      }
    }
  }
}

std::vector<int32_t> slice(std::vector<int32_t> const& tokens, int32_t begin, int32_t end) {
  return {tokens.begin() + begin, tokens.begin() + end};
}

// Logits after every position of a sequence, from steps of one token each.
std::vector<float> expected_logits(bunting_model const* model, std::vector<int32_t> const& tokens) {
  EnginePointer const engine = open_engine(model, stateful_limits());
  std::vector<float> logits;
  for (int32_t i = 0; engine && i < int32_t(tokens.size()); i++) {
    StepOutcome const step = run_step(engine.get(), StepSpec{{},
                                                             {{.start = i,
                                                               .tokens = {tokens[size_t(i)]},
                                                               .pages = pages_from(0, i / 16 + 1),
                                                               .state = 0,
                                                               .from = i > 0 ? 0 : -1}}});
    logits.insert(logits.end(), step.logits.begin(), step.logits.end());
  }
  return logits;
}

// Returns true if row `row` of the step has the expected logits after `position`, bit for bit, all finite.
bool is_equal(StepOutcome const& step, int32_t row, std::vector<float> const& expected, int32_t position) {
  size_t const vocab = size_t(tiny_shape().vocab), at = size_t(row) * vocab;
  return step.logits.size() >= at + vocab && expected.size() >= size_t(position + 1) * vocab &&
         std::isfinite(step.logits[at]) &&
         std::memcmp(step.logits.data() + at, expected.data() + size_t(position) * vocab,
                     vocab * sizeof(float)) == 0;
}

TEST(engine_states_are_invariant_to_chunks) {
  static constexpr int32_t kTokens = kIsGpu ? 40 : 70;
  for_each_family([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    std::vector<int32_t> const tokens = random_tokens(3, kTokens, tiny_shape().vocab);
    std::vector<float> const expected = expected_logits(model, tokens);
    for (int32_t const threads : {1, 2}) {
      if (kIsGpu && threads > 1) break;  // they only load weights
      bunting_engine_limits limits = stateful_limits();
      limits.threads = threads;
      EnginePointer const engine = open_engine(model, limits);
      REQUIRE(engine, "%s: no engine", name.c_str());
      for (int32_t const size : {2, 7, 33, 64, kTokens}) {
        for (int32_t start = 0; start < kTokens; start += size) {
          int32_t const end = std::min(start + size, kTokens);
          bool const draws = start / size % 3 != 1 || end == kTokens;
          StepOutcome const step = run_step(engine.get(), StepSpec{{},
                                                                   {{.start = start,
                                                                     .tokens = slice(tokens, start, end),
                                                                     .pages = pages_from(9, (end + 15) / 16),
                                                                     .sampled = draws,
                                                                     .state = 1,
                                                                     .from = start > 0 ? 1 : -1}}});
          CHECK(!draws || is_equal(step, 0, expected, end - 1),
                "%s threads %d: chunks of %d differ after position %d", name.c_str(), threads, size, end - 1);
        }
      }
    }
  });
}

// Each step advances several sequences by random chunks, which save checkpoints. At random a sequence goes
// back to one of its checkpoints and computes on from there.
TEST(engine_states_are_invariant_to_company_saves_and_restores) {
  static constexpr int32_t kSequences = 3, kTokens = kIsGpu ? 24 : 60, kSteps = kIsGpu ? 20 : 40;
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<float> expected;
    int32_t done = 0;
    int32_t saved[3] = {-1, -1, -1};  // position of the state in each slot of its own for checkpoints
  };
  for_each_family([](bunting_model const* model, std::string const& name, bunting_model_shape const&) {
    EnginePointer const engine = open_engine(model, stateful_limits());
    REQUIRE(engine, "%s: no engine", name.c_str());
    Random random{17};
    std::vector<Sequence> sequences(kSequences);
    for (int32_t s = 0; s < kSequences; s++) {
      sequences[size_t(s)].tokens = random_tokens(uint64_t(50 + s), kTokens, tiny_shape().vocab);
      sequences[size_t(s)].expected = expected_logits(model, sequences[size_t(s)].tokens);
    }
    for (int32_t i = 0; i < kSteps; i++) {
      StepSpec step;
      std::vector<std::pair<int32_t, int32_t>> drawn;  // sequence, position
      for (int32_t s = 0; s < kSequences; s++) {
        Sequence& own = sequences[size_t(s)];
        int32_t const slot = 4 * s, back = random.below(3);
        int32_t from = own.done > 0 ? slot : -1;
        bool const goes_back = own.done == kTokens || random.below(4) == 0;
        if (goes_back && own.saved[back] >= 0 && own.saved[back] < kTokens) {
          own.done = own.saved[back];
          from = slot + 1 + back;
        } else if (own.done == kTokens) {
          own.done = 0;
          from = -1;
        } else if (random.below(5) == 0) {
          continue;
        }
        int32_t const count = std::min(kTokens - own.done, 1 + random.below(random.below(2) ? 20 : 2));
        ChunkSpec chunk{.start = own.done,
                        .tokens = slice(own.tokens, own.done, own.done + count),
                        .pages = pages_from(8 * s, (own.done + count + 15) / 16),
                        .sampled = random.below(3) > 0,
                        .state = slot,
                        .from = from};
        int32_t after = 0;
        for (int32_t k = 0; k < 3; k++) {
          after += 1 + random.below(count);
          if (after > count || slot + 1 + k == from || random.below(2)) continue;
          chunk.saves.insert(chunk.saves.end(), {after, slot + 1 + k});
          own.saved[k] = own.done + after;
        }
        own.done += count;
        if (chunk.sampled) drawn.push_back({s, own.done - 1});
        step.chunks.push_back(std::move(chunk));
      }
      if (step.chunks.empty()) continue;
      StepOutcome const outcome = run_step(engine.get(), step);
      for (size_t row = 0; row < drawn.size(); row++) {
        auto const [s, position] = drawn[row];
        CHECK(is_equal(outcome, int32_t(row), sequences[size_t(s)].expected, position),
              "%s: step %d: sequence %d differs after position %d", name.c_str(), i, s, position);
      }
    }
  });
}

// Continues a prompt on an engine that got its pages and its state from another one, the state in two parts.
TEST(engine_states_are_invariant_to_copies) {
  static constexpr int32_t kTokens = 39, kCut = 32;
  for_each_family([](bunting_model const* model, std::string const& name, bunting_model_shape const& shape) {
    std::vector<int32_t> const tokens = random_tokens(3, kTokens, tiny_shape().vocab);
    std::vector<float> const expected = expected_logits(model, tokens);
    EnginePointer const from = open_engine(model, stateful_limits()),
                        to = open_engine(model, stateful_limits());
    run_step(
        from.get(),
        StepSpec{{}, {{.start = 0, .tokens = tokens, .pages = {9, 3, 20}, .state = 1, .saves = {kCut, 7}}}});
    uint64_t weights, page_bytes, state_bytes;
    REQUIRE(bunting_model_plan(&shape, 16, &weights, &page_bytes, &state_bytes) == BUNTING_OK, "%s",
            bunting_last_error());
    std::vector<char> pages(2 * size_t(page_bytes)), state(static_cast<size_t>(state_bytes));
    int32_t const source[] = {9, 3}, target[] = {11, 2};
    uint64_t const part = state_bytes / 3;
    auto const is_copied = [&](bunting_status status) {
      CHECK(status == BUNTING_OK, "%s: %s", name.c_str(), bunting_last_error());
    };
    is_copied(bunting_engine_read_pages(from.get(), source, 2, pages.data(), pages.size()));
    is_copied(bunting_engine_read_state(from.get(), 7, part, state.data() + part, state_bytes - part));
    is_copied(bunting_engine_read_state(from.get(), 7, 0, state.data(), part));
    is_copied(bunting_engine_write_pages(to.get(), target, 2, pages.data(), pages.size()));
    is_copied(bunting_engine_write_state(to.get(), 4, 0, state.data(), part));
    is_copied(bunting_engine_write_state(to.get(), 4, part, state.data() + part, state_bytes - part));
    StepOutcome const rest = run_step(to.get(), StepSpec{{},
                                                         {{.start = kCut,
                                                           .tokens = slice(tokens, kCut, kTokens),
                                                           .pages = {11, 2, 5},
                                                           .state = 0,
                                                           .from = 4}}});
    CHECK(is_equal(rest, 0, expected, kTokens - 1), "%s: differs after a copied state", name.c_str());
  });
}

TEST(engine_refuses_wrong_copies_of_states) {
  bunting_model_shape const shape = families()[0].shape;
  TinyFile const file(shape);
  ModelPointer const model = load_model(shape, file);
  EnginePointer const engine = open_engine(model.get(), stateful_limits());
  uint64_t weights, page, all;
  REQUIRE(bunting_model_plan(&shape, 16, &weights, &page, &all) == BUNTING_OK, "%s", bunting_last_error());
  std::vector<char> bytes(static_cast<size_t>(all) + 1);
  auto const status = [&](bunting_engine* of, int32_t slot, uint64_t offset, uint64_t size) {
    bunting_status const read = bunting_engine_read_state(of, slot, offset, bytes.data(), size);
    bunting_status const write = bunting_engine_write_state(of, slot, offset, bytes.data(), size);
    CHECK(read == write, "reading ended with %d, writing with %d", read, write);
    return read;
  };
  CHECK(status(engine.get(), kSlots - 1, 0, all) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(status(engine.get(), 0, all, 0) == BUNTING_OK, "%s", bunting_last_error());
  CHECK(status(engine.get(), kSlots, 0, all) == BUNTING_INVALID, "a slot beyond the last one");
  CHECK(status(engine.get(), -1, 0, all) == BUNTING_INVALID, "slot -1");
  CHECK(status(engine.get(), 0, 1, all) == BUNTING_INVALID, "a byte too many");
  CHECK(status(engine.get(), 0, ~0ull, 2) == BUNTING_INVALID, "an offset that overflows");
  TinyFile const plain_file(tiny_shape());
  ModelPointer const plain_model = load_model(tiny_shape(), plain_file);
  EnginePointer const plain = open_engine(plain_model.get(), tiny_limits());
  CHECK(status(plain.get(), 0, 0, 0) == BUNTING_INVALID, "a model without states");
}

// Qwen3-Next's files group rows of the state by key head, and alternate a head's rows of q and of its gate.
// GGUF files have -exp(A_log).
TEST(engine_states_take_the_orders_of_files) {
  bunting_model_shape shape = families()[0].shape;
  TinyFile const file(shape);
  std::string const path = file.path() + "-ordered";
  std::FILE* const from = std::fopen(file.path().c_str(), "rb");
  std::FILE* const to = std::fopen(path.c_str(), "wb");
  REQUIRE(from && to, "no files");
  bunting_model* opened = nullptr;
  REQUIRE(bunting_model_open(&shape, &opened) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const model(opened);
  int64_t const key_heads = shape.state_key_heads, each = shape.state_heads / key_heads;
  int64_t const keys = shape.state_key_size, values = each * shape.state_value_size;
  struct Load {
    TinyFile::Tensor tensor;
    int32_t flags;
    int64_t run, run_step;  // rows of a run, and from one run to the next
  };
  std::vector<Load> loads;
  for (TinyFile::Tensor const& t : file.tensors()) {
    std::vector<float> numbers(size_t(t.rows * t.cols));
    std::fseek(from, long(t.offset), SEEK_SET);
    CHECK(std::fread(numbers.data(), 4, numbers.size(), from) == numbers.size(), "a short file");
    Load load{t, 0, t.rows, t.rows};
    bool const is_key = t.tensor == BUNTING_T_STATE_Q || t.tensor == BUNTING_T_STATE_K;
    if (is_key || t.tensor == BUNTING_T_STATE_V || t.tensor == BUNTING_T_STATE_Z)
      load = {t, BUNTING_GROUPED_HEADS, is_key ? keys : values, 2 * (keys + values)};
    if (t.tensor == BUNTING_T_STATE_A || t.tensor == BUNTING_T_STATE_B)
      load = {t, BUNTING_GROUPED_HEADS, each, 2 * each};
    bool const is_gated = shape.layer[t.layer].gated_output != 0;
    if (t.tensor == BUNTING_T_Q_GATE || (t.tensor == BUNTING_T_Q && is_gated))
      load = {t, BUNTING_GATED_HEADS, shape.head_size, 2 * shape.head_size};
    if (t.tensor == BUNTING_T_STATE_A_LOG) {
      load.flags = BUNTING_NEGATED_EXP;
      for (float& number : numbers) number = float(-std::exp(double(number)));
    }
    // The rows between those of the tensor are other numbers.
    std::vector<float> stored(size_t(t.rows / load.run * load.run_step * t.cols), 77);
    for (int64_t row = 0; row < t.rows; row++)
      std::copy_n(numbers.data() + row * t.cols, t.cols,
                  stored.data() + (row / load.run * load.run_step + row % load.run) * t.cols);
    load.tensor.offset = uint64_t(std::ftell(to));
    std::fwrite(stored.data(), 4, stored.size(), to);
    loads.push_back(load);
  }
  std::fclose(from);
  std::fclose(to);
  for (Load const& load : loads) {
    TinyFile::Tensor const& t = load.tensor;
    CHECK(bunting_model_load(opened, t.tensor, t.layer, path.c_str(), t.offset, BUNTING_F32 + load.flags,
                             t.rows, t.cols) == BUNTING_OK,
          "%s", bunting_last_error());
  }
  REQUIRE(bunting_model_seal(opened) == BUNTING_OK, "%s", bunting_last_error());
  std::vector<int32_t> const tokens = random_tokens(3, 9, shape.vocab);
  CHECK(expected_logits(opened, tokens) == expected_logits(load_model(shape, file).get(), tokens),
        "the logits differ");
  unlink(path.c_str());  // GPU engines read it when they open
  // Other tensors have no such orders.
  bunting_model* other = nullptr;
  REQUIRE(bunting_model_open(&shape, &other) == BUNTING_OK, "%s", bunting_last_error());
  ModelPointer const refusing(other);
  for (TinyFile::Tensor const& t : file.tensors())
    for (int32_t const flag : {int{BUNTING_GATED_HEADS}, int{BUNTING_NEGATED_EXP}}) {
      bool const takes = flag == BUNTING_GATED_HEADS ? t.tensor == BUNTING_T_Q || t.tensor == BUNTING_T_Q_GATE
                                                     : t.tensor == BUNTING_T_STATE_A_LOG;
      if (!takes)
        CHECK(bunting_model_load(other, t.tensor, t.layer, file.path().c_str(), t.offset, BUNTING_F32 + flag,
                                 t.rows, t.cols) == BUNTING_INVALID,
              "tensor %d with flag %d", t.tensor, flag);
    }
}

TEST(engine_states_need_slots) {
  bunting_model_shape const shape = families()[0].shape;
  TinyFile const file(shape);
  ModelPointer const model = load_model(shape, file);
  uint64_t weights = 0, page = 0, state = 0;
  CHECK(bunting_model_plan(&shape, 16, &weights, &page, &state) == BUNTING_OK, "%s", bunting_last_error());
  // Two layers with 3 inputs of 2*32 + 128 channels, and 4 heads of [16, 32].
  CHECK(state == 2 * 4 * (3 * 192 + 4 * 16 * 32), "%llu bytes", (unsigned long long)state);
  bunting_engine* engine = nullptr;
  bunting_engine_limits const without = tiny_limits();
  CHECK(bunting_engine_open(model.get(), nullptr, &without, nullptr, &engine) == BUNTING_INVALID &&
            std::strstr(bunting_last_error(), "0 state slots"),
        "%s", bunting_last_error());
  bunting_model_shape const plain_shape = tiny_shape();
  TinyFile const plain_file(plain_shape);
  ModelPointer const plain_model = load_model(plain_shape, plain_file);
  bunting_engine_limits const with = stateful_limits();
  CHECK(bunting_engine_open(plain_model.get(), nullptr, &with, nullptr, &engine) == BUNTING_INVALID,
        "opened");
}

}  // namespace
}  // namespace bunting::test
