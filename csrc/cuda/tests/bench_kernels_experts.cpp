// bench_kernels_experts.cpp - layers of mixtures of experts: their products, and what routes tokens to them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "cuda/tests/bench_kernels.h"
#include "include/engine.h"

namespace bunting::cuda::bench {
namespace {

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
        copies_(int(scale().far_more_than_cache / matrices_bytes() + 1)),
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
                       m_.experts, m_.used, BUNTING_ROUTER_CHOSEN});
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

}  // namespace

void bench_experts(std::string const& part) {
  std::vector<Mixture> const mixtures =
      scale().tiny
          ? std::vector<Mixture>{{"small", 4, 2, 64, 64}}
          : std::vector<Mixture>{{"gpt-oss 20b", 32, 4, 2880, 2880}, {"Qwen3 30B-A3B", 128, 8, 2048, 768}};
  for (Mixture const& m : mixtures)
    for (int32_t tokens :
         scale().tiny ? std::vector<int32_t>{1, 70} : std::vector<int32_t>{1, 8, 64, 128, 1024, 4096})
      for (Format format : {Format::plain, Format::int8_128, Format::int4_32, Format::mxfp4}) {
        if (!part.empty() && part != kFormatNames[int(format)]) continue;
        MixtureLayer const layer(m, tokens, format);
        char shape[160];
        std::snprintf(shape, sizeof shape, "\"mixture\":\"%s\",\"format\":\"%s\",\"tokens\":%d", m.name,
                      kFormatNames[int(format)], tokens);
        int const launches = tokens <= 128 ? scale().few_launches : scale().many_launches;
        line("experts", shape, seconds_of(launches, [&](Stream& s, int i) { layer.multiply(s, i); }),
             layer.bytes(), layer.flops());
        if (format != Format::plain) continue;
        line("routing", shape, seconds_of(scale().few_launches, [&](Stream& s, int) { layer.route(s); }), 0,
             0);
      }
}

}  // namespace bunting::cuda::bench
