// Tests of attention plans: shared spans are read once for all their sequences, long contexts are cut for the
// threads, and neither changes a bit. Random trees of sequences are planned with and without spans, for one
// thread and for many.
#include <cmath>
#include <cstring>
#include <string>

#include "boundary/step_block.h"
#include "cpu/attention_plan.h"
#include "tests/kv_test.h"

namespace bunting {

namespace amx_emulated {
extern Kernels const kernels;  // the AMX kernels over a software model of the tiles
}

namespace test {
namespace {

constexpr int32_t kChunksMax = 24, kTokensMax = 512, kPages = 600;

// Chunks of one step as a tree: sequences below a node share its pages.
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

  // Adds a node with its own pages after `prefix`, and sequences or nodes below it.
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

// Returns an outsider, a tree, an outsider with a prompt, and another tree.
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

// Returns work that heads alone cannot split evenly for 16 threads: two long contexts after a prefix, a
// prompt, and a short sequence. All their pages exist with and without `window`.
Tree long_tree() {
  Tree tree;
  auto const prefix = tree.take(70);
  tree.add_sequence(prefix, 4000, 1);
  tree.add_sequence(prefix, 2100, 1);
  tree.spans.push_back({0, 2, 0, 70 * kPageTokens, -1});
  tree.add_sequence({}, 1500, 90);
  tree.add_sequence({}, 40, 1);
  tree.finish();
  return tree;
}

// Counts of shared items and parts, after these checks: items walk every row's positions once, in rising
// order over the phases; each part lies in one segment, and the next phase adds it up; every piece of every
// phase is listed once.
struct Listed {
  int32_t shared = 0, parts = 0;
};

Listed check_cover(AttentionShape const& shape, Tree& tree, int32_t threads, char const* name) {
  AttentionPlan plan(shape, kChunksMax, kTokensMax, threads);
  plan.make(tree.plan);
  int32_t const group = shape.query_heads / shape.kv_heads;
  std::vector<int32_t> reached(size_t(tree.plan.tokens * shape.query_heads), 0);
  std::vector<AttentionItem> parts(size_t(AttentionPlan::part_rows(shape)));  // indexed by their first row
  Listed listed;
  int32_t next = 0;
  bool in_order = true;
  for (int32_t phase = 0; phase < plan.phases(); ++phase) {
    std::vector<int32_t> after = reached;
    std::vector<AttentionItem> new_parts = parts;
    CHECK(plan.pieces(phase) > 0, "%s: phase %d is empty", name, phase);
    for (int32_t piece = 0; piece < plan.pieces(phase); ++piece)
      for (int32_t i = plan.piece_begin(phase, piece); i < plan.piece_begin(phase, piece + 1); ++i) {
        AttentionItem const& item = plan.items()[i];
        int32_t const rows = item.row_end - item.row_begin;
        in_order &= i == next++;
        listed.shared += item.members != nullptr;
        if (item.part >= 0 && item.parts == 0) {
          ++listed.parts;
          bool const has_room = item.part + rows <= int32_t(parts.size());
          CHECK(has_room, "%s: part row %d", name, item.part);
          if (has_room) new_parts[size_t(item.part)] = item;
          continue;
        }
        int32_t at = item.kv_begin;
        for (int32_t p = 0; p < item.parts; ++p) {
          AttentionItem const& part = parts.at(size_t(item.part + p * rows));
          in_order &= part.kv_begin == at && part.chunk == item.chunk && part.kv_head == item.kv_head;
          in_order &= part.row_begin == item.row_begin && part.row_end == item.row_end;
          in_order &= shape.sliding_window > 0 || part.kv_end <= attention_segment_end(at) ||
                      part.kv_end == kAttentionEnd;
          at = part.kv_end;
        }
        in_order &= item.parts == 0 || at == item.kv_end;
        for (int32_t row = item.row_begin; row < item.row_end; ++row) {
          int32_t const index = row / group;
          ChunkView const& chunk = tree.plan.chunk[size_t(item.members ? item.members[index] : item.chunk)];
          int32_t const token = chunk.first_token + (item.members ? 0 : index);
          size_t const to = size_t(token * shape.query_heads + item.kv_head * group + row % group);
          in_order &= reached[to] == item.kv_begin && after[to] == reached[to];
          in_order &= item.kv_end == kAttentionEnd || item.kv_end <= chunk.start;
          after[to] = item.kv_end;
        }
      }
    reached = after;
    parts = new_parts;
  }
  bool const whole =
      std::all_of(reached.begin(), reached.end(), [](int32_t end) { return end == kAttentionEnd; });
  CHECK(in_order && whole && next == plan.item_count(), "%s window %d: %d of %d items", name,
        shape.sliding_window, next, plan.item_count());
  return listed;
}

TEST(attention_plan_covers_every_row_in_order) {
  for (uint64_t seed = 0; seed < 300; ++seed)
    for (int32_t window : {0, 90}) {
      Tree tree = random_tree(seed);
      std::string const name = "seed " + std::to_string(seed);
      Listed const listed = check_cover({6, 2, 32, window, 4096}, tree, 3, name.c_str());
      if (seed == 4 && window == 0) CHECK(listed.shared > 0, "nothing was shared");
    }
}

TEST(attention_plan_cuts_long_contexts) {
  Tree tree = long_tree();
  for (int32_t window : {0, 3000})
    for (int32_t threads : {1, 2, 16}) {
      Listed const listed = check_cover({6, 2, 128, window, 8192}, tree, threads, "long");
      CHECK(threads == 1 ? listed.parts == 0 : listed.parts > threads / 2, "%d parts for %d threads",
            listed.parts, threads);
    }
  CHECK(check_cover({6, 2, 128, 0, 1024}, tree, 16, "no room").parts == 0, "parts without room");
  // A sequence of one KV head: a thread's share of the longest context.
  Tree one;
  one.add_sequence({}, 8000, 1);
  one.finish();
  AttentionPlan plan({4, 1, 128, 0, 131072}, kChunksMax, kTokensMax, 4);
  plan.make(one.plan);
  CHECK(plan.phases() == 2 && plan.pieces(0) == 8 && plan.pieces(1) == 1, "%d phases, %d and %d pieces",
        plan.phases(), plan.pieces(0), plan.pieces(1));
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

// Items come longest first, and no piece is much longer than a fair share.
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

// Outputs of a tree's attention, planned for a number of threads, over pages of random contents.
class Outputs {
 public:
  Outputs(Kernels const& kernels, Dtype dtype, AttentionShape const& shape, Tree const& tree, uint64_t seed)
      : kernels_(kernels),
        dtype_(dtype),
        shape_(shape),
        tree_(tree),
        pages_(dtype, shape.kv_heads, shape.head_size, kPages) {
    REQUIRE(tree.next_page <= kPages, "%d pages", tree.next_page);
    Random random{seed};
    // Every page in use is full, because slots after a row's position must not matter.
    Sequence const contents(random, tree.next_page * kPageTokens, 1, shape.kv_heads, shape.head_size);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < tree.next_page; ++i) ids.push_back(i);
    contents.append(pages_.kv, ids, 0, tree.next_page * kPageTokens);
    q_.resize(size_t(tree.plan.tokens * shape.query_heads * shape.head_size));
    for (float& value : q_) value = random.uniform(-4, 4);
  }

  std::vector<char> run(int32_t threads) {
    AttentionPlan plan(shape_, kChunksMax, kTokensMax, threads);
    plan.make(tree_.plan);
    phases = plan.phases();
    std::vector<char> out(q_.size() * (dtype_ == Dtype::f32 ? 4 : 2), char(0x5a));
    Aligned<char> scratch(attention_scratch_bytes(shape_.head_size));
    Aligned<float> states(size_t(tree_.plan.chunks * shape_.query_heads) *
                          size_t(attention_state_floats(shape_.head_size)));
    Aligned<float> parts(size_t(AttentionPlan::part_rows(shape_) * attention_sums_floats(shape_.head_size)));
    Attention a;
    a.q = q_.data();
    a.ldq = a.ldo = shape_.query_heads * shape_.head_size;
    a.kv = pages_.kv;
    a.chunks = tree_.plan.chunk.data();
    a.items = plan.items();
    a.query_heads = shape_.query_heads;
    a.sliding_window = shape_.sliding_window;
    a.scale = 0.14f;
    a.out = out.data();
    a.states = states.data();
    a.parts = parts.data();
    a.scratch = scratch.data();
    for (int32_t phase = 0; phase < plan.phases(); ++phase)
      kernels_.attention(a, plan.piece_begin(phase, 0), plan.piece_begin(phase, plan.pieces(phase)));
    return out;
  }

  int32_t phases = 0;  // phases of the last run

 private:
  Kernels const& kernels_;
  Dtype dtype_;
  AttentionShape shape_;
  Tree const& tree_;
  Pages pages_;
  std::vector<float> q_;
};

std::vector<Kernels const*> all_levels() {
  std::vector<Kernels const*> all = levels();
  all.push_back(&amx_emulated::kernels);
  return all;
}

TEST(attention_plan_shares_without_changing_a_bit) {
  for (Kernels const* kernels : all_levels())
    for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
      for (int32_t window : {0, 90, 250})
        for (uint64_t seed = 1; seed <= 2; ++seed) {
          // Emulated tiles are slow, and their f32 is the portable one.
          bool const is_emulated = kernels == &amx_emulated::kernels;
          if (is_emulated && (dtype == Dtype::f32 || window > 0 || seed > 1)) continue;
          Tree tree = random_tree(seed);
          Outputs outputs(*kernels, dtype, {6, 2, 48, window, 0}, tree, seed + 77);
          std::vector<char> const shared = outputs.run(2);
          bool const is_shared = outputs.phases > 1;
          tree.plan.shared_spans = 0;
          std::vector<char> const flat = outputs.run(2);
          CHECK(shared == flat, "%s %s window %d seed %llu: sharing shows", kernels->name, name_of(dtype),
                window, (unsigned long long)seed);
          CHECK(outputs.phases == 1 && (is_shared || window > 0 || seed > 1), "seed 1 shares nothing");
        }
}

TEST(attention_plan_cuts_without_changing_a_bit) {
  std::vector<Kernels const*> const all = levels();
  for (Kernels const* kernels : all)
    for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
      for (int32_t window : {0, 3000}) {
        // Skips slow cases without new coverage.
        if ((dtype != Dtype::bf16 || window > 0) && kernels != all.back()) continue;
        Tree tree = long_tree();
        Outputs outputs(*kernels, dtype, {3, 1, 128, window, 8192}, tree, 5);
        std::vector<char> const whole = outputs.run(1);
        CHECK(outputs.phases == 2, "%d phases", outputs.phases);
        std::vector<char> const cut = outputs.run(16);
        CHECK(whole == cut, "%s %s window %d: cuts show", kernels->name, name_of(dtype), window);
        CHECK(outputs.phases > 2, "nothing was cut");
        tree.plan.shared_spans = 0;
        CHECK(outputs.run(16) == whole, "%s %s window %d: cuts and sharing show", kernels->name,
              name_of(dtype), window);
      }
}

}  // namespace
}  // namespace test
}  // namespace bunting
