// Both matrix products against sums in double, over shapes that end inside tiles, and with K in parts.
#include "cuda/tests/device_test.h"

namespace bunting::test {
namespace {

using Kernel = void (*)(cuda::Stream&, cuda::Gemm const&);

struct Product {
  int32_t tokens, n, k;
  std::vector<uint16_t> x, w;
  std::vector<float> bias;
  std::vector<double> want, scale;  // scale: sum of absolute terms

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
  cuda::Gemm gemm;
  OnDevice(Product const& p, int32_t splits)
      : x(p.x),
        w(p.w),
        bias(p.bias),
        y(size_t(splits) * p.want.size()),
        gemm{x.data(), w.data(), bias.data(), y.data(), p.tokens, p.n, p.k, splits} {}
  std::vector<float> sums() const {
    std::vector<float> const parts = y.get();
    size_t const size = size_t(gemm.tokens) * size_t(gemm.n);
    std::vector<float> total(size);
    for (size_t i = 0; i < parts.size(); ++i) total[i % size] += parts[i];
    return total;
  }
};

// f32 sums of K terms in some order: the roundings of a random walk, generously.
bool is_right(Product const& p, std::vector<float> const& got) {
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(double(got[i]) - p.want[i]) <= 3e-7 * p.scale[i] + 1e-6)) return false;
  return true;
}

void check(char const* name, Kernel kernel, Product const& p, int32_t splits) {
  OnDevice const device(p, splits);
  RUNS(kernel(stream, device.gemm));
  CHECK(is_right(p, device.sums()), "%s T=%d N=%d K=%d splits=%d", name, p.tokens, p.n, p.k, splits);
}

}  // namespace

TEST(cuda_gemm_few_matches_sums_in_double) {
  Random random{8};
  for (int tokens : {1, 8, 9, 16, 31, 33, 64})
    for (auto [n, k] : {std::pair(16, 32), std::pair(40, 264), std::pair(17, 1288), std::pair(48, 2080)}) {
      Product const p(random, tokens, n, k);
      check("few", cuda::gemm_few, p, 1);
      if (k > 1000) check("few", cuda::gemm_few, p, 3);
    }
}

TEST(cuda_gemm_many_matches_sums_in_double) {
  Random random{9};
  for (int tokens : {1, 65, 130})
    for (auto [n, k] : {std::pair(128, 64), std::pair(130, 328), std::pair(24, 8)}) {
      Product const p(random, tokens, n, k);
      check("many", cuda::gemm_many, p, 1);
      if (k > 300) check("many", cuda::gemm_many, p, 2);
    }
}

TEST(cuda_gemm_rows_do_not_depend_on_company) {
  Random random{10};
  Product const p(random, 64, 24, 520);
  OnDevice const whole(p, 1);
  RUNS(cuda::gemm(stream, whole.gemm));
  std::vector<float> const all = whole.y.get();
  for (int tokens : {1, 9, 20}) {
    OnDevice part(p, 1);
    part.gemm.tokens = tokens;
    RUNS(cuda::gemm(stream, part.gemm));
    std::vector<float> const some = part.y.get();
    CHECK(std::equal(all.begin(), all.begin() + tokens * p.n, some.begin()), "%d rows of 64 differ", tokens);
  }
}

TEST(cuda_gemm_waits_nowhere_in_vain) {
  Random random{11};
  for (Kernel kernel : {cuda::gemm_few, cuda::gemm_many}) {
    Product const p(random, 20, 40, 520);
    OnDevice const device(p, 1);
    every_wait_is_needed(
        [&](cuda::Stream& stream) {
          stream.fill(device.y.data(), 0xff, device.y.size() * 4);
          kernel(stream, device.gemm);
        },
        [&] { return is_right(p, device.sums()); });
  }
}

TEST(cuda_gemm_splits_occupy_the_device_and_no_more) {
  CHECK(cuda::gemm_splits(1, 4096, 4096, 132, 8) == 1, "256 blocks are enough for 132 multiprocessors");
  CHECK(cuda::gemm_splits(1, 1024, 8192, 132, 8) == 4, "%d", cuda::gemm_splits(1, 1024, 8192, 132, 8));
  CHECK(cuda::gemm_splits(1, 1024, 8192, 132, 2) == 2, "no more than allowed");
  CHECK(cuda::gemm_splits(1, 256, 2048, 132, 8) == 2, "parts of K below 1024 are not worth it");
  CHECK(cuda::gemm_splits(512, 4096, 8192, 132, 8) == 2, "%d", cuda::gemm_splits(512, 4096, 8192, 132, 8));
  CHECK(cuda::gemm_splits(4096, 4096, 8192, 132, 8) == 1, "enough tiles");
}

}  // namespace bunting::test
