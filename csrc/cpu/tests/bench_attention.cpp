// bench_attention.cpp - benchmark of attention, the row kernels and sampling, on one thread, per level. It
// has no pass or fail.
//
//   bunting_bench_attention [--json] [level]     e.g. `bunting_bench_attention avx512`
//
// Decodes walk sequences that together exceed every cache, like a step over many layers; prompts use one
// sequence. Row kernels process 512 rows of 2,048, like a step of prompts. bench.h measures the ceilings.
#include <numeric>
#include <random>

#include "cpu/tests/bench.h"
#include "tests/kv_test.h"

namespace bunting::test {
namespace {

using bench::best_seconds;

constexpr double kBudget = 0.2;

// Level under test and the context of its measurements.
struct Level {
  Kernels const& kernels;
  int32_t isa;
  double read;
  bool as_json;

  void tell(std::string kernel, std::string what, double seconds, double operations, double bytes,
            Dtype dtype = Dtype::f32) const {
    bench::tell({.level = kernels.name,
                 .kernel = std::move(kernel),
                 .what = std::move(what),
                 .seconds = seconds,
                 .operations = operations,
                 .bytes = bytes,
                 .peak_operations = operations > 0 ? bench::peak_operations(isa, dtype) : 0,
                 .peak_bytes = read},
                as_json);
  }
};

struct Case {
  int32_t sequences, start, count, query_heads, kv_heads, head_size;
  Dtype dtype = Dtype::bf16;
};

void bench_attention(Level const& level, Case const& c) {
  int32_t const page_count = (c.start + c.count + kPageTokens - 1) / kPageTokens;
  size_t const page_bytes = kv_page_bytes(c.dtype, c.kv_heads, c.head_size);
  // Allocated as in the engine.
  MemoryRegion const pages(page_bytes * size_t(page_count * c.sequences), "pages");
  std::memset(pages.data(), 0x3c, pages.bytes());
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<int32_t> ids(size_t(page_count * c.sequences));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  int64_t const width = int64_t(c.query_heads) * c.head_size, tokens = int64_t(c.sequences) * c.count;
  std::vector<float> q(size_t(tokens * width));
  for (float& value : q) value = uniform(random);
  Aligned<char> out(q.size() * 4), scratch(attention_scratch_bytes(c.head_size));
  std::vector<ChunkView> chunks;
  std::vector<AttentionItem> items;
  double flops = 0, bytes = 0;
  for (int32_t s = 0; s < c.sequences; ++s) {
    chunks.push_back({s * c.count, c.count, c.start, ids.data() + size_t(s) * size_t(page_count)});
    for (int32_t head = 0; head < c.kv_heads; ++head)
      for (int32_t token = 0; token < c.count; token += 32) {
        int32_t const group = c.query_heads / c.kv_heads;
        items.push_back({.chunk = s,
                         .kv_head = head,
                         .row_begin = token * group,
                         .row_end = std::min(token + 32, c.count) * group});
      }
    for (int32_t row = 0; row < c.count; ++row) flops += 4.0 * double(width) * (c.start + row + 1);
    bytes += double(page_count) * double(page_bytes);
  }
  Attention a;
  a.q = q.data();
  a.ldq = a.ldo = width;
  a.kv = {c.dtype, c.kv_heads, c.head_size, pages.data(), page_bytes};
  a.chunks = chunks.data();
  a.items = items.data();
  a.query_heads = c.query_heads;
  a.scale = 0.125f;
  a.out = out.data();
  a.scratch = scratch.data();
  double const time = best_seconds(kBudget, [&] { level.kernels.attention(a, 0, int64_t(items.size())); });
  char what[80];
  std::snprintf(what, sizeof what, "%d x (%d at %d), heads %d/%d of %d", c.sequences, c.count, c.start,
                c.query_heads, c.kv_heads, c.head_size);
  level.tell(std::string("attention ") + name_of(c.dtype), what, time, flops, bytes,
             c.dtype == Dtype::f32 ? Dtype::f32 : Dtype::bf16);
}

void bench_rope_append(Level const& level, Dtype dtype, int32_t query_heads, int32_t kv_heads,
                       int32_t head_size) {
  constexpr int32_t kTokens = 512;
  Pages pages(dtype, kv_heads, head_size, kTokens / kPageTokens);
  int64_t const width = int64_t(query_heads + 2 * kv_heads) * head_size;
  std::vector<float> qkv(size_t(kTokens * width), 0.5f), norm(size_t(head_size), 1.0f);
  std::vector<float> const angle(size_t(kTokens * head_size / 2), 0.7f);
  std::vector<int32_t> positions(kTokens), token_pages(kTokens);
  for (int32_t t = 0; t < kTokens; ++t) {
    positions[size_t(t)] = t;
    token_pages[size_t(t)] = t / kPageTokens;
  }
  RopeAppend a;
  a.qkv = qkv.data();
  a.ldqkv = width;
  a.query_heads = query_heads;
  a.q_norm = a.k_norm = norm.data();
  a.norm_epsilon = 1e-6f;
  a.rotated = head_size;
  a.cos = a.sin = angle.data();
  a.positions = positions.data();
  a.token_pages = token_pages.data();
  a.kv = pages.kv;
  double const time = best_seconds(kBudget, [&] { level.kernels.rope_append(a, 0, kTokens); });
  char what[80];
  std::snprintf(what, sizeof what, "%d rows, heads %d/%d of %d, with norms", kTokens, query_heads, kv_heads,
                head_size);
  // The kernel reads and writes q. It reads k and v as f32 and writes them in the type of the pages.
  double const bytes =
      4.0 * double(width) + 4.0 * query_heads * head_size + 2.0 * dtype_bytes(dtype) * kv_heads * head_size;
  level.tell(std::string("rope_append ") + name_of(dtype), what, time, 0, kTokens * bytes);
}

// Measures kernels that pass over rows of activations once.
void bench_rows(Level const& level) {
  constexpr int64_t kRows = 512, kWidth = 2048;
  constexpr double kElements = double(kRows) * kWidth;
  std::vector<float> const x(size_t(2 * kRows * kWidth), 0.5f), weight(size_t(kWidth), 1.0f);
  Aligned<bf16> y(size_t(kRows * kWidth));
  std::string const what = "512 rows of 2048";
  level.tell("norm", what,
             best_seconds(kBudget,
                          [&] {
                            level.kernels.norm({y.data(), kWidth}, x.data(), kWidth,
                                               {NormKind::rms, weight.data(), 1e-6f}, kWidth, 0, kRows);
                          }),
             0, kElements * 6);
  level.tell("gate", what,
             best_seconds(kBudget,
                          [&] {
                            level.kernels.gate({y.data(), kWidth}, x.data(), 2 * kWidth, kWidth,
                                               Activation::silu, 0, kRows);
                          }),
             0, kElements * 10);
  std::vector<InputGroup> groups(size_t(kRows * kWidth / kGroup));
  level.tell("quantise", what,
             best_seconds(kBudget,
                          [&] {
                            level.kernels.quantise({groups.data(), kWidth / kGroup, Dtype::q8_128}, y.data(),
                                                   Dtype::bf16, kWidth, kWidth, 0, kRows);
                          }),
             0, kElements * (2 + double(sizeof(InputGroup)) / kGroup));
}

void bench_sample(Level const& level, char const* name, float temperature, int32_t top_k, float top_p,
                  int32_t top_logprobs) {
  constexpr int32_t kVocab = 151936;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocab);
  for (float& value : logits) value = normal(random) + (random() % 1000 == 0 ? 8.0f : 0.0f);
  SampleRow row{};
  row.temperature = temperature;
  row.top_k = top_k;
  row.top_p = top_p;
  row.repetition = 1;
  row.top_logprobs = top_logprobs;
  Aligned<char> scratch(sample_scratch_bytes(kVocab));
  int32_t top[40];
  double const time = best_seconds(kBudget, [&] {
    ++row.position;
    level.kernels.sample(row, logits.data(), kVocab, scratch.data(), top);
  });
  level.tell("sample", std::string(name) + ", 151936 logits", time, 0, kVocab * 4.0);
}

}  // namespace
}  // namespace bunting::test

int main(int count, char** arguments) {
  using namespace bunting;
  using namespace bunting::test;
  bool as_json = false;
  char const* only = nullptr;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--json") == 0)
      as_json = true;
    else
      only = arguments[i];
  }
  double const read = bench::peak_read_bytes();
  for (int32_t isa = 0; isa <= best_isa(); ++isa) {
    Kernels const* const kernels = kernels_for(isa);
    if (!kernels || (only && std::strcmp(only, kernels->name) != 0)) continue;
    Level const level{*kernels, isa, read, as_json};
    for (Case const& c : {
             Case{1, 0, 512, 4, 1, 64},
             Case{1, 1536, 512, 4, 1, 64},
             Case{1, 1536, 512, 2, 1, 128},
             Case{1, 1536, 512, 2, 1, 128, Dtype::f32},
             Case{512, 511, 1, 1, 1, 64},
             Case{512, 511, 1, 4, 1, 64},
             Case{512, 511, 1, 7, 1, 64},
             Case{512, 511, 1, 7, 1, 64, Dtype::q8},
             Case{16, 4095, 1, 16, 8, 128},
             Case{64, 63, 1, 4, 2, 32},
         })
      bench_attention(level, c);
    bench_rope_append(level, Dtype::bf16, 16, 8, 128);
    bench_rope_append(level, Dtype::f32, 16, 8, 128);
    bench_rows(level);
    bench_sample(level, "greedy", 0, 0, 1, -1);
    bench_sample(level, "greedy and 5 logprobs", 0, 0, 1, 5);
    bench_sample(level, "temperature 0.8", 0.8f, 0, 1, -1);
    bench_sample(level, "temperature 0.8 and top-p 0.95", 0.8f, 0, 0.95f, -1);
    bench_sample(level, "temperature 0.8 and top-k 40", 0.8f, 40, 1, -1);
    bench_sample(level, "temperature 5 and top-p 0.95", 5, 0, 0.95f, -1);
  }
}
