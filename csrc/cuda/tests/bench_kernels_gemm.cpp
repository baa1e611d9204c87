// bench_kernels_gemm.cpp - products of an 8B model in every format, and the ceilings of this GPU.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cuda/cublaslt.h"
#include "cuda/tests/bench_kernels.h"

namespace bunting::cuda::bench {
namespace {

struct Product {
  char const* name;
  int32_t n, k;
};

std::vector<Product> products() {
  Scale const& s = scale();
  return {{"qkv", (s.query_heads + 2 * s.kv_heads) * s.head_size, s.hidden},
          {"o", s.hidden, s.hidden},
          {"gate, up", 2 * s.forward, s.hidden},
          {"down", s.hidden, s.forward},
          {"vocabulary", s.vocab, s.hidden}};
}

// Weights of a product, in copies that exceed the cache, and room for as many tokens as are measured.
class Operands {
 public:
  Operands(Product const& p, int32_t tokens_max, Format format)
      : p_(p),
        format_(format),
        row_(row_bytes(format, p.k)),
        scale_row_(row_scale_bytes(format, p.k)),
        copies_(int(scale().far_more_than_cache / (size_t(p.n) * row_) + 1)),
        weights_(size_t(copies_) * size_t(p.n) * row_),
        scales_(std::max<size_t>(16, size_t(copies_) * size_t(p.n) * scale_row_)),
        x_(size_t(tokens_max) * size_t(p.k) * 2),
        y_(size_t(tokens_max) * size_t(p.n) * 4),
        partial_(kGemmPartialFloats * sizeof(float)),
        arrived_(upload(std::vector<int32_t>(kGemmArrived))) {}
  Gemm product(int32_t tokens, int i) const {
    size_t const first = size_t(i % copies_) * size_t(p_.n);
    return {x_.as<bf16>(),
            {format_, weights_.as<char>(first * row_), scales_.as<char>(first * scale_row_)},
            nullptr,
            y_.as<float>(),
            tokens,
            p_.n,
            p_.k,
            partial_.as<float>(),
            at<int32_t>(arrived_)};
  }
  void print(char const* kernel, int32_t tokens, double seconds) const {
    char shape[160];
    std::snprintf(shape, sizeof shape, "\"product\":\"%s\",\"format\":\"%s\",\"tokens\":%d,\"n\":%d,\"k\":%d",
                  p_.name, kFormatNames[int(format_)], tokens, p_.n, p_.k);
    line(kernel, shape, seconds,
         double(p_.n) * double(row_ + scale_row_) + double(tokens) * (2.0 * p_.k + 4.0 * p_.n),
         2.0 * tokens * p_.n * p_.k);
  }

 private:
  Product p_;
  Format format_;
  size_t row_, scale_row_;
  int copies_;
  Buffer weights_, scales_, x_, y_, partial_;
  DeviceMemory arrived_;
};

void bench(std::string const& part, std::vector<Product> const& all, std::vector<int32_t> const& tokens_of,
           int launches, char const* kernel, void (*queue)(Stream&, Gemm const&)) {
  for (int format = 0; format < int(std::size(kFormatNames)); ++format) {
    if (!part.empty() && part != kFormatNames[format]) continue;
    for (Product const& p : all) {
      Operands const operands(p, tokens_of.back(), Format(format));
      for (int32_t tokens : tokens_of)
        operands.print(kernel, tokens, seconds_of(launches, [&](Stream& s, int i) {
                         queue(s, operands.product(tokens, i));
                       }));
    }
  }
}

std::vector<int32_t> many_tokens() {
  if (scale().tiny) return {65, 128};
  return {65, 128, 256, 512, 1024, 4096};
}

}  // namespace

void bench_few(std::string const& part) {
  std::vector<Product> const all = products();
  if (scale().tiny) return bench(part, {all[0], all[3]}, {1, 20, 64}, 1, "gemm_few", gemm_few);
  bench(part, all, {1, 8, 16, 32, 64}, scale().few_launches, "gemm_few", gemm_few);
}

void bench_many(std::string const& part) {
  std::vector<Product> const all = products();
  bench(part, {all[0], all[2], all[3]}, many_tokens(), scale().many_launches, "gemm_many", gemm_many);
}

void bench_library(std::string const& path) {
  std::unique_ptr<CublasLt> library;
  try {
    library = std::make_unique<CublasLt>(path);
  } catch (Error const& error) {
    std::printf("Left out: %s\n", error.what());
    std::exit(kLeftOut);
  }
  std::vector<int32_t> tokens_of = many_tokens();
  tokens_of.insert(tokens_of.begin(), {1, 16, 64});
  for (Product const& p : products()) {
    Operands const operands(p, tokens_of.back(), Format::plain);
    for (int32_t tokens : tokens_of)
      operands.print("cublaslt", tokens, seconds_of(scale().many_launches, [&](Stream& s, int i) {
                       library->multiply(s, operands.product(tokens, i));
                     }));
  }
}

void measure_ceilings(std::string const& path) {
  size_t const bytes = scale().copied;
  {
    Buffer const from(bytes), to(bytes);
    double const seconds =
        seconds_of(4, [&](Stream& s, int) { s.copy(to.as<char>(), from.as<char>(), bytes); });
    std::printf("{\"ceiling\":\"copy\",\"per_second\":%.0f}\n", 2 * double(bytes) / seconds);
  }
  std::unique_ptr<CublasLt> library;
  try {
    library = std::make_unique<CublasLt>(path);
  } catch (Error const& error) {
    std::printf("%s\n", error.what());
  }
  int32_t const n = scale().square;
  Operands const square({"square", n, n}, n, Format::plain);
  double const seconds = seconds_of(scale().many_launches, [&](Stream& s, int i) {
    library ? library->multiply(s, square.product(n, i)) : gemm_many(s, square.product(n, i));
  });
  std::printf("{\"ceiling\":\"bf16\",\"per_second\":%.0f,\"by\":\"%s\"}\n", 2.0 * n * n * n / seconds,
              library ? library->description().c_str() : "gemm_many");
  std::fflush(stdout);
}

}  // namespace bunting::cuda::bench
