// Tests of attention against plain loops in double, and of a row's bits with different rows beside it.
#include <cmath>
#include <cstdlib>

#include "tests/kv_test.h"

namespace bunting {

namespace amx_emulated {
extern Kernels const kernels;  // the AMX kernels over a software model of the tiles
}

namespace test {
namespace {

std::vector<Kernels const*> attention_levels() {
  std::vector<Kernels const*> all = levels();
  all.push_back(&amx_emulated::kernels);
  return all;
}

Dtype out_type(Dtype pages) {
  return pages == Dtype::f32 ? Dtype::f32 : Dtype::bf16;
}

// True for levels that multiply pairs of bf16, which round their inputs.
bool rounds(Kernels const* kernels, Dtype dtype) {
  return dtype != Dtype::f32 && (std::strstr(kernels->name, "bf16") || kernels == &amx_emulated::kernels);
}

struct Shape {
  int32_t query_heads, kv_heads, head_size, window;
  Dtype dtype;
  float cap = 0;
  bool has_sinks = false;
  bool is_bidirectional = false;
  bool is_chunked = false;
  int32_t latent = 0;  // > 0: size of values, which are the first numbers of keys
  int32_t value_size() const { return latent > 0 ? latent : head_size; }
};

int32_t pages_for(int32_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// Step with chunks whose queries lie side by side, as the engine passes them.
class Step {
 public:
  std::vector<ChunkView> chunks;
  std::vector<AttentionItem> items;

  Step(Shape const& shape, Pages const& pages) : shape_(shape), pages_(pages) {}

  // Adds positions [start, start + count) of a sequence whose keys are in its pages; `ids` must outlive the
  // step.
  void add(Sequence const& sequence, std::vector<int32_t> const& ids, int32_t start, int32_t count) {
    size_t const width = size_t(shape_.query_heads) * size_t(shape_.head_size);
    chunks.push_back({int32_t(q_.size() / width), count, start, ids.data()});
    q_.insert(q_.end(), sequence.q.begin() + ptrdiff_t(size_t(start) * width),
              sequence.q.begin() + ptrdiff_t(size_t(start + count) * width));
  }

  // Makes items of at most `tokens` tokens for every chunk and KV head.
  void split(int32_t tokens) {
    items.clear();
    int32_t const group = shape_.query_heads / shape_.kv_heads;
    for (int32_t c = 0; c < int32_t(chunks.size()); ++c)
      for (int32_t head = 0; head < shape_.kv_heads; ++head)
        for (int32_t token = 0; token < chunks[size_t(c)].count; token += tokens)
          items.push_back({.chunk = c,
                           .kv_head = head,
                           .row_begin = token * group,
                           .row_end = std::min(token + tokens, chunks[size_t(c)].count) * group});
  }

  // Returns raw outputs, [T, Hq*D].
  std::vector<char> run(Kernels const& kernels) {
    std::vector<char> out(out_numbers() * dtype_bytes(out_type(shape_.dtype)), char(0x5a));
    Aligned<char> scratch(attention_scratch_bytes(shape_.head_size));
    Attention a = parameters();
    a.out = out.data();
    a.ldo = int64_t(shape_.query_heads) * shape_.value_size();
    a.scratch = scratch.data();
    kernels.attention(a, 0, int64_t(items.size()));
    return out;
  }

  std::vector<double> expected() const {
    std::vector<double> out(out_numbers());
    reference::attention(parameters(), 0, int64_t(items.size()), out.data());
    return out;
  }

 private:
  // Sinks far below, among and far above the scores, for the largest number of heads in the tests.
  static constexpr float sinks_[16] = {-100, -2, 0, 1, 3, 8, 60, 1000, -1, 2, 4, 0.5f, -3, 6, 10, 30};
  Shape shape_;
  Pages const& pages_;
  std::vector<float> q_;

  size_t out_numbers() const { return q_.size() / size_t(shape_.head_size) * size_t(shape_.value_size()); }

  Attention parameters() const {
    Attention a;
    a.q = q_.data();
    a.ldq = int64_t(shape_.query_heads) * shape_.head_size;
    a.kv = pages_.kv;
    a.chunks = chunks.data();
    a.items = items.data();
    a.query_heads = shape_.query_heads;
    a.sliding_window = shape_.window;
    a.is_bidirectional = shape_.is_bidirectional;
    a.is_chunked = shape_.is_chunked;
    a.scale = float(1 / std::sqrt(double(shape_.head_size)));
    a.cap = shape_.cap;
    a.sinks = shape_.has_sinks ? sinks_ : nullptr;
    return a;
  }
};

// Error bound. |v| <= 1, so probabilities with a relative error e move an output by at most 2 e. Scores of
// size 40 summed over up to 256 terms in f32 have errors of a few 1e-6, exp of 2.4e-7. Sums over thousands of
// tokens have errors of similar size. Probabilities rounded to 8 bits have errors of 2^-8 each. So have
// scores of int4 keys, whose queries are rotated and then change when they are rounded. A bf16 output adds
// half a unit of its 8 bits.
double tolerance(Kernels const* kernels, Dtype dtype, double want) {
  double const rounding = dtype == Dtype::q4 ? 0x1p-7 : 0x1p-8;
  double const bound = 1e-5 + (rounds(kernels, dtype) ? rounding : 0.0);
  return dtype == Dtype::f32 ? bound : bound + std::fabs(want) * 0x1p-8;
}

// Makes queries that rounding does not change, so that all levels use the same numbers.
Sequence sequence_for(Random& random, Shape const& shape, int32_t tokens) {
  Sequence sequence(random, tokens, shape.query_heads, shape.kv_heads, shape.head_size);
  for (float& q : sequence.q) q = std::round(q * 16) / 16;
  return sequence;
}

void check_chunk(Shape const& shape, int32_t start, int32_t count) {
  Random random{uint64_t(shape.head_size * 7 + start * 131 + count * 17 + shape.window)};
  Pages pages(shape.dtype, shape.kv_heads, shape.head_size, pages_for(start + count) + 3, shape.latent);
  Sequence const sequence = sequence_for(random, shape, start + count);
  auto const ids = shuffled_pages(random, 2, pages_for(start + count));
  sequence.append(pages.kv, ids, 0, start + count);
  Step step(shape, pages);
  step.add(sequence, ids, start, count);
  step.split(40);
  std::vector<double> const want = step.expected();
  for (Kernels const* kernels : attention_levels()) {
    std::vector<char> const got = step.run(*kernels);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      double const difference =
          std::fabs(double(reference::get(out_type(shape.dtype), got.data(), i)) - want[i]);
      double const excess =
          std::isnan(difference) ? INFINITY : difference / tolerance(kernels, shape.dtype, want[i]);
      if (excess > worst) {
        worst = excess;
        at = i;
      }
    }
    CHECK(worst <= 1, "%s %s heads %d/%d D=%d window=%d start=%d count=%d: element %zu is %g, wanted %g",
          kernels->name, name_of(shape.dtype), shape.query_heads, shape.kv_heads, shape.head_size,
          shape.window, start, count, at, double(reference::get(out_type(shape.dtype), got.data(), at)),
          want[at]);
  }
}

}  // namespace

TEST(attention_matches_reference_for_head_sizes_and_ratios) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (int32_t d : {16, 48, 64, 80, 128, 256})
      for (int32_t ratio : {1, 2, 3, 7}) {
        Shape const shape{2 * ratio, 2, d, 0, dtype};
        check_chunk(shape, 0, 37);
        check_chunk(shape, 90, 1);
      }
}

TEST(attention_matches_reference_at_page_and_block_edges) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (int32_t start : {0, 1, 14, 15, 16, 17, 47, 48, 63, 64, 65, 127, 128})
      for (int32_t count : {1, 2, 15, 16, 17, 33, 65}) check_chunk({3, 1, 32, 0, dtype}, start, count);
}

TEST(attention_matches_reference_with_a_sliding_window) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (int32_t window : {1, 2, 15, 16, 17, 64, 65, 100, 4096})
      for (int32_t start : {0, 15, 63, 64, 200})
        for (int32_t count : {1, 16, 70}) check_chunk({4, 2, 32, window, dtype}, start, count);
}

TEST(attention_matches_reference_in_chunks_of_positions) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (int32_t window : {1, 2, 16, 17, 64, 100, 4096})
      for (int32_t start : {0, 15, 64, 200})
        for (int32_t count : {1, 16, 70})
          check_chunk({4, 2, 32, window, dtype, 0, false, false, true}, start, count);
}

TEST(attention_matches_reference_with_caps_and_sinks) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (float cap : {0.0f, 2.0f, 50.0f})
      for (int32_t window : {0, 20})
        for (int32_t start : {0, 64, 2047}) check_chunk({8, 2, 32, window, dtype, cap, true}, start, 3);
}

TEST(attention_matches_reference_in_both_directions) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8})
    for (int32_t window : {0, 1, 9, 65, 200})
      for (int32_t count : {1, 2, 16, 17, 63, 64, 65, 130, 1100})
        check_chunk({4, 2, 32, window, dtype, 0, false, true}, 0, count);
}

TEST(attention_matches_reference_over_long_contexts) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    check_chunk({4, 1, 64, 0, dtype}, 4095, 1);
    check_chunk({2, 1, 64, 0, dtype}, 2900, 33);
    check_chunk({2, 1, 64, 1000, dtype}, 3333, 20);
  }
}

TEST(attention_matches_reference_over_latents) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (auto [size, latent] : {std::pair{48, 32}, {80, 64}, {320, 256}, {576, 512}})
      for (int32_t heads : {1, 5, 16, 20})
        for (auto [start, count] : {std::pair{0, 37}, {90, 1}, {63, 2}, {1023, 3}})
          check_chunk({.query_heads = heads,
                       .kv_heads = 1,
                       .head_size = size,
                       .window = start == 63 ? 20 : 0,
                       .dtype = dtype,
                       .latent = latent},
                      start, count);
}

TEST(attention_has_nothing_to_do_for_no_items) {
  Shape const shape{2, 1, 16, 0, Dtype::bf16};
  Pages pages(shape.dtype, 1, 16, 1);
  Step step(shape, pages);
  for (Kernels const* kernels : attention_levels())
    CHECK(step.run(*kernels).empty(), "%s wrote something", kernels->name);
}

namespace {

// Pairs of query heads per KV head and sliding window. Ratios include odd ones that do not fill a register
// tile. Windows lie at the edges of a page and over more than a block.
struct Mix {
  int32_t ratio, window;
  int32_t latent = 0;  // > 0: one key head of latents
};
constexpr Mix kMixes[] = {{3, 0}, {1, 0}, {7, 1}, {1, 15}, {3, 17}, {7, 70}};

// Compares the whole prompt at once with chunks whose later tokens are not in the pages yet (NaN). It also
// compares with items of every size in falling order, beside other sequences in the same step. At these sizes
// rows fall differently into register tiles, pages and tiles of rows.
void check_rows_alone(Kernels const* kernels, Dtype dtype, Mix const& mix) {
  constexpr int32_t kTokens = 150, kOther = 40;
  int32_t const kv_heads = mix.latent > 0 ? 1 : 2;
  Shape const shape{.query_heads = 2 * mix.ratio,
                    .kv_heads = kv_heads,
                    .head_size = 48,
                    .window = mix.window,
                    .dtype = dtype,
                    .latent = mix.latent};
  Random random{uint64_t(mix.ratio * 100 + mix.window)};
  size_t const row_bytes =
      size_t(shape.query_heads) * size_t(shape.value_size()) * dtype_bytes(out_type(dtype));
  Sequence const sequence = sequence_for(random, shape, kTokens), other = sequence_for(random, shape, kOther);
  auto const ids = shuffled_pages(random, 0, pages_for(kTokens));
  auto const other_ids = shuffled_pages(random, pages_for(kTokens), pages_for(kOther));
  Pages whole_pages(dtype, kv_heads, shape.head_size, pages_for(kTokens) + pages_for(kOther), mix.latent);
  sequence.append(whole_pages.kv, ids, 0, kTokens);
  other.append(whole_pages.kv, other_ids, 0, kOther);
  Step whole(shape, whole_pages);
  whole.add(sequence, ids, 0, kTokens);
  whole.split(kTokens);
  std::vector<char> const want = whole.run(*kernels);

  for (int32_t size : {1, 2, 3, 5, 8, 15, 16, 17}) {
    Pages pages(dtype, kv_heads, shape.head_size, pages_for(kTokens) + 5, mix.latent);
    auto const chunk_ids = shuffled_pages(random, 5, pages_for(kTokens));
    bool same = true;
    for (int32_t start = 0; start < kTokens; start += size) {
      int32_t const count = std::min(size, kTokens - start);
      sequence.append(pages.kv, chunk_ids, start, start + count);
      Step step(shape, pages);
      step.add(sequence, chunk_ids, start, count);
      step.split(count);
      same &= std::memcmp(step.run(*kernels).data(), want.data() + size_t(start) * row_bytes,
                          size_t(count) * row_bytes) == 0;
    }
    CHECK(same, "%s %s ratio %d window %d: chunks of %d differ from the whole", kernels->name, name_of(dtype),
          mix.ratio, mix.window, size);
  }

  for (int32_t rows : {1, 2, 3, 5, 16, 37}) {
    Step step(shape, whole_pages);
    step.add(other, other_ids, 3, 30);
    step.add(sequence, ids, 0, kTokens);
    step.split(rows);
    std::reverse(step.items.begin(), step.items.end());
    CHECK(std::memcmp(step.run(*kernels).data() + 30 * row_bytes, want.data(), want.size()) == 0,
          "%s %s ratio %d window %d: items of %d rows differ from the whole", kernels->name, name_of(dtype),
          mix.ratio, mix.window, rows);
  }
}

}  // namespace

TEST(attention_rows_do_not_depend_on_chunks_items_or_neighbours) {
  for (Kernels const* kernels : attention_levels()) {
    // Emulated tiles are slow, and their f32 is the portable one. Pages of int8 become pages of bf16.
    if (kernels == &amx_emulated::kernels) {
      check_rows_alone(kernels, Dtype::bf16, {3, 17});
      check_rows_alone(kernels, Dtype::bf16, {3, 0, 32});
      continue;
    }
    for (Mix const& mix : kMixes)
      for (Dtype dtype : {Dtype::bf16, Dtype::f32}) check_rows_alone(kernels, dtype, mix);
    for (Dtype dtype : {Dtype::bf16, Dtype::f32}) check_rows_alone(kernels, dtype, {9, 0, 32});
    check_rows_alone(kernels, Dtype::q8, {3, 0});
    check_rows_alone(kernels, Dtype::q8, {7, 17});
  }
}

// Continues beyond the end of a segment: a prompt whole, in chunks around the end, and token by token.
TEST(attention_rows_do_not_depend_on_chunks_at_segment_ends) {
  constexpr int32_t kTokens = 2070;
  Shape const shape{2, 1, 32, 0, Dtype::bf16};
  size_t const row_bytes = size_t(shape.query_heads * shape.head_size) * 2;
  Random random{3};
  Sequence const sequence = sequence_for(random, shape, kTokens);
  auto const ids = shuffled_pages(random, 0, pages_for(kTokens));
  Pages pages(shape.dtype, 1, shape.head_size, pages_for(kTokens));
  sequence.append(pages.kv, ids, 0, kTokens);
  for (Kernels const* kernels : levels()) {
    Step whole(shape, pages);
    whole.add(sequence, ids, 0, kTokens);
    whole.split(kTokens);
    std::vector<char> const want = whole.run(*kernels);
    for (auto [start, count] :
         {std::pair{1000, 100}, {1023, 1}, {1024, 1}, {1025, 1}, {2040, 30}, {2048, 1}, {2069, 1}}) {
      Step step(shape, pages);
      step.add(sequence, ids, start, count);
      step.split(count);
      CHECK(std::memcmp(step.run(*kernels).data(), want.data() + size_t(start) * row_bytes,
                        size_t(count) * row_bytes) == 0,
            "%s: %d tokens from %d on differ from the whole", kernels->name, count, start);
    }
  }
}

TEST(attention_segments_grow_with_the_position) {
  CHECK(attention_segment_end(0) == 1024 && attention_segment_end(1023) == 1024 &&
            attention_segment_end(1024) == 2048,
        "the first ones");
  CHECK(attention_segment_end(32767) == 32768 && attention_segment_end(32768) == 32768 + 2048,
        "from %d to %d", attention_segment_end(32767), attention_segment_end(32768));
  CHECK(attention_segments(131072) == 64 && attention_segments(0) == 0 && attention_segments(1025) == 2,
        "%d segments", attention_segments(131072));
}

}  // namespace test
}  // namespace bunting
