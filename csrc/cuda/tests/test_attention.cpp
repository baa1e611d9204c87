// Tests of attention against the reference loop, and of plans against each other: shared or not, split or
// not, with pages and tokens in any order.
#include "cuda/tests/device_test.h"
#include "tests/kv_test.h"

namespace bunting::test {
namespace {

struct Shape {
  int32_t query_heads, kv_heads, head_size, window = 0;
  float cap = 0;  // cap of scores
  bool has_sinks = false;
};

// A step over sequences whose keys and values are all in pages. All sequences share the pages of the first
// `shared` tokens.
class Scene {
 public:
  struct Chunk {
    int32_t start, count;
  };

  Scene(Shape shape, std::vector<Chunk> chunks, int32_t shared, uint64_t seed)
      : shape_(shape), chunks_(std::move(chunks)), shared_(shared) {
    Random random{seed};
    auto const [hq, hk, d, window, cap, has_sinks] = shape_;
    int32_t page_count = 0;
    for (Chunk const& chunk : chunks_) page_count += (chunk.start + chunk.count + 15) / 16;
    std::vector<int32_t> const ids = shuffled_pages(random, 0, page_count);
    part_ = int64_t(hk) * 16 * d;
    std::vector<uint16_t> device_pages(size_t(page_count) * 4 * size_t(part_), 0xffff);  // layer 1 of two
    Pages cpu(Dtype::bf16, hk, d, page_count);
    Sequence const prefix(random, std::max(shared_, 1), hq, hk, d);

    std::vector<ChunkView> views;
    std::vector<AttentionItem> items;
    std::vector<std::vector<int32_t>> page_lists;
    std::vector<float> q;
    int32_t next_page = 0;
    for (Chunk const& chunk : chunks_) {
      int32_t const length = chunk.start + chunk.count, first = int32_t(positions_.size());
      Sequence sequence(random, length, hq, hk, d);
      std::copy_n(prefix.k.begin(), shared_ * hk * d, sequence.k.begin());
      std::copy_n(prefix.v.begin(), shared_ * hk * d, sequence.v.begin());
      std::vector<int32_t> list;
      for (int32_t p = 0; p < (length + 15) / 16; ++p)
        list.push_back(p < shared_ / 16 && !page_lists.empty() ? page_lists[0][size_t(p)]
                                                               : ids[size_t(next_page++)]);
      page_lists.push_back(list);
      sequence.append(cpu.kv, list, 0, length);
      for (int32_t t = 0; t < length; ++t)
        for (int32_t head = 0; head < hk; ++head)
          for (int32_t i = 0; i < d; ++i) {
            size_t const from = (size_t(t) * size_t(hk) + size_t(head)) * size_t(d) + size_t(i);
            int64_t const at = list[size_t(t / 16)] * 4 * part_ + 2 * part_ + (head * 16 + t % 16) * d + i;
            device_pages[size_t(at)] = reference::narrow(sequence.k[from]);
            device_pages[size_t(at + part_)] = reference::narrow(sequence.v[from]);
          }
      plan_chunks_.push_back({first, chunk.count, chunk.start, int32_t(pages_.size())});
      pages_.insert(pages_.end(), list.begin(), list.end());
      for (int32_t i = 0; i < chunk.count; ++i) positions_.push_back(chunk.start + i);
      for (int32_t i = 0; i < chunk.count * hq * d; ++i)
        q.push_back(reference::widen(reference::narrow(sequence.q[size_t(chunk.start * hq * d + i)])));
      views.push_back({first, chunk.count, chunk.start, nullptr});
      for (int32_t head = 0; head < hk; ++head)
        items.push_back({int32_t(views.size()) - 1, head, 0, chunk.count * hq / hk});
    }
    for (size_t c = 0; c < views.size(); ++c) views[c].pages = page_lists[c].data();

    wanted_.resize(q.size());
    Attention a{};
    a.q = q.data();
    a.ldq = hq * d;
    a.kv = cpu.kv;
    a.chunks = views.data();
    a.items = items.data();
    a.query_heads = hq;
    a.sliding_window = window;
    a.scale = scale();
    a.cap = cap;
    std::vector<float> const sinks = random_floats(random, size_t(hq), 3);
    if (has_sinks) a.sinks = sinks.data();
    sinks_.emplace(sinks);
    reference::attention(a, 0, int64_t(items.size()), wanted_.data());

    for (float value : q) q_.push_back(reference::narrow(value));
    device_pages_.emplace(device_pages);
    device_q_.emplace(q_);
    out_.emplace(q_.size());
    device_page_ids_.emplace(pages_);
    device_positions_.emplace(positions_);
    arrived_.emplace(std::vector<int32_t>(positions_.size() * size_t(hk)));
  }

  // Leaves only `count` tokens from `first` on of the only chunk to compute.
  void keep(int32_t first, int32_t count) {
    size_t const row = size_t(shape_.query_heads * shape_.head_size);
    chunks_ = {{chunks_[0].start + first, count}};
    plan_chunks_ = {{0, count, chunks_[0].start, 0}};
    positions_ = {positions_.begin() + first, positions_.begin() + first + count};
    q_ = {q_.begin() + long(row) * first, q_.begin() + long(row) * (first + count)};
    wanted_ = {wanted_.begin() + long(row) * first, wanted_.begin() + long(row) * (first + count)};
    device_q_.emplace(q_);
    out_.emplace(q_.size());
    device_positions_.emplace(positions_);
  }

  // Plans for `blocks` blocks, with or without the shared prefix.
  void plan(int32_t blocks, bool share) {
    std::vector<cuda::SharedRange> ranges;
    if (share && shared_ > 0) ranges.push_back({0, int32_t(chunks_.size()), 0, shared_, -1});
    cuda::plan_attention({shape_.query_heads, shape_.kv_heads, shape_.window, blocks, shape_.head_size},
                         plan_chunks_, ranges, plan_);
    running_.emplace(size_t(blocks) * cuda::kManyRows * size_t(shape_.head_size));
    items_.emplace(plan_.items);
    item_begin_.emplace(plan_.item_begin);
    merge_begin_.emplace(plan_.merge_begin);
    merge_rows_.emplace(plan_.merge_rows);
    partial_out_.emplace(size_t(plan_.partial_rows) * size_t(shape_.head_size));
    partial_log_.emplace(size_t(plan_.partial_rows));
  }

  void queue(cuda::Stream& stream) const {
    stream.fill(out_->data(), 0xff, out_->size() * 2);
    cuda::attention(
        stream, {device_q_->data(),
                 out_->data(),
                 {device_pages_->data() + 2 * part_, 4 * part_, part_, shape_.kv_heads, shape_.head_size, 16},
                 shape_.query_heads,
                 shape_.window,
                 scale(),
                 int32_t(plan_.item_begin.size()) - 1,
                 items_->data(),
                 item_begin_->data(),
                 merge_begin_->data(),
                 merge_rows_->data(),
                 device_page_ids_->data(),
                 device_positions_->data(),
                 partial_out_->data(),
                 partial_log_->data(),
                 running_->data(),
                 arrived_->data(),
                 shape_.cap,
                 shape_.has_sinks ? sinks_->data() : nullptr});
  }

  std::vector<uint16_t> out() const { return out_->get(); }
  cuda::AttentionPlan const& current() const { return plan_; }

  double error() const { return error_against(*this); }
  // Returns the largest ||out - expected|| / ||expected|| of a row, with another scene's expected values; NaN
  // if any is NaN.
  double error_against(Scene const& other) const {
    std::vector<uint16_t> const got = out();
    size_t const width = size_t(shape_.head_size);
    double worst = 0;
    for (size_t row = 0; row < got.size() / width; ++row) {
      double difference = 0, norm = 0;
      for (size_t i = row * width; i < (row + 1) * width; ++i) {
        difference += std::pow(double(reference::widen(got[i])) - other.wanted_[i], 2);
        norm += other.wanted_[i] * other.wanted_[i];
      }
      double const relative = std::sqrt(difference / norm);
      if (!(relative <= worst)) worst = relative;
    }
    return worst;
  }
  bool counters_are_zero() const {
    for (int32_t count : arrived_->get())
      if (count != 0) return false;
    return true;
  }

 private:
  float scale() const { return 1 / std::sqrt(float(shape_.head_size)); }

  Shape shape_;
  std::vector<Chunk> chunks_;
  int32_t shared_;
  int64_t part_ = 0;  // elements of a layer's keys in a page
  std::vector<int32_t> pages_, positions_;
  std::vector<cuda::AttentionChunk> plan_chunks_;
  std::vector<uint16_t> q_;
  std::vector<double> wanted_;
  cuda::AttentionPlan plan_;
  std::optional<DeviceArray<uint16_t>> device_pages_, device_q_, out_;
  std::optional<DeviceArray<int32_t>> device_page_ids_, device_positions_, arrived_, item_begin_,
      merge_begin_, merge_rows_;
  std::optional<DeviceArray<cuda::AttentionItem>> items_;
  std::optional<DeviceArray<float>> partial_out_, partial_log_, running_, sinks_;
};

// Error bound: twice the error of rounding the probabilities and the result to bf16.
constexpr double kErrorMax = 5e-3;

}  // namespace

TEST(cuda_attention_matches_the_reference) {
  struct Case {
    Shape shape;
    std::vector<Scene::Chunk> chunks;
    int32_t shared, blocks;
  };
  std::vector<Case> const cases = {
      {{1, 1, 32}, {{0, 1}, {15, 1}, {16, 1}, {63, 1}, {64, 1}, {200, 1}}, 0, 3},  // decodes
      {{4, 2, 64}, {{0, 70}, {33, 5}, {129, 1}}, 0, 4},                            // chunks beside decodes
      {{3, 1, 96}, {{100, 30}, {0, 3}}, 0, 2},                          // heads that do not divide 16
      {{8, 1, 128}, {{600, 1}, {140, 9}}, 0, 5},                        // spans and splits
      {{7, 1, 64}, {{260, 1}, {261, 2}, {270, 1}, {256, 12}}, 256, 3},  // a shared prefix
      {{4, 2, 32}, {{530, 1}, {250, 20}, {10, 100}}, 0, 3},             // long chunks
      {{2, 1, 64, 40}, {{300, 1}, {200, 70}, {0, 60}}, 0, 3},           // a window
      {{2, 1, 64, 350}, {{600, 1}, {590, 3}, {570, 2}}, 560, 2},        // a window over a prefix
      {{4, 2, 64, 0, 0.7f}, {{200, 1}, {33, 20}}, 0, 3},                // capped scores
      // Sinks, with and without partial results.
      {{4, 2, 32, 40, 0, true}, {{530, 1}, {0, 30}, {300, 5}}, 0, 4},
      {{4, 2, 256}, {{300, 1}, {130, 40}}, 0, 3},  // heads of one stage
      {{4, 1, 512}, {{300, 1}, {65, 6}}, 0, 3},    // heads in parts
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    Case const& c = cases[i];
    Scene scene(c.shape, c.chunks, c.shared, 20 + i);
    scene.plan(c.blocks, true);
    RUNS(scene.queue(stream));
    CHECK(scene.error() <= kErrorMax, "case %zu: error %g", i, scene.error());
    CHECK(scene.counters_are_zero(), "case %zu: counters are left", i);
  }
}

// Flat and cascade plans, whole and split items, few and many rows must give the same bits.
TEST(cuda_attention_does_not_depend_on_the_plan) {
  Scene scene({4, 2, 32, 0, 2, true}, {{900, 1}, {790, 2}, {770, 1}, {768, 5}}, 768, 31);
  scene.plan(1, false);
  CHECK(scene.current().partial_rows == 0, "something is split");
  RUNS(scene.queue(stream));
  std::vector<uint16_t> const flat = scene.out();
  CHECK(scene.error() <= kErrorMax, "error %g", scene.error());
  for (int32_t blocks : {1, 3, 16})
    for (bool share : {false, true}) {
      scene.plan(blocks, share);
      RUNS(scene.queue(stream));
      CHECK(scene.out() == flat, "%d blocks, shared %d: other bits, error %g", blocks, share, scene.error());
    }
}

// Compares a token alone with the same token in a chunk whose rows fill a larger tile.
TEST(cuda_attention_does_not_depend_on_company) {
  Shape const shapes[] = {{4, 1, 64}, {2, 1, 96}, {4, 2, 128, 300}, {3, 1, 32, 70}, {4, 2, 256, 0, 1, true},
                          {2, 1, 512}};
  for (Shape const& shape : shapes) {
    constexpr int32_t kStart = 500, kCount = 30;
    Scene whole(shape, {{kStart, kCount}}, 0, 35);
    whole.plan(2, false);
    RUNS(whole.queue(stream));
    std::vector<uint16_t> const all = whole.out();
    size_t const row = size_t(shape.query_heads * shape.head_size);
    for (int32_t i : {0, 11, kCount - 1}) {
      Scene one(shape, {{kStart, kCount}}, 0, 35);
      one.keep(i, 1);
      one.plan(1, false);
      RUNS(one.queue(stream));
      std::vector<uint16_t> const got = one.out();
      CHECK(std::equal(got.begin(), got.end(), all.begin() + long(row) * i), "D=%d token %d: other bits",
            shape.head_size, i);
    }
  }
}

TEST(cuda_attention_does_not_depend_on_timing) {
  Scene scene({4, 1, 64}, {{700, 1}, {257, 3}}, 0, 32);
  scene.plan(6, false);
  REQUIRE(scene.current().partial_rows > 0, "nothing is split");
  RUNS(scene.queue(stream));
  std::vector<uint16_t> const first = scene.out();
  for (uint64_t seed = 2; seed < 6; ++seed) {
    std::string const fault = fault_of([&](cuda::Stream& stream) { scene.queue(stream); }, seed);
    CHECK(fault.empty() && scene.out() == first, "seed %d: other bits %s", int(seed), fault.c_str());
  }
}

TEST(cuda_attention_waits_nowhere_in_vain) {
  for (int32_t d : {64, 256, 512}) {
    Scene scene({4, 1, d}, {{300, 1}, {520, 1}, {0, 40}, {1000, 1}}, 0, 33);
    scene.plan(4, false);
    REQUIRE(scene.current().partial_rows > 0, "nothing is split");
    every_wait_is_needed([&](cuda::Stream& stream) { scene.queue(stream); },
                         [&] { return scene.error() <= kErrorMax && scene.counters_are_zero(); });
  }
}

TEST(cuda_attention_notices_a_mask_that_is_off_by_one) {
  std::vector<Scene::Chunk> const chunks = {{200, 1}, {0, 60}};
  Scene const right({2, 1, 64, 40}, chunks, 0, 34);
  Scene wider({2, 1, 64, 41}, chunks, 0, 34);
  wider.plan(2, false);
  RUNS(wider.queue(stream));
  CHECK(wider.error() <= kErrorMax && wider.error_against(right) > kErrorMax, "errors %g and %g",
        wider.error(), wider.error_against(right));
}

}  // namespace bunting::test
