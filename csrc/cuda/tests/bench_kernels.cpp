// bench_kernels.cpp - benchmark of the CUDA kernels in the shapes of an 8B model: H 4096, F 14336, 32 query
// and 8 KV heads of 128. Each result comes with this GPU's ceiling: copying memory, or multiplying 8192 x
// 8192 bf16 with cuBLASLt if it is found. It has no pass or fail.
//
//   bunting_bench_cuda [path of libcublasLt]
//   bunting_bench_emulated                      the same program on the emulator, in tiny shapes: shows that
//                                               it runs
//
// A measurement is a graph of many launches over more memory than L2 holds. The graph is launched until the
// time of starting and ending it is negligible. The fastest of several runs counts.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

#include "boundary/error.h"
#include "cuda/attention_plan.h"
#include "cuda/cublaslt.h"
#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"

namespace bunting::cuda {
namespace {

constexpr double kDeadlineMs = 60'000;
#if !defined(BUNTING_BENCH_EMULATED)
constexpr int32_t kHidden = 4096, kForward = 14336, kQueryHeads = 32, kKvHeads = 8, kHeadSize = 128,
                  kVocab = 128256, kSquare = 8192;
constexpr size_t kFarMoreThanCache = size_t(400) << 20, kCopied = size_t(2) << 30;
constexpr double kLongEnough = 0.02;  // in seconds
constexpr int kRuns = 8, kFewLaunches = 40, kManyLaunches = 10;
constexpr int32_t kShrink = 1;  // divisor of steps
#else
constexpr int32_t kHidden = 128, kForward = 256, kQueryHeads = 4, kKvHeads = 1, kHeadSize = 64, kVocab = 512,
                  kSquare = 128;
constexpr size_t kFarMoreThanCache = 1 << 16, kCopied = 1 << 16;
constexpr double kLongEnough = 0;
constexpr int kRuns = 2, kFewLaunches = 2, kManyLaunches = 1;
constexpr int32_t kShrink = 32;
#endif

void finish(Stream& stream) {
  if (!stream.wait(kDeadlineMs)) fail(BUNTING_LOST, "the GPU does not come to an end");
}

// Device memory of harmless numbers: bf16, bytes and nibbles are all finite; f32 and f16 are small.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : memory_(bytes, "a measurement") {
    MappedMemory staging(std::min(bytes, size_t(64) << 20), "a measurement");
    std::mt19937 random(1);
    uint16_t* const values = reinterpret_cast<uint16_t*>(staging.data());
    for (size_t i = 0; i < staging.bytes() / 2; ++i) values[i] = uint16_t((random() & 0x807e) | 0x3c00);
    Stream stream;
    for (size_t at = 0; at < bytes; at += staging.bytes())
      stream.copy(memory_.data() + at, staging.data(), std::min(staging.bytes(), bytes - at));
    finish(stream);
  }
  template <class T>
  T* as(size_t byte = 0) const {
    return reinterpret_cast<T*>(memory_.data() + byte);
  }

 private:
  DeviceMemory memory_;
};

template <class T>
DeviceMemory upload(std::vector<T> const& values) {
  DeviceMemory memory(std::max<size_t>(1, values.size() * sizeof(T)), "a measurement");
  MappedMemory staging(memory.bytes(), "a measurement");
  std::memcpy(staging.data(), values.data(), values.size() * sizeof(T));
  Stream stream;
  stream.copy(memory.data(), staging.data(), values.size() * sizeof(T));
  finish(stream);
  return memory;
}
template <class T>
T* at(DeviceMemory const& memory) {
  return reinterpret_cast<T*>(memory.data());
}

// Returns the seconds of one of `count` launches, which `launch` queues by index.
double seconds_of(int count, std::function<void(Stream&, int)> const& launch) {
  using Clock = std::chrono::steady_clock;
  Stream stream;
  stream.begin_recording();
  for (int i = 0; i < count; ++i) launch(stream, i);
  Graph const graph = stream.end_recording();
  auto const took = [&](int launches) {
    auto const start = Clock::now();
    for (int i = 0; i < launches; ++i) stream.launch(graph);
    finish(stream);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  took(1);  // warm-up
  int const launches = int(kLongEnough / took(1)) + 1;
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) best = std::min(best, took(launches));
  return best / launches / count;
}

struct Ceilings {
  double copy_bytes;  // per second, read plus written
  double flops;
  char const* flops_of;
};

void row(char const* what, double seconds, double amount, double ceiling, char const* unit, char const* aim) {
  std::printf("| %s | %.1f | %.3g %s | %.0f %% | %s |\n", what, seconds * 1e6, amount / seconds * 1e-12, unit,
              100 * amount / seconds / ceiling, aim);
  std::fflush(stdout);
}

double copy_bytes_per_second() {
  Buffer const from(kCopied), to(kCopied);
  return 2 * kCopied /
         seconds_of(4, [&](Stream& s, int) { s.copy(to.as<char>(), from.as<char>(), kCopied); });
}

// ---- GEMM -------------------------------------------------------------------------------------------------

struct Product {
  char const* name;
  int32_t n, k;
};
constexpr Product kProducts[] = {{"qkv", (kQueryHeads + 2 * kKvHeads) * kHeadSize, kHidden},
                                 {"o", kHidden, kHidden},
                                 {"gate, up", 2 * kForward, kHidden},
                                 {"down", kHidden, kForward},
                                 {"vocabulary", kVocab, kHidden}};

class Operands {
 public:
  Operands(Product const& p, int32_t tokens, Format format)
      : p_(p),
        tokens_(tokens),
        format_(format),
        row_(row_bytes(format, p.k)),
        scale_row_(row_scale_bytes(format, p.k)),
        copies_(int(kFarMoreThanCache / (size_t(p.n) * row_) + 1)),
        weights_(size_t(copies_) * size_t(p.n) * row_),
        scales_(std::max<size_t>(16, size_t(copies_) * size_t(p.n) * scale_row_)),
        x_(size_t(tokens) * size_t(p.k) * 2),
        y_(size_t(tokens) * size_t(p.n) * 4),
        partial_(kGemmPartialFloats * sizeof(float)),
        arrived_(upload(std::vector<int32_t>(kGemmArrived))) {}
  Gemm product(int i) const {
    size_t const first = size_t(i % copies_) * size_t(p_.n);
    return {x_.as<bf16>(),
            {format_, weights_.as<char>(first * row_), scales_.as<char>(first * scale_row_)},
            nullptr,
            y_.as<float>(),
            tokens_,
            p_.n,
            p_.k,
            partial_.as<float>(),
            at<int32_t>(arrived_)};
  }
  double bytes() const {
    return double(p_.n) * double(row_ + scale_row_) + double(tokens_) * (2.0 * p_.k + 4.0 * p_.n);
  }
  double flops() const { return 2.0 * tokens_ * p_.n * p_.k; }

 private:
  Product p_;
  int32_t tokens_;
  Format format_;
  size_t row_, scale_row_;
  int copies_;
  Buffer weights_, scales_, x_, y_, partial_;
  DeviceMemory arrived_;
};

void bench_few(Ceilings const& most, CublasLt* library) {
  struct Kind {
    char const* name;
    Format format;
  };
  constexpr Kind kKinds[] = {
      {"bf16", Format::plain}, {"int8", Format::int8_128}, {"int4", Format::int4_32}, {"fp8", Format::fp8}};
  for (Product const& p : kProducts)
    for (int32_t tokens : {1, 8, 16, 32, 64})
      for (auto const& [kind, format] : kKinds) {
        if (format != Format::plain && tokens != 1 && tokens != 32) continue;
        Operands const operands(p, tokens, format);
        char name[96];
        std::snprintf(name, sizeof name, "%s, %d token%s, %s", p.name, tokens, tokens > 1 ? "s" : "", kind);
        row(name, seconds_of(kFewLaunches, [&](Stream& s, int i) { gemm_few(s, operands.product(i)); }),
            operands.bytes(), most.copy_bytes, "TB/s", "≥ 80 %");
        if (!library || format != Format::plain) continue;
        std::snprintf(name, sizeof name, "%s, %d token%s, cuBLASLt", p.name, tokens, tokens > 1 ? "s" : "");
        row(name,
            seconds_of(kFewLaunches, [&](Stream& s, int i) { library->multiply(s, operands.product(i)); }),
            operands.bytes(), most.copy_bytes, "TB/s", "–");
      }
}

void bench_many(Ceilings const& most, CublasLt* library) {
  for (int32_t tokens : {128, 1024 / kShrink, 4096 / kShrink})
    for (Product const& p : {kProducts[0], kProducts[2], kProducts[3]}) {
      Operands const operands(p, tokens, Format::plain);
      char name[96];
      std::snprintf(name, sizeof name, "%s, %d tokens", p.name, tokens);
      row(name, seconds_of(kManyLaunches, [&](Stream& s, int i) { gemm_many(s, operands.product(i)); }),
          operands.flops(), most.flops, "TFLOP/s", "≥ 50 %");
      Operands const halves(p, tokens, Format::int4_32);
      std::snprintf(name, sizeof name, "%s, %d tokens, int4", p.name, tokens);
      row(name, seconds_of(kManyLaunches, [&](Stream& s, int i) { gemm_many(s, halves.product(i)); }),
          halves.flops(), most.flops, "TFLOP/s", "–");
      if (!library) continue;
      std::snprintf(name, sizeof name, "%s, %d tokens, cuBLASLt", p.name, tokens);
      row(name,
          seconds_of(kManyLaunches, [&](Stream& s, int i) { library->multiply(s, operands.product(i)); }),
          operands.flops(), most.flops, "TFLOP/s", "≥ 70 %");
    }
}

// ---- attention ------------------------------------------------------------------------------------------

struct Batch {
  char const* name;
  int32_t sequences, start, count, shared;  // of `start` positions all sequences share the first `shared`
  char const* aim;
};

Batch shrunk(Batch const& b) {
  auto const less = [](int32_t x) { return (x + kShrink - 1) / kShrink; };
  return {b.name,        less(b.sequences),  less(b.start - b.shared) + b.shared / kShrink,
          less(b.count), b.shared / kShrink, b.aim};
}

// Heads of a model, and the options of its attention.
struct Heads {
  int32_t query = kQueryHeads, kv = kKvHeads, size = kHeadSize, window = 0;
  float cap = 0;
};

double bench_attention(Ceilings const& most, int32_t blocks, Batch const& b, bool share,
                       Heads const& h = {}) {
  constexpr int32_t kPage = 16;
  int32_t const own_pages = (b.start - b.shared + b.count + kPage - 1) / kPage,
                shared_pages = b.shared / kPage;
  int32_t const page_count = b.sequences * own_pages + shared_pages;
  std::vector<int32_t> ids(static_cast<size_t>(page_count)), pages, positions;
  for (int32_t i = 0; i < page_count; ++i) ids[size_t(i)] = i;
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
  AttentionShape const shape{h.query, h.kv, h.window, blocks, h.size};
  AttentionPlan plan;
  plan_attention(shape, chunks, ranges, plan);

  size_t const part = size_t(h.kv * kPage * h.size), rows = positions.size() * size_t(h.query * h.size);
  int const copies = int(kFarMoreThanCache / (size_t(page_count) * part * 4) + 1);
  Buffer const kv(size_t(copies) * size_t(page_count) * part * 4), q(rows * 2), out(rows * 2),
      partial_out(std::max<size_t>(16, size_t(plan.partial_rows) * size_t(h.size) * 4)),
      partial_log(std::max<size_t>(16, size_t(plan.partial_rows) * 4)),
      running(size_t(blocks) * kManyRows * size_t(h.size) * 4);
  DeviceMemory const items = upload(plan.items), item_begin = upload(plan.item_begin),
                     merge_begin = upload(plan.merge_begin), merge_rows = upload(plan.merge_rows),
                     page_ids = upload(pages), position_of = upload(positions),
                     arrived = upload(std::vector<int32_t>(positions.size() * size_t(h.kv)));
  double const seconds = seconds_of(kFewLaunches, [&](Stream& s, int i) {
    bf16* const layer = kv.as<bf16>(size_t(i % copies) * size_t(page_count) * part * 4);
    attention(s, {.q = q.as<bf16>(),
                  .out = out.as<bf16>(),
                  .kv = {layer, 2 * int64_t(part), int64_t(part), h.kv, h.size, kPage},
                  .query_heads = h.query,
                  .sliding_window = h.window,
                  .scale = 1 / std::sqrt(float(h.size)),
                  .blocks = blocks,
                  .items = at<AttentionItem>(items),
                  .item_begin = at<int32_t>(item_begin),
                  .merge_begin = at<int32_t>(merge_begin),
                  .merge_rows = at<int32_t>(merge_rows),
                  .pages = at<int32_t>(page_ids),
                  .positions = at<int32_t>(position_of),
                  .partial_out = partial_out.as<float>(),
                  .partial_log = partial_log.as<float>(),
                  .running = running.as<float>(),
                  .arrived = at<int32_t>(arrived),
                  .cap = h.cap});
  });
  char name[96];
  std::snprintf(name, sizeof name, "attention, %s%s", b.name, share ? ", read once" : "");
  if (b.count == 1) {
    double const positions_read =
        h.window > 0 ? double(b.sequences) * std::min(h.window, b.start + 1)
                     : double(page_count) * kPage + (share ? 0 : double(b.sequences - 1) * b.shared);
    row(name, seconds, positions_read * h.kv * h.size * 4, most.copy_bytes, "TB/s", share ? "–" : b.aim);
  } else {
    double const seen = double(b.sequences) * b.count * (b.start + (b.count + 1) / 2.0);
    row(name, seconds, seen * h.query * h.size * 4, most.flops, "TFLOP/s", b.aim);
  }
  return seconds;
}

// Measures capped heads of 256, as in Gemma 2 and 3, and a window of gpt-oss, which reads only the visible
// positions.
void bench_kinds_of_attention(Ceilings const& most, int32_t blocks) {
  constexpr Heads kGemma{8, 4, 256, 0, 50}, kGptOss{64, 8, 64, 128, 0};
  Batch decodes{"heads of 256, capped, 64 decodes of 2k", 64, 2047, 1, 0, "≥ 75 %"},
      chunk{"heads of 256, capped, a chunk of 2048", 1, 0, 2048, 0, "–"};
  for (Batch b : {decodes, chunk}) bench_attention(most, blocks, kShrink > 1 ? shrunk(b) : b, false, kGemma);
  Batch const windows{"a window of 128, 64 decodes of 32k", 64, 32767, 1, 0, "–"};
  bench_attention(most, blocks, kShrink > 1 ? shrunk(windows) : windows, false, kGptOss);
}

// ---- experts --------------------------------------------------------------------------------------------

struct Mixture {
  char const* name;
  int32_t experts, used, hidden, wide;
};

// Kernels of a mixture-of-experts layer between its norm and its output.
class MixtureLayer {
 public:
  MixtureLayer(Mixture const& m, int32_t tokens, Format format)
      : m_(m),
        tokens_(tokens),
        format_(format),
        pairs_(size_t(tokens * m.used)),
        up_(row_bytes(format, m.hidden)),
        up_scales_(row_scale_bytes(format, m.hidden)),
        down_(row_bytes(format, m.wide)),
        down_scales_(row_scale_bytes(format, m.wide)),
        copies_(int(kFarMoreThanCache / matrices_bytes() + 1)),
        gate_up_w_(size_t(copies_) * up_rows() * up_),
        gate_up_s_(16 + size_t(copies_) * up_rows() * up_scales_),
        down_w_(size_t(copies_) * down_rows() * down_),
        down_s_(16 + size_t(copies_) * down_rows() * down_scales_),
        router_w_(size_t(m.experts * m.hidden) * 4),
        exact_(size_t(tokens * m.hidden) * 4),
        normed_(size_t(tokens * m.hidden) * 2),
        input_(pairs_ * size_t(m.hidden) * 2),
        gate_up_(pairs_ * size_t(m.wide) * 8),
        activated_(pairs_ * size_t(m.wide) * 2),
        output_(pairs_ * size_t(m.hidden) * 4),
        delta_(size_t(tokens * m.hidden) * 4),
        partial_(kGemmPartialFloats * sizeof(float)),
        logits_(upload(random_logits())),
        scratch_logits_(size_t(tokens * m.experts) * 4),
        weights_(pairs_ * 4),
        chosen_(pairs_ * 4, "a measurement"),
        row_(pairs_ * 4, "a measurement"),
        pair_(pairs_ * 4, "a measurement"),
        begin_(size_t(m.experts + 1) * 4, "a measurement"),
        arrived_(size_t(gemm_experts_arrived(std::max(2 * m.wide, m.hidden), m.experts)) * 4,
                 "a measurement") {
    Stream stream;
    choose(stream);
    group(stream);
    finish(stream);
  }

  void route(Stream& s) const {
    router(s, {exact_.as<float>(), router_w_.as<float>(), nullptr, scratch_logits_.as<float>(), tokens_,
               m_.experts, m_.hidden});
    choose(s);
    group(s);
    gather(s, {normed_.as<bf16>(), input_.as<bf16>(), at<int32_t>(row_), int32_t(pairs_), 2 * m_.hidden});
  }
  void multiply(Stream& s, int i) const {
    size_t const up = size_t(i % copies_) * up_rows(), down = size_t(i % copies_) * down_rows();
    Experts const experts{at<int32_t>(begin_), m_.experts, m_.used};
    gemm_experts(s,
                 {input_.as<bf16>(),
                  {format_, gate_up_w_.as<char>(up * up_), gate_up_s_.as<char>(up * up_scales_)},
                  nullptr,
                  gate_up_.as<float>(),
                  int32_t(pairs_),
                  2 * m_.wide,
                  m_.hidden,
                  partial_.as<float>(),
                  at<int32_t>(arrived_)},
                 experts);
    gate(s, gate_of(gate_up_.as<float>(), activated_.as<bf16>(), int32_t(pairs_), m_.wide,
                    BUNTING_ACTIVATION_SILU));
    gemm_experts(s,
                 {activated_.as<bf16>(),
                  {format_, down_w_.as<char>(down * down_), down_s_.as<char>(down * down_scales_)},
                  nullptr,
                  output_.as<float>(),
                  int32_t(pairs_),
                  m_.hidden,
                  m_.wide,
                  partial_.as<float>(),
                  at<int32_t>(arrived_)},
                 experts);
    combine_experts(s, {delta_.as<float>(), output_.as<float>(), at<int32_t>(pair_), weights_.as<float>(),
                        tokens_, m_.used, m_.hidden});
  }
  // Bytes of the experts that a step uses, each read once, and of the data between the kernels.
  double bytes() const {
    double const unused = std::pow(1 - double(m_.used) / m_.experts, tokens_);
    return double(matrices_bytes()) * (1 - unused) +
           double(pairs_) * (2.0 * m_.hidden + 16.0 * m_.wide + 4.0 * m_.wide + 8.0 * m_.hidden);
  }
  double flops() const { return 6.0 * double(pairs_) * m_.hidden * m_.wide; }

 private:
  size_t up_rows() const { return size_t(m_.experts) * 2 * size_t(m_.wide); }
  size_t down_rows() const { return size_t(m_.experts) * size_t(m_.hidden); }
  size_t matrices_bytes() const {
    return up_rows() * (up_ + up_scales_) + down_rows() * (down_ + down_scales_);
  }
  // All experts are equally likely.
  std::vector<float> random_logits() const {
    std::mt19937 random(3);
    std::vector<float> logits(size_t(tokens_ * m_.experts));
    for (float& logit : logits) logit = float(random() % 10000) * 1e-4f;
    return logits;
  }
  void choose(Stream& s) const {
    choose_experts(s, {at<float>(logits_), nullptr, at<int32_t>(chosen_), weights_.as<float>(), tokens_,
                       m_.experts, m_.used, false});
  }
  void group(Stream& s) const {
    group_experts(s, {at<int32_t>(chosen_), at<int32_t>(begin_), at<int32_t>(row_), at<int32_t>(pair_),
                      tokens_, m_.experts, m_.used});
  }

  Mixture m_;
  int32_t tokens_;
  Format format_;
  size_t pairs_, up_, up_scales_, down_, down_scales_;
  int copies_;
  Buffer gate_up_w_, gate_up_s_, down_w_, down_s_, router_w_, exact_, normed_, input_, gate_up_, activated_,
      output_, delta_, partial_;
  DeviceMemory logits_;
  Buffer scratch_logits_, weights_;
  DeviceMemory chosen_, row_, pair_, begin_, arrived_;
};

void bench_experts(Ceilings const& most) {
#if !defined(BUNTING_BENCH_EMULATED)
  constexpr Mixture kMixtures[] = {{"gpt-oss 20b", 32, 4, 2880, 2880}, {"Qwen3 30B-A3B", 128, 8, 2048, 768}};
#else
  constexpr Mixture kMixtures[] = {{"small", 4, 2, 64, 64}};
#endif
  struct Kind {
    char const* name;
    Format format;
  };
  for (Mixture const& m : kMixtures)
    for (int32_t tokens : {1, 8, 64, 128, 1024 / kShrink, 4096 / kShrink})
      for (auto const& [kind, format] :
           {Kind{"bf16", Format::plain}, {"int8", Format::int8_128}, {"int4", Format::int4_32}}) {
        MixtureLayer const layer(m, tokens, format);
        bool const is_few = tokens <= 128;
        char name[96];
        std::snprintf(name, sizeof name, "%s, experts of %d token%s, %s", m.name, tokens,
                      tokens > 1 ? "s" : "", kind);
        double const seconds = seconds_of(is_few ? kFewLaunches : kManyLaunches,
                                          [&](Stream& s, int i) { layer.multiply(s, i); });
        if (is_few)
          row(name, seconds, layer.bytes(), most.copy_bytes, "TB/s", "≥ 70 %");
        else
          row(name, seconds, layer.flops(), most.flops, "TFLOP/s", "≥ 40 %");
        if (format != Format::plain) continue;
        double const routing = seconds_of(kFewLaunches, [&](Stream& s, int) { layer.route(s); });
        std::printf("| %s, routing of %d token%s | %.1f | | | ≤ 10 %% of the experts in int4 |\n", m.name,
                    tokens, tokens > 1 ? "s" : "", routing * 1e6);
      }
}

int run(int argc, char** argv) {
  use_device(0);
  DeviceInfo const info = device_info(0);
  std::unique_ptr<CublasLt> library;
  try {
    library = std::make_unique<CublasLt>(argc > 1 ? argv[1] : "");
  } catch (Error const& error) {
    std::printf("%s\n\n", error.what());
  }
  Ceilings most{copy_bytes_per_second(), 0, library ? "cuBLASLt" : "our own kernel"};
  {
    Operands const square({"", kSquare, kSquare}, kSquare, Format::plain);
    most.flops = square.flops() / seconds_of(kManyLaunches, [&](Stream& s, int i) {
                   library ? library->multiply(s, square.product(i)) : gemm_many(s, square.product(i));
                 });
  }
  std::printf("%s, %s. Copying: %.2f TB/s read and written. %d³ bf16 by %s: %.0f TFLOP/s.\n\n",
              info.name.c_str(), info.note.c_str(), most.copy_bytes * 1e-12, kSquare,
              library ? library->description().c_str() : most.flops_of, most.flops * 1e-12);
  std::printf("| What | µs | Rate | Of the most | Aim |\n|---|---|---|---|---|\n");
  int32_t const blocks = info.multiprocessors * kAttentionBlocks;
  for (Batch b :
       {Batch{"64 decodes of 2k", 64, 2047, 1, 0, "≥ 85 %"},
        Batch{"1 decode of 32k", 1, 32767, 1, 0, "≥ 85 %"}, Batch{"256 decodes of 1k", 256, 1023, 1, 0, "–"},
        Batch{"a chunk of 2048", 1, 0, 2048, 0, "–"},
        Batch{"a chunk of 512 at 16k", 1, 16384, 512, 0, "–"}}) {
    if (kShrink > 1) b = shrunk(b);
    bench_attention(most, blocks, b, false);
  }
  Batch tree{"128 decodes, 4k shared + 200", 128, 4096 + 200, 1, 4096, "–"};
  if (kShrink > 1) tree = shrunk(tree);
  double const apart = bench_attention(most, blocks, tree, false),
               once = bench_attention(most, blocks, tree, true);
  std::printf("| reading the shared prefix once | | %.1f × faster | | ≥ 5 × |\n", apart / once);
  bench_kinds_of_attention(most, blocks);
  bench_few(most, library.get());
  bench_many(most, library.get());
  bench_experts(most);
  return 0;
}

}  // namespace
}  // namespace bunting::cuda

int main(int argc, char** argv) {
  try {
    return bunting::cuda::run(argc, argv);
  } catch (bunting::Error const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
