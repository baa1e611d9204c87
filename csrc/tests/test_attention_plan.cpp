// Shared spans are read once for all their sequences, and change no bit: random trees of sequences, planned
// with and without their spans.
#include <cmath>
#include <cstring>

#include "attention_plan.h"
#include "step_block.h"
#include "tests/kv_test.h"

namespace bunting {

namespace amx_emulated {
extern Kernels const kernels;  // the AMX kernels over a software model of the tiles
}

namespace test {
namespace {

constexpr int32_t kChunksMax = 24, kTokensMax = 512, kPages = 600;

// Chunks of one step as a tree: sequences below a node have its pages in common.
struct Tree {
  StepPlan plan;
  std::vector<std::vector<int32_t>> pages;
  std::vector<SharedSpan> spans;
  int32_t next_page = 0;

  Tree() { plan.chunk.resize(kChunksMax), plan.shared.resize(kChunksMax); }

  std::vector<int32_t> take(int32_t count) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < count; ++i) ids.push_back(next_page++);
    return ids;
  }

  void add_sequence(std::vector<int32_t> const& prefix, int32_t own, int32_t count) {
    int32_t const start = int32_t(prefix.size()) * kPageTokens + own;
    pages.push_back(prefix);
    auto const more = take((own + count + kPageTokens - 1) / kPageTokens);
    pages.back().insert(pages.back().end(), more.begin(), more.end());
    plan.chunk[size_t(plan.chunks++)] = {plan.tokens, count, start, nullptr};
    plan.tokens += count;
  }

  // A node with its own pages behind `prefix` and sequences or nodes below it.
  void add_node(Random& random, std::vector<int32_t> prefix, int32_t parent, int32_t depth) {
    int32_t const begin = int32_t(prefix.size()) * kPageTokens;
    auto const own = take(1 + random.below(14));
    prefix.insert(prefix.end(), own.begin(), own.end());
    int32_t const index = int32_t(spans.size()), first = plan.chunks;
    spans.push_back({first, 0, begin, int32_t(prefix.size()) * kPageTokens, parent});
    for (int32_t child = 0; child < 2 + random.below(2); ++child) {
      if (depth < 5 && random.below(3) == 0 && plan.chunks < 12)
        add_node(random, prefix, index, depth + 1);
      else
        add_sequence(prefix, random.below(100), random.below(4) == 0 ? 1 + random.below(40) : 1);
    }
    spans[size_t(index)].chunk_end = plan.chunks;
  }

  void finish() {
    for (int32_t c = 0; c < plan.chunks; ++c) plan.chunk[size_t(c)].pages = pages[size_t(c)].data();
    std::copy(spans.begin(), spans.end(), plan.shared.begin());
    plan.shared_spans = int32_t(spans.size());
  }
};

// An outsider, a tree, an outsider with a prompt, another tree.
Tree random_tree(uint64_t seed) {
  Random random{seed};
  Tree tree;
  tree.add_sequence({}, random.below(300), 1);
  tree.add_node(random, {}, -1, 0);
  tree.add_sequence({}, random.below(100), 1 + random.below(80));
  tree.add_node(random, {}, -1, 0);
  tree.finish();
  return tree;
}

// Every row's positions are walked once, in rising order over the phases, and every piece of every phase is
// listed once.
TEST(attention_plan_covers_every_row_in_order) {
  for (uint64_t seed = 0; seed < 300; ++seed)
    for (int32_t window : {0, 90}) {
      Tree tree = random_tree(seed);
      AttentionShape const shape{6, 2, 32, window};
      AttentionPlan plan(shape, kChunksMax, kTokensMax, 3);
      plan.make(tree.plan);
      std::vector<int32_t> reached(size_t(tree.plan.tokens * shape.query_heads), 0);
      int32_t listed = 0, shared_items = 0;
      bool in_order = true;
      for (int32_t phase = 0; phase < plan.phases(); ++phase) {
        std::vector<int32_t> after = reached;
        CHECK(plan.pieces(phase) > 0, "seed %llu: phase %d is empty", (unsigned long long)seed, phase);
        for (int32_t piece = 0; piece < plan.pieces(phase); ++piece)
          for (int32_t i = plan.piece_begin(phase, piece); i < plan.piece_begin(phase, piece + 1); ++i) {
            AttentionItem const& item = plan.items()[i];
            in_order &= i == listed++;
            shared_items += item.members != nullptr;
            for (int32_t row = item.row_begin; row < item.row_end; ++row) {
              int32_t const index = row / 3;
              ChunkView const& chunk =
                  tree.plan.chunk[size_t(item.members ? item.members[index] : item.chunk)];
              int32_t const token = chunk.first_token + (item.members ? 0 : index);
              size_t const at = size_t(token * shape.query_heads + item.kv_head * 3 + row % 3);
              in_order &= reached[at] == item.kv_begin && after[at] == reached[at];
              in_order &= item.kv_end == kAttentionEnd || item.kv_end <= chunk.start;
              after[at] = item.kv_end;
            }
          }
        reached = after;
      }
      bool const whole =
          std::all_of(reached.begin(), reached.end(), [](int32_t end) { return end == kAttentionEnd; });
      CHECK(in_order && whole && listed == plan.item_count(), "seed %llu window %d: %d of %d items",
            (unsigned long long)seed, window, listed, plan.item_count());
      if (seed == 4 && window == 0) CHECK(shared_items > 0, "nothing was shared");
    }
}

TEST(attention_plan_reads_a_long_prefix_once) {
  Tree tree;
  auto const prefix = tree.take(64);
  for (int32_t i = 0; i < 8; ++i) tree.add_sequence(prefix, i, 1);
  tree.spans.push_back({0, 8, 0, 1024, -1});
  tree.finish();
  AttentionPlan plan({4, 1, 64, 0}, kChunksMax, kTokensMax, 2);
  plan.make(tree.plan);
  CHECK(plan.phases() == 2 && plan.item_count() == 9, "%d phases, %d items", plan.phases(),
        plan.item_count());
  AttentionItem const& item = plan.items()[0];
  CHECK(item.row_end - item.row_begin == 32 && item.kv_begin == 0 && item.kv_end == 1024,
        "%d rows from %d to %d", item.row_end - item.row_begin, item.kv_begin, item.kv_end);
}

// The longest first, in pieces of which none is much longer than a fair share.
TEST(attention_plan_deals_by_cost) {
  Tree tree;
  for (int32_t i = 0; i < 20; ++i) tree.add_sequence({}, i == 7 ? 3000 : 20 * i, 1);
  tree.finish();
  AttentionPlan plan({8, 8, 64, 0}, kChunksMax, kTokensMax, 2);
  plan.make(tree.plan);
  CHECK(plan.items()[0].chunk == 7, "chunk %d comes first", plan.items()[0].chunk);
  CHECK(plan.pieces(0) > 4 && plan.pieces(0) <= 12, "%d pieces", plan.pieces(0));
  CHECK(plan.piece_begin(0, 1) - plan.piece_begin(0, 0) <
            plan.piece_begin(0, plan.pieces(0)) - plan.piece_begin(0, plan.pieces(0) - 1),
        "a piece of long items has as many as one of short ones");
}

TEST(attention_plan_shares_without_changing_a_bit) {
  std::vector<Kernels const*> all = levels();
  all.push_back(&amx_emulated::kernels);
  for (Kernels const* kernels : all)
    for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8})
      for (int32_t window : {0, 90, 250})
        for (uint64_t seed = 1; seed <= 2; ++seed) {
          // Software tiles are slow, and their f32 is the portable one.
          bool const is_emulated = kernels == &amx_emulated::kernels;
          if (is_emulated && (dtype == Dtype::f32 || window > 0 || seed > 1)) continue;
          Tree tree = random_tree(seed);
          AttentionShape const shape{6, 2, 48, window};
          Random random{seed + 77};
          Pages pages(dtype, shape.kv_heads, shape.head_size, kPages);
          REQUIRE(tree.next_page <= kPages, "%d pages", tree.next_page);
          // Every page in use is full: what lies behind a row's position must not matter.
          Sequence const contents(random, tree.next_page * kPageTokens, 1, shape.kv_heads, shape.head_size);
          std::vector<int32_t> ids;
          for (int32_t i = 0; i < tree.next_page; ++i) ids.push_back(i);
          contents.append(pages.kv, ids, 0, tree.next_page * kPageTokens);
          int64_t const width = shape.query_heads * shape.head_size;
          std::vector<float> q(size_t(tree.plan.tokens * width));
          for (float& value : q) value = random.uniform(-4, 4);
          AttentionPlan plan(shape, kChunksMax, kTokensMax, 2);
          auto const run = [&] {
            plan.make(tree.plan);
            std::vector<char> out(q.size() * (dtype == Dtype::f32 ? 4 : 2), char(0x5a));
            Aligned<char> scratch(attention_scratch_bytes(shape.head_size));
            Aligned<float> states(size_t(tree.plan.chunks * shape.query_heads) *
                                  size_t(attention_state_floats(shape.head_size)));
            Attention a;
            a.q = q.data();
            a.ldq = a.ldo = width;
            a.kv = pages.kv;
            a.chunks = tree.plan.chunk.data();
            a.items = plan.items();
            a.query_heads = shape.query_heads;
            a.sliding_window = window;
            a.scale = 0.14f;
            a.out = out.data();
            a.states = states.data();
            a.scratch = scratch.data();
            for (int32_t phase = 0; phase < plan.phases(); ++phase)
              kernels->attention(a, plan.piece_begin(phase, 0), plan.piece_begin(phase, plan.pieces(phase)));
            return out;
          };
          std::vector<char> const shared = run();
          bool const is_shared = plan.phases() > 1;
          tree.plan.shared_spans = 0;
          std::vector<char> const flat = run();
          CHECK(shared == flat, "%s %s window %d seed %llu: sharing shows", kernels->name, name_of(dtype),
                window, (unsigned long long)seed);
          CHECK(plan.phases() == 1 && (is_shared || window > 0 || seed > 1), "seed 1 shares nothing");
        }
}

}  // namespace
}  // namespace test
}  // namespace bunting
