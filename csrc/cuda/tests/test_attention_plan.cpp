// Plans: every token meets every position it sees exactly once, whatever is shared, split or hidden by a
// window; and blocks get equal work.
#include <map>

#include "cuda/attention_plan.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

using namespace cuda;

struct Step {
  std::vector<AttentionChunk> chunks;
  std::vector<SharedSpan> shared;

  // Chunks of `count` tokens from position `start` on, one after the other.
  void add(int32_t start, int32_t count) {
    int32_t const first = chunks.empty() ? 0 : chunks.back().first_token + chunks.back().count;
    chunks.push_back({first, count, start, int32_t(chunks.size()) * 1000});
  }
  int32_t tokens() const { return chunks.back().first_token + chunks.back().count; }
};

// Positions of a token that the plan's items give it, each as often as they do.
std::map<int32_t, int> positions_of(AttentionPlan const& plan, int32_t token, int32_t head) {
  std::map<int32_t, int> positions;
  for (AttentionItem const& item : plan.items)
    if (item.kv_head == head && token >= item.first_token && token < item.first_token + item.tokens)
      for (int32_t p = item.kv_begin; p < item.kv_end; ++p) ++positions[p];
  return positions;
}

void check_plan(AttentionShape const& shape, Step const& step) {
  AttentionPlan plan;
  plan_attention(shape, step.chunks, step.shared, plan);
  REQUIRE(int32_t(plan.item_begin.size()) == shape.blocks + 1 && plan.item_begin[0] == 0 &&
              plan.item_begin.back() == int32_t(plan.items.size()),
          "%zu items in %zu blocks", plan.items.size(), plan.item_begin.size() - 1);
  int32_t const group = shape.query_heads / shape.kv_heads;
  for (AttentionItem const& item : plan.items) {
    CHECK(item.kv_begin < item.kv_end && item.tokens > 0, "an empty item");
    CHECK(item.tokens * group <= (item.many_rows ? kManyRows : kFewRows), "%d rows in a tile",
          item.tokens * group);
  }
  for (AttentionChunk const& chunk : step.chunks)
    for (int32_t i = 0; i < chunk.count; ++i)
      for (int32_t head = 0; head < shape.kv_heads; ++head) {
        int32_t const position = chunk.start + i;
        std::map<int32_t, int> const seen = positions_of(plan, chunk.first_token + i, head);
        int32_t const first = shape.sliding_window > 0 ? std::max(0, position - shape.sliding_window + 1) : 0;
        for (int32_t p = first; p <= position; ++p)
          CHECK(seen.count(p) && seen.at(p) == 1, "token %d meets position %d %d times",
                chunk.first_token + i, p, seen.count(p) ? seen.at(p) : 0);
      }
  // Partial rows: each once, and in the merges of exactly the tokens of their items.
  std::map<int32_t, int> partial_rows;
  for (AttentionItem const& item : plan.items)
    for (int32_t i = 0; item.partial >= 0 && i < item.tokens; ++i) {
      ++partial_rows[item.partial + i * group];
      size_t const pair = size_t((item.first_token + i) * shape.kv_heads + item.kv_head);
      int found = 0;
      for (int32_t m = plan.merge_begin[pair]; m < plan.merge_begin[pair + 1]; ++m)
        found += plan.merge_rows[size_t(m)] == item.partial + i * group;
      CHECK(found == 1, "a partial row is merged %d times", found);
    }
  CHECK(partial_rows.size() == plan.merge_rows.size() &&
            partial_rows.size() * size_t(group) == size_t(plan.partial_rows),
        "%zu partial rows, %zu merged, %d in all", partial_rows.size(), plan.merge_rows.size(),
        plan.partial_rows);
}

}  // namespace

TEST(attention_plan_shows_every_token_what_it_sees_once) {
  Random random{12};
  for (int round = 0; round < 60; ++round) {
    Step step;
    int const chunks = 1 + random.below(6);
    for (int c = 0; c < chunks; ++c)
      step.add(random.below(3) == 0 ? 0 : random.below(700), 1 + random.below(90));
    int const spans = random.below(4);
    for (int s = 0; s < spans; ++s) {
      int const a = random.below(chunks), b = a + 1 + random.below(chunks - a), begin = random.below(300);
      AttentionChunk const& last = step.chunks[size_t(b) - 1];
      step.shared.push_back({step.chunks[size_t(a)].first_token, last.first_token + last.count, begin,
                             begin + random.below(500)});
    }
    int32_t const groups[] = {1, 2, 4, 7, 16};
    int32_t const heads = 1 + random.below(2), group = groups[random.below(5)];
    check_plan({heads * group, heads, random.below(2) ? 0 : 1 + random.below(300), 1 + random.below(40)},
               step);
  }
}

TEST(attention_plan_reads_a_shared_prefix_once) {
  Step step;
  for (int c = 0; c < 16; ++c) step.add(4096 + 100, 1);
  step.shared.push_back({0, 16, 0, 4096});
  AttentionPlan plan;
  plan_attention({4, 1, 0, 8}, step.chunks, step.shared, plan);
  int64_t read = 0;
  for (AttentionItem const& item : plan.items) read += item.kv_end - item.kv_begin;
  CHECK(read == 4096 + 16 * 101, "%d positions are read", int(read));
}

TEST(attention_plan_balances_the_blocks) {
  struct Batch {
    char const* name;
    int decodes, context, chunk;
    double at_least;
  };
  for (Batch const& batch :
       {Batch{"1 decode, 8k", 1, 8192, 0, 0.7}, Batch{"64 decodes, 2k", 64, 2048, 0, 0.9},
        Batch{"1 decode, 32k", 1, 32768, 0, 0.8}, Batch{"63 decodes, a chunk", 63, 4096, 512, 0.9}}) {
    Step step;
    for (int i = 0; i < batch.decodes; ++i) step.add(batch.context - 1, 1);
    if (batch.chunk) step.add(batch.context, batch.chunk);
    AttentionPlan plan;
    plan_attention({32, 8, 0, 264}, step.chunks, step.shared, plan);
    CHECK(plan.balance >= batch.at_least, "%s: %.2f", batch.name, plan.balance);
  }
}

}  // namespace bunting::test
