// bench_kernels_attention.cpp - attention over pages that are a whole model apart, as in the engine, or
// adjacent; and a launch of attention that does not end.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "cuda/attention_plan.h"
#include "cuda/tests/bench_kernels.h"
#if defined(BUNTING_BENCH_EMULATED)
#include "cuda/runtime_emulated.h"
#endif

namespace bunting::cuda::bench {
namespace {

constexpr int32_t kPage = 16;

struct Batch {
  char const* name;
  int32_t sequences, start, count, shared;  // of `start` positions all sequences share the first `shared`
};

Batch shrunk(Batch const& b) {
  auto const less = [](int32_t x) { return (x + scale().shrink - 1) / scale().shrink; };
  return {b.name, less(b.sequences), less(b.start - b.shared) + b.shared / scale().shrink, less(b.count),
          b.shared / scale().shrink};
}

// Heads of a model, and the options of its attention.
struct Heads {
  int32_t query, kv, size, window = 0;
  float cap = 0;
};

// Attention of a batch in one layer, with its plan and everything else in device memory.
class Run {
 public:
  // With `engine_pages` a page holds all layers of a model, as in kv_memory.h; otherwise pages of a layer are
  // adjacent.
  Run(Batch const& b, Heads const& h, int32_t blocks, bool share, bool engine_pages, size_t repeats = 1)
      : b_(b), h_(h), blocks_(blocks), share_(share), part_(size_t(h.kv * kPage * h.size)) {
    int32_t const own_pages = (b.start - b.shared + b.count + kPage - 1) / kPage,
                  shared_pages = b.shared / kPage;
    page_count_ = b.sequences * own_pages + shared_pages;
    std::vector<int32_t> ids(static_cast<size_t>(page_count_)), pages, positions;
    for (int32_t i = 0; i < page_count_; ++i) ids[size_t(i)] = i;
    std::shuffle(ids.begin(), ids.end(), std::mt19937(2));
    std::vector<AttentionChunk> chunks;
    for (int32_t s = 0; s < b.sequences; ++s) {
      chunks.push_back({s * b.count, b.count, b.start, int32_t(pages.size())});
      pages.insert(pages.end(), ids.begin(), ids.begin() + shared_pages);
      auto const own = ids.begin() + shared_pages + s * own_pages;
      pages.insert(pages.end(), own, own + own_pages);
      for (int32_t i = 0; i < b.count; ++i) positions.push_back(b.start + i);
    }
    std::vector<SharedRange> ranges;
    if (share) ranges.push_back({0, b.sequences, 0, b.shared, -1});
    AttentionPlan plan;
    plan_attention({h.query, h.kv, h.window, blocks, h.size}, chunks, ranges, plan);
    if (repeats > 1) repeat_first_item(plan, repeats);

    size_t const layer = 2 * part_ * sizeof(bf16), all = size_t(page_count_) * layer;
    layers_ = engine_pages ? size_t(scale().layers) : scale().far_more_than_cache / all + 1;
    page_stride_ = engine_pages ? layers_ * 2 * part_ : 2 * part_;
    layer_stride_ = engine_pages ? 2 * part_ : size_t(page_count_) * 2 * part_;
    size_t const rows = positions.size() * size_t(h.query * h.size);
    kv_.emplace_back(layers_ * all);
    for (size_t bytes :
         {rows * 2, rows * 2, std::max<size_t>(16, size_t(plan.partial_rows) * size_t(h.size) * 4),
          std::max<size_t>(16, size_t(plan.partial_rows) * 4),
          size_t(blocks) * kManyRows * size_t(h.size) * 4})
      scratch_.emplace_back(bytes);
    items_ = upload(plan.items), item_begin_ = upload(plan.item_begin),
    merge_begin_ = upload(plan.merge_begin), merge_rows_ = upload(plan.merge_rows), pages_ = upload(pages),
    positions_ = upload(positions), arrived_ = upload(std::vector<int32_t>(positions.size() * size_t(h.kv)));
  }

  void queue(Stream& s, int i) const {
    attention(s, {.q = scratch_[0].as<bf16>(),
                  .out = scratch_[1].as<bf16>(),
                  .kv = {kv_[0].as<bf16>() + size_t(i) % layers_ * layer_stride_, int64_t(page_stride_),
                         int64_t(part_), h_.kv, h_.size, kPage},
                  .query_heads = h_.query,
                  .sliding_window = h_.window,
                  .scale = 1 / std::sqrt(float(h_.size)),
                  .blocks = blocks_,
                  .items = at<AttentionItem>(items_),
                  .item_begin = at<int32_t>(item_begin_),
                  .merge_begin = at<int32_t>(merge_begin_),
                  .merge_rows = at<int32_t>(merge_rows_),
                  .pages = at<int32_t>(pages_),
                  .positions = at<int32_t>(positions_),
                  .partial_out = scratch_[2].as<float>(),
                  .partial_log = scratch_[3].as<float>(),
                  .running = scratch_[4].as<float>(),
                  .arrived = at<int32_t>(arrived_),
                  .cap = h_.cap});
  }
  // Bytes of keys and values that a launch reads.
  double bytes() const {
    double const positions_read =
        h_.window > 0 ? double(b_.sequences) * std::min(h_.window, b_.start + b_.count)
                      : double(page_count_) * kPage + (share_ ? 0 : double(b_.sequences - 1) * b_.shared);
    return positions_read * h_.kv * h_.size * 4;
  }
  double flops() const {
    double const seen = b_.start + (b_.count + 1) / 2.0;
    return double(b_.sequences) * b_.count * (h_.window > 0 ? std::min(seen, double(h_.window)) : seen) *
           h_.query * h_.size * 4;
  }

 private:
  static void repeat_first_item(AttentionPlan& plan, size_t repeats) {
    plan.items.assign(repeats, plan.items[0]);
    std::fill(plan.item_begin.begin() + 1, plan.item_begin.end(), int32_t(repeats));
  }

  Batch b_;
  Heads h_;
  int32_t blocks_;
  bool share_;
  size_t part_, layers_ = 0, page_stride_ = 0, layer_stride_ = 0;
  int32_t page_count_ = 0;
  std::vector<Buffer> kv_, scratch_;
  DeviceMemory items_, item_begin_, merge_begin_, merge_rows_, pages_, positions_, arrived_;
};

void measure(Batch b, Heads const& h, bool share, bool engine_pages) {
  if (scale().tiny) b = shrunk(b);
  Run const run(b, h, device_info(0).multiprocessors * kAttentionBlocks, share, engine_pages);
  char shape[256];
  std::snprintf(
      shape, sizeof shape,
      "\"batch\":\"%s\",\"pages\":\"%s\",\"shared_once\":%s,\"sequences\":%d,\"count\":%d,\"start\":%d,"
      "\"query_heads\":%d,\"kv_heads\":%d,\"head\":%d,\"cap\":%g",
      b.name, engine_pages ? "engine" : "packed", share ? "true" : "false", b.sequences, b.count, b.start,
      h.query, h.kv, h.size, double(h.cap));
  double const seconds = seconds_of(scale().few_launches, [&](Stream& s, int i) { run.queue(s, i); });
  line("attention", shape, seconds, run.bytes(), run.flops());
}

}  // namespace

void bench_attention(std::string const& part) {
  Scale const& s = scale();
  Heads const plain{s.query_heads, s.kv_heads, s.head_size}, gemma{8, 4, 256, 0, 50},
      gpt_oss{64, 8, 64, 128, 0};
  for (bool engine_pages : {true, false}) {
    if (!part.empty() && part != (engine_pages ? "engine" : "packed")) continue;
    for (Batch const& b :
         {Batch{"64 decodes of 2k", 64, 2047, 1, 0}, Batch{"1 decode of 32k", 1, 32767, 1, 0},
          Batch{"256 decodes of 1k", 256, 1023, 1, 0}, Batch{"a chunk of 2048", 1, 0, 2048, 0},
          Batch{"a chunk of 512 at 16k", 1, 16384, 512, 0}})
      measure(b, plain, false, engine_pages);
    Batch const tree{"128 decodes, 4k shared + 200", 128, 4096 + 200, 1, 4096};
    for (bool share : {false, true}) measure(tree, plain, share, engine_pages);
    measure({"heads of 256, capped, 64 decodes of 2k", 64, 2047, 1, 0}, gemma, false, engine_pages);
    measure({"heads of 256, capped, a chunk of 2048", 1, 0, 2048, 0}, gemma, false, engine_pages);
    // Pages of a whole model would exceed the memory of one GPU here.
    if (!engine_pages || s.tiny)
      measure({"a window of 128, 64 decodes of 32k", 64, 32767, 1, 0}, gpt_oss, false, engine_pages);
  }
}

void hang_on_purpose(std::string const&) {
  constexpr double kSoonMs = 1'000;
  Heads const h{scale().query_heads, scale().kv_heads, scale().head_size};
#if !defined(BUNTING_BENCH_EMULATED)
  // A block repeats an item of 32k keys for minutes.
  Run const run({"endless", 1, 32767, 1, 0}, h, 1, false, false, 2'000'000);
#else
  Run const run({"endless", 1, 64, 1, 0}, h, 1, false, false);
  set_mishaps({.hang = 0});
#endif
  Stream stream;
  run.queue(stream, 0);
  bool const is_over = stream.wait(kSoonMs);
#if defined(BUNTING_BENCH_EMULATED)
  set_mishaps({});
#endif
  std::printf("{\"hang\":\"%s\"}\n", is_over ? "not noticed" : "noticed");
  std::fflush(stdout);
  if (is_over) fail(BUNTING_INVALID, "a launch without an end has ended");
#if !defined(BUNTING_BENCH_EMULATED)
  lose_device(0, "a launch does not end");
#endif
}

}  // namespace bunting::cuda::bench
