// bench_attention_plan.cpp - benchmark of planning attention on the CPU, and of the balance of the blocks by
// the plan's own costs. It needs no GPU and has no pass or fail.
//
//   bunting_bench_attention_plan
//
// The shape is 32 query and 8 KV heads with 264 blocks: an 8B model on 132 multiprocessors. The engine makes
// a plan once per step.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cuda/attention_plan.h"

namespace bunting::cuda {
namespace {

struct Step {
  std::vector<AttentionChunk> chunks;
  std::vector<SharedRange> shared;
  int32_t tokens = 0;
  void add(int32_t start, int32_t count) {
    chunks.push_back({tokens, count, start, int32_t(chunks.size()) * 4096});
    tokens += count;
  }
};

void bench(char const* name, Step const& step) {
  using Clock = std::chrono::steady_clock;
  AttentionShape const shape{32, 8, 0, 264, 128};
  AttentionPlan plan;
  double best = 1e9;
  auto const until = Clock::now() + std::chrono::milliseconds(100);
  do {
    auto const start = Clock::now();
    plan_attention(shape, step.chunks, step.shared, plan);
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  } while (Clock::now() < until);
  int64_t read = 0;
  for (AttentionItem const& item : plan.items) read += item.kv_end - item.kv_begin;
  std::printf("| %s | %zu | %d | %.1f | %.0f %% | %.0f |\n", name, plan.items.size(), plan.partial_rows,
              double(read) / shape.kv_heads * 1e-3, 100 * plan.balance, best);
}

int run() {
  std::printf("| Step | Items | Partial rows | Thousand positions read per head | Balance | µs |\n");
  std::printf("|---|---|---|---|---|---|\n");
  Step one, few, chunk, many;
  one.add(32767, 1);
  for (int i = 0; i < 64; ++i) few.add(2047, 1);
  for (int i = 0; i < 63; ++i) chunk.add(4095, 1);
  chunk.add(4096, 512);
  for (int i = 0; i < 256; ++i) many.add(100 + i * 7919 % 32000, 1);
  bench("1 decode of 32k", one);
  bench("64 decodes of 2k", few);
  bench("63 decodes of 4k and a chunk of 512", chunk);
  bench("256 decodes of 100 to 32k", many);
  Step flat;
  for (int i = 0; i < 128; ++i) flat.add(4096 + 200, 1);
  Step shared = flat;
  shared.shared = {{0, 128, 0, 4096, -1}};
  bench("128 decodes, 4k in common and 200 own, each for itself", flat);
  bench("the same, read once", shared);
  for (int32_t count : {128, 256}) {
    Step tree;
    for (int i = 0; i < count; ++i) tree.add(2048 + 8192 + 200 + i * 37 % 101, 1);
    Step levels = tree;
    levels.shared = {{0, count, 0, 2048, -1}};
    for (int32_t i = 0; i < count / 32; ++i)
      levels.shared.push_back({32 * i, 32 * (i + 1), 2048, 2048 + 8192, 0});
    char name[100];
    std::snprintf(name, sizeof name, "%d decodes: 2k in common, 8k of %d documents, 200 to 300 own, flat",
                  count, count / 32);
    bench(name, tree);
    bench("the same, two levels read once", levels);
  }
  return 0;
}

}  // namespace
}  // namespace bunting::cuda

int main() {
  return bunting::cuda::run();
}
