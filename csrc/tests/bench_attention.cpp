// bench_attention.cpp - attention, rope_append and sampling on one thread, per level. Not a test: nothing
// here passes or fails.
//
//   bunting_bench_attention [level]     e.g. `bunting_bench_attention avx512`
//
// Decodes walk sequences that together exceed every cache, as a step over many layers does; prompts stay with
// one.
#include <cstdio>
#include <ctime>
#include <numeric>
#include <random>

#include "tests/kv_test.h"

namespace bunting::test {
namespace {

// Processor time of this thread: what else runs on the machine counts only by the caches it takes.
double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

// The fastest of several runs: the others were disturbed.
template <class Run>
double best_seconds(Run run) {
  double const start = seconds();
  double best = 1e9;
  do {
    double const before = seconds();
    run();
    best = std::min(best, seconds() - before);
  } while (seconds() - start < 0.3);
  return best;
}

struct Case {
  char const* name;
  int32_t sequences, start, count, query_heads, kv_heads, head_size;
  Dtype dtype = Dtype::bf16;
};

void bench(Kernels const& kernels, Case const& c) {
  int32_t const page_count = (c.start + c.count + kPageTokens - 1) / kPageTokens;
  Pages pages(c.dtype, c.kv_heads, c.head_size, page_count * c.sequences);
  std::memset(pages.kv.pages, 0x3c, pages.kv.page_bytes * size_t(page_count * c.sequences));
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
    bytes += double(page_count) * double(pages.kv.page_bytes);
  }
  Attention a;
  a.q = q.data();
  a.ldq = a.ldo = width;
  a.kv = pages.kv;
  a.chunks = chunks.data();
  a.items = items.data();
  a.query_heads = c.query_heads;
  a.scale = 0.125f;
  a.out = out.data();
  a.scratch = scratch.data();
  double const time = best_seconds([&] { kernels.attention(a, 0, int64_t(items.size())); });
  std::printf("attention %-8s %-4s %3d x (%4d at %4d) heads %d/%d D=%-3d %9.1f us %7.1f GFLOP/s %6.1f GB/s\n",
              c.name, name_of(c.dtype), c.sequences, c.count, c.start, c.query_heads, c.kv_heads, c.head_size,
              time * 1e6, flops / time * 1e-9, bytes / time * 1e-9);
}

void bench_rope_append(Kernels const& kernels, Dtype dtype, int32_t query_heads, int32_t kv_heads,
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
  a.cos = a.sin = angle.data();
  a.positions = positions.data();
  a.token_pages = token_pages.data();
  a.kv = pages.kv;
  double const time = best_seconds([&] { kernels.rope_append(a, 0, kTokens); });
  std::printf("rope_append %-4s T=%d heads %d/%d D=%-3d with norms %9.1f us\n", name_of(dtype), kTokens,
              query_heads, kv_heads, head_size, time * 1e6);
}

void bench_sample(Kernels const& kernels, char const* name, float temperature, int32_t top_k, float top_p,
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
  double const time = best_seconds([&] {
    ++row.position;
    kernels.sample(row, logits.data(), kVocab, scratch.data(), top);
  });
  std::printf("sample %-32s V=%d %9.1f us\n", name, kVocab, time * 1e6);
}

}  // namespace
}  // namespace bunting::test

int main(int count, char** arguments) {
  using namespace bunting;
  using namespace bunting::test;
  for (Kernels const* kernels : levels()) {
    if (count > 1 && std::strcmp(arguments[1], kernels->name) != 0) continue;
    std::printf("%s\n", kernels->name);
    for (Case const& c : {
             Case{"prompt", 1, 0, 512, 4, 1, 64},
             Case{"prompt", 1, 1536, 512, 4, 1, 64},
             Case{"prompt", 1, 1536, 512, 2, 1, 128},
             Case{"prompt", 1, 1536, 512, 2, 1, 128, Dtype::f32},
             Case{"decode", 512, 511, 1, 1, 1, 64},
             Case{"decode", 512, 511, 1, 4, 1, 64},
             Case{"decode", 512, 511, 1, 7, 1, 64},
             Case{"decode", 16, 4095, 1, 16, 8, 128},
             Case{"decode", 64, 63, 1, 4, 2, 32},
         })
      bench(*kernels, c);
    bench_rope_append(*kernels, Dtype::bf16, 16, 8, 128);
    bench_rope_append(*kernels, Dtype::f32, 16, 8, 128);
    bench_sample(*kernels, "greedy", 0, 0, 1, -1);
    bench_sample(*kernels, "greedy, 5 logprobs", 0, 0, 1, 5);
    bench_sample(*kernels, "temperature 0.8", 0.8f, 0, 1, -1);
    bench_sample(*kernels, "temperature 0.8, top-p 0.95", 0.8f, 0, 0.95f, -1);
    bench_sample(*kernels, "temperature 0.8, top-k 40", 0.8f, 40, 1, -1);
    bench_sample(*kernels, "temperature 5, top-p 0.95", 5, 0, 0.95f, -1);
  }
}
