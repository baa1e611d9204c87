// bench_kernels_rows.cpp - kernels between the products: norm, RoPE and append, gate, embedding, sampling;
// and what a launch in a graph costs.
#include <cstdio>

#include "cuda/tests/bench_kernels.h"
#include "include/engine.h"

namespace bunting::cuda::bench {
namespace {

std::string tokens_json(int32_t tokens) {
  return "\"tokens\":" + std::to_string(tokens);
}

// Rows of a sampling step: greedy, or drawn with top-k and top-p.
std::vector<uint32_t> sampling_rows(int32_t count, bool is_greedy) {
  auto const bits = [](float x) {
    uint32_t word;
    std::memcpy(&word, &x, 4);
    return word;
  };
  constexpr uint32_t kNoMask = uint32_t(-1);
  std::vector<uint32_t> rows;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<uint32_t> row = {bits(is_greedy ? 0.0f : 0.8f),
                                 bits(is_greedy ? 1.0f : 0.95f),
                                 0,
                                 bits(1.0f),
                                 0,
                                 0,
                                 is_greedy ? 0u : 50u,
                                 uint32_t(i),
                                 7,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 kNoMask,
                                 0};
    row.resize(BUNTING_ROW_WORDS);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

void bench_sampling(int32_t tokens) {
  int32_t const vocab = scale().vocab;
  constexpr int32_t kResultWords = BUNTING_RESULT_ROW_WORDS;
  Buffer const logits(size_t(tokens) * size_t(vocab) * 4), changed(size_t(tokens) * size_t(vocab) * 4),
      results(size_t(tokens) * kResultWords * 4);
  DeviceMemory const nothing = upload(std::vector<int32_t>(4));
  for (bool is_greedy : {true, false}) {
    DeviceMemory const rows = upload(sampling_rows(tokens, is_greedy));
    line("sample", tokens_json(tokens) + ",\"drawn\":\"" + (is_greedy ? "greedy" : "top-k and top-p") + '"',
         seconds_of(scale().few_launches,
                    [&](Stream& s, int) {
                      sample(s, {logits.as<float>(), changed.as<float>(), at<uint32_t>(rows),
                                 at<int32_t>(nothing), at<uint32_t>(nothing), results.as<uint32_t>(),
                                 kResultWords, tokens, vocab});
                    }),
         4.0 * tokens * vocab, 0);
  }
}

}  // namespace

void bench_rows(std::string const&) {
  Scale const& c = scale();
  int const launches = c.few_launches;
  for (int32_t tokens : c.tiny ? std::vector<int32_t>{1, 5} : std::vector<int32_t>{1, 64, 2048}) {
    size_t const h = size_t(tokens) * size_t(c.hidden), f = size_t(tokens) * size_t(c.forward);
    int32_t const heads = c.query_heads + 2 * c.kv_heads, pairs = c.head_size / 2;
    size_t const qkv_width = size_t(tokens) * size_t(heads * c.head_size);
    int32_t const part = c.kv_heads * 16 * c.head_size, pages = tokens / 16 + 1;
    Buffer const x(h * 4), delta(h * 4), weight(size_t(c.hidden) * 4), y(h * 2), gate_up(f * 8),
        activated(f * 2), table(size_t(c.vocab) * size_t(c.hidden) * 2), qkv(qkv_width * 4), q(qkv_width * 2),
        turns(size_t(tokens * pairs) * 4), kv(size_t(pages) * size_t(c.layers) * size_t(part) * 4);
    std::vector<int32_t> numbers;
    for (int32_t i = 0; i < tokens; ++i) numbers.push_back(i);
    DeviceMemory const slots = upload(numbers);
    line("add_norm", tokens_json(tokens),
         seconds_of(launches,
                    [&](Stream& s, int) {
                      add_norm(s, {x.as<float>(), delta.as<float>(), weight.as<float>(), y.as<bf16>(), 1e-5f,
                                   tokens, c.hidden});
                    }),
         14.0 * double(h), 0);
    line("gate", tokens_json(tokens),
         seconds_of(launches,
                    [&](Stream& s, int) {
                      gate(s, gate_of(gate_up.as<float>(), activated.as<bf16>(), tokens, c.forward,
                                      BUNTING_ACTIVATION_SILU));
                    }),
         10.0 * double(f), 0);
    line("embed", tokens_json(tokens),
         seconds_of(launches,
                    [&](Stream& s, int) {
                      embed(s, {x.as<float>(), table.as<bf16>(), at<int32_t>(slots),
                                std::min(tokens, c.vocab), c.hidden});
                    }),
         6.0 * double(h), 0);
    line("rope_append", tokens_json(tokens),
         seconds_of(launches,
                    [&](Stream& s, int) {
                      rope_append(s, {.qkv = qkv.as<float>(),
                                      .q = q.as<bf16>(),
                                      .query_heads = c.query_heads,
                                      .q_norm = nullptr,
                                      .k_norm = nullptr,
                                      .norm_epsilon = 1e-5f,
                                      .cos = turns.as<float>(),
                                      .sin = turns.as<float>(),
                                      .query_scale = nullptr,
                                      .positions = at<int32_t>(slots),
                                      .slots = at<int32_t>(slots),
                                      .kv = {kv.as<bf16>(), int64_t(c.layers) * 2 * part, part, c.kv_heads,
                                             c.head_size, 16},
                                      .tokens = tokens,
                                      .rotated = c.head_size});
                    }),
         6.0 * double(qkv_width), 0);
    if (tokens <= 64) bench_sampling(tokens);
  }
  // A launch with as little work as possible, many in one graph.
  int const nodes = c.tiny ? 4 : 512;
  Buffer const x(64), table(1024);
  DeviceMemory const id = upload(std::vector<int32_t>(1));
  line("graph node", "\"nodes\":" + std::to_string(nodes),
       seconds_of(nodes, [&](Stream& s,
                             int) { embed(s, {x.as<float>(), table.as<bf16>(), at<int32_t>(id), 1, 8}); }),
       0, 0);
}

}  // namespace bunting::cuda::bench
