// Tests of plans: each token meets every position that it sees exactly once, with any sharing, splitting or
// window; and blocks get equal work.
#include <map>

#include "cuda/attention_plan.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

using namespace cuda;

struct Step {
  std::vector<AttentionChunk> chunks;
  std::vector<SharedRange> shared;

  // Adds a chunk of `count` tokens from position `start` on.
  void add(int32_t start, int32_t count) {
    int32_t const first = chunks.empty() ? 0 : chunks.back().first_token + chunks.back().count;
    chunks.push_back({first, count, start, int32_t(chunks.size()) * 1000});
  }
  int32_t tokens() const { return chunks.back().first_token + chunks.back().count; }
};

// Returns the positions that a plan's items assign to a token, with their number of occurrences.
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
    CHECK(item.kv_begin % kTileKeys == 0, "an item begins at %d, inside a tile of keys", item.kv_begin);
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
  std::vector<int32_t> first_seen;  // indexed by token
  for (AttentionChunk const& chunk : step.chunks)
    for (int32_t i = 0; i < chunk.count; ++i)
      first_seen.push_back(shape.sliding_window > 0 ? std::max(0, chunk.start + i - shape.sliding_window + 1)
                                                    : 0);
  // Borders between a token's items are borders between spans, unless the window hides everything before the
  // second item. The item that sums up its spans comes first.
  for (int32_t token = 0; token < step.tokens(); ++token)
    for (int32_t head = 0; head < shape.kv_heads; ++head) {
      int32_t at = -1;
      for (AttentionItem const& item : plan.items) {
        if (item.kv_head != head || token < item.first_token || token >= item.first_token + item.tokens)
          continue;
        CHECK(at < 0 || (item.kv_begin == at && span_begin(at) == at) ||
                  (item.kv_begin > at && first_seen[size_t(token)] >= item.kv_begin),
              "an item begins at %d after one that ends at %d", item.kv_begin, at);
        CHECK((at < 0) == (item.sums_up == 1), "an item at %d sums up %d", item.kv_begin, item.sums_up);
        at = item.kv_end;
      }
    }
  // Each partial row occurs once, in order, and only in the merges of its item's tokens.
  std::map<int32_t, int> partial_rows;
  for (AttentionItem const& item : plan.items)
    for (int32_t i = 0; item.partial >= 0 && i < item.tokens; ++i) {
      size_t const pair = size_t((item.first_token + i) * shape.kv_heads + item.kv_head);
      int32_t const results = item.sums_up ? 1 : spans_in(item.kv_begin, item.kv_end);
      int32_t at = plan.merge_begin[pair];
      for (int32_t r = 0; r < results; ++r) {
        int32_t const row = item.partial + (r * item.tokens + i) * group;
        ++partial_rows[row];
        while (at < plan.merge_begin[pair + 1] && plan.merge_rows[size_t(at)] != row) ++at;
        CHECK(at < plan.merge_begin[pair + 1], "result %d of an item is not merged in order", r);
      }
    }
  CHECK(partial_rows.size() == plan.merge_rows.size() &&
            partial_rows.size() * size_t(group) == size_t(plan.partial_rows),
        "%zu partial rows, %zu merged, %d in all", partial_rows.size(), plan.merge_rows.size(),
        plan.partial_rows);
  CHECK(plan.partial_rows <= attention_partial_rows_max(shape) &&
            int64_t(plan.items.size()) <= attention_items_max(step.tokens(), shape),
        "%d partial rows and %zu items are too many", plan.partial_rows, plan.items.size());
}

// Adds a tree over chunks [begin, end): a range, and maybe ranges for the two halves.
void add_ranges(Random& random, Step& step, int32_t begin, int32_t end, int32_t parent) {
  int32_t lowest = step.chunks[size_t(begin)].start;
  for (int32_t c = begin; c < end; ++c) lowest = std::min(lowest, step.chunks[size_t(c)].start);
  int32_t const from = parent < 0 ? 0 : step.shared[size_t(parent)].kv_end;
  int32_t const pages = (lowest - from) / 16;
  if (end - begin < 2 || pages < 1) return;
  int32_t const self = int32_t(step.shared.size());
  step.shared.push_back({begin, end, from, from + 16 * (1 + random.below(pages)), parent});
  int32_t const middle = begin + 1 + random.below(end - begin - 1);
  if (random.below(3)) add_ranges(random, step, begin, middle, self);
  if (random.below(3)) add_ranges(random, step, middle, end, self);
}

}  // namespace

TEST(attention_spans_are_borders_for_every_position) {
  for (int32_t begin = 0; begin < 200'000; begin = span_end(begin)) {
    int32_t const end = span_end(begin);
    CHECK(span_begin(begin) == begin && begin % kTileKeys == 0 && span_begin(end - 1) == begin &&
              span_end(end - 1) == end,
          "[%d, %d)", begin, end);
  }
  CHECK(span_end(0) == 256 && span_end(8191) == 8192 && span_end(8192) == 8704 && span_end(20'000) == 20'480,
        "other spans");
  CHECK(spans_in(0, 256) == 1 && spans_in(255, 257) == 2 && spans_in(64, 64) == 0, "other counts");
}

TEST(attention_plan_shows_every_token_what_it_sees_once) {
  Random random{12};
  for (int round = 0; round < 60; ++round) {
    Step step;
    int const chunks = 1 + random.below(6);
    for (int c = 0; c < chunks; ++c)
      step.add(random.below(3) == 0 ? 0 : random.below(1500), 1 + random.below(90));
    if (random.below(2)) add_ranges(random, step, 0, chunks, -1);
    int32_t const groups[] = {1, 2, 4, 7, 16};
    int32_t const heads = 1 + random.below(2), group = groups[random.below(5)];
    check_plan({heads * group, heads, random.below(2) ? 0 : 1 + random.below(600), 1 + random.below(40),
                random.below(2) ? 128 : 512},
               step);
  }
}

TEST(attention_plan_reads_a_shared_prefix_once) {
  Step step;
  for (int c = 0; c < 16; ++c) step.add(4096 + 100, 1);
  step.shared.push_back({0, 16, 0, 4096 + 64, -1});
  AttentionPlan plan;
  plan_attention({4, 1, 0, 8, 64}, step.chunks, step.shared, plan);
  int64_t read = 0;
  for (AttentionItem const& item : plan.items) read += item.kv_end - item.kv_begin;
  CHECK(read == 4096 + 16 * 101, "%d positions are read", int(read));
}

// Case in which reading a short prefix separately would split the long parts into more partial results than
// it saves.
TEST(attention_plan_does_not_share_at_a_loss) {
  Step step;
  for (int c = 0; c < 8; ++c) step.add(256 + 8192 + 10, 1);
  step.shared = {{0, 8, 0, 256, -1}, {0, 4, 256, 256 + 7936, 0}, {4, 8, 256, 256 + 7936, 0}};
  AttentionPlan plan;
  plan_attention({4, 1, 0, 1, 64}, step.chunks, step.shared, plan);
  for (AttentionItem const& item : plan.items)
    CHECK(item.kv_begin == 0 ? item.kv_end == 8192 : item.kv_begin == 8192, "an item of [%d, %d)",
          item.kv_begin, item.kv_end);
}

TEST(attention_plan_balances_the_blocks) {
  Step one, short_one, many, chunk, shared, levels;
  short_one.add(8191, 1);
  one.add(32767, 1);
  for (int i = 0; i < 64; ++i) many.add(2047, 1);
  for (int i = 0; i < 63; ++i) chunk.add(4095, 1);
  chunk.add(4096, 512);
  for (int i = 0; i < 128; ++i) shared.add(4096 + 200, 1);
  shared.shared = {{0, 128, 0, 4096, -1}};
  // Two levels, with as many sequences as a graph has: partial results must not run out.
  for (int i = 0; i < 256; ++i) levels.add(2048 + 8192 + 200 + i * 37 % 101, 1);
  levels.shared = {{0, 256, 0, 2048, -1}};
  for (int32_t i = 0; i < 8; ++i) levels.shared.push_back({32 * i, 32 * (i + 1), 2048, 2048 + 8192, 0});
  struct Batch {
    char const* name;
    Step const& step;
    double at_least;
  };
  for (Batch const& batch :
       {Batch{"1 decode, 8k", short_one, 0.7}, Batch{"1 decode, 32k", one, 0.8},
        Batch{"64 decodes, 2k", many, 0.9}, Batch{"63 decodes, a chunk", chunk, 0.9},
        Batch{"128 decodes, 4k shared", shared, 0.9}, Batch{"256 decodes, two levels", levels, 0.9}}) {
    AttentionPlan plan;
    plan_attention({32, 8, 0, 264, 128}, batch.step.chunks, batch.step.shared, plan);
    CHECK(plan.balance >= batch.at_least, "%s: %.2f", batch.name, plan.balance);
    int64_t read = 0;
    for (AttentionItem const& item : plan.items) read += item.kv_end - item.kv_begin;
    if (!batch.step.shared.empty())
      CHECK(read < 8 * 256 * 1400, "%s: %d positions are read", batch.name, int(read));
  }
}

}  // namespace bunting::test
