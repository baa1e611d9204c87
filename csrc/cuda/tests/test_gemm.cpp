// Tests of both GEMM kernels against sums in double and against each other, over shapes that end inside
// tiles, and with K in parts.
#include "cuda/tests/device_test.h"

namespace bunting::test {
namespace {

using Kernel = void (*)(cuda::Stream&, cuda::Gemm const&);

struct Product {
  int32_t tokens, n, k;
  std::vector<uint16_t> x, w;
  std::vector<float> bias;
  std::vector<double> want, scale;  // scale: sum of the terms' magnitudes

  Product(Random& random, int32_t t, int32_t columns, int32_t depth)
      : tokens(t),
        n(columns),
        k(depth),
        x(random_halves(random, size_t(t * depth))),
        w(random_halves(random, size_t(columns * depth))),
        bias(random_floats(random, size_t(columns))),
        want(size_t(t * columns)),
        scale(want.size()) {
    for (int32_t row = 0; row < t; ++row)
      for (int32_t column = 0; column < columns; ++column) {
        double sum = double(bias[size_t(column)]), absolute = std::fabs(sum);
        for (int32_t i = 0; i < depth; ++i) {
          double const term = double(reference::widen(x[size_t(row * depth + i)])) *
                              double(reference::widen(w[size_t(column * depth + i)]));
          sum += term;
          absolute += std::fabs(term);
        }
        want[size_t(row * columns + column)] = sum;
        scale[size_t(row * columns + column)] = absolute;
      }
  }
};

struct OnDevice {
  DeviceArray<uint16_t> x, w;
  DeviceArray<float> bias, y;
  GemmScratch scratch;
  cuda::Gemm gemm;
  explicit OnDevice(Product const& p)
      : x(p.x),
        w(p.w),
        bias(p.bias),
        y(p.want.size()),
        scratch(p.want.size()),
        gemm{x.data(),
             w.data(),
             bias.data(),
             y.data(),
             p.tokens,
             p.n,
             p.k,
             scratch.partial.data(),
             scratch.arrived.data()} {}
};

// Checks f32 sums of K terms in any order: the bound is a generous multiple of a random walk of roundings.
bool is_right(Product const& p, std::vector<float> const& got) {
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(double(got[i]) - p.want[i]) <= kSumError * p.scale[i] + 1e-6)) return false;
  return true;
}

std::vector<float> product(Kernel kernel, Product const& p) {
  OnDevice const device(p);
  std::string const fault = fault_of([&](cuda::Stream& stream) { kernel(stream, device.gemm); });
  CHECK(fault.empty(), "%s", fault.c_str());
  return device.y.get();
}

// Columns and depths that end inside tiles; one, two and four parts of K.
constexpr std::pair<int32_t, int32_t> kShapes[] = {{16, 32}, {130, 264}, {17, 520}, {48, 1288}};

}  // namespace

TEST(cuda_gemm_few_matches_sums_in_double) {
  Random random{8};
  for (int tokens : {1, 8, 9, 16, 31, 33, 64})
    for (auto [n, k] : kShapes) {
      Product const p(random, tokens, n, k);
      CHECK(is_right(p, product(cuda::gemm_few, p)), "T=%d N=%d K=%d", tokens, n, k);
    }
}

TEST(cuda_gemm_many_matches_sums_in_double) {
  Random random{9};
  for (int tokens : {1, 65, 130})
    for (auto [n, k] : kShapes) {
      Product const p(random, tokens, n, k);
      CHECK(is_right(p, product(cuda::gemm_many, p)), "T=%d N=%d K=%d", tokens, n, k);
    }
}

TEST(cuda_gemm_rows_do_not_depend_on_company) {
  Random random{10};
  for (auto [n, k] : kShapes) {
    Product p(random, 64, n, k);
    std::vector<float> const all = product(cuda::gemm_many, p);
    for (int tokens : {64, 20, 9, 1}) {
      p.tokens = tokens;
      for (Kernel kernel : {cuda::gemm_few, cuda::gemm_many}) {
        std::vector<float> const some = product(kernel, p);
        CHECK(std::equal(all.begin(), all.begin() + tokens * n, some.begin()),
              "%d rows of 64 differ, N=%d K=%d, %s", tokens, n, k, kernel == cuda::gemm_few ? "few" : "many");
      }
    }
  }
}

TEST(cuda_gemm_waits_nowhere_in_vain) {
  Random random{11};
  for (Kernel kernel : {cuda::gemm_few, cuda::gemm_many}) {
    Product const p(random, 20, 40, 520);
    OnDevice const device(p);
    every_wait_is_needed(
        [&](cuda::Stream& stream) {
          stream.fill(device.y.data(), 0xff, device.y.size() * 4);
          kernel(stream, device.gemm);
        },
        [&] { return is_right(p, device.y.get()) && device.scratch.is_at_rest(); });
  }
}

TEST(cuda_gemm_parts_occupy_a_large_device_and_no_more) {
  CHECK(cuda::gemm_parts(28672, 4096) == 1, "columns enough");
  CHECK(cuda::gemm_parts(4096, 4096) == 4, "%d", cuda::gemm_parts(4096, 4096));
  CHECK(cuda::gemm_parts(1024, 8192) == 8, "%d", cuda::gemm_parts(1024, 8192));
  CHECK(cuda::gemm_parts(256, 1024) == 4, "parts of K below 256 are not worth it");
  CHECK(cuda::gemm_parts(256, 8) == 1, "%d", cuda::gemm_parts(256, 8));
}

}  // namespace bunting::test
