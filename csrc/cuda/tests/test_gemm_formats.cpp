// Matrix products of weights in few bits, against sums in double of the numbers that the codes stand for.
#include "cuda/quantise.h"
#include "cuda/tests/device_test.h"

namespace bunting::test {
namespace {

using cuda::Format;

struct Kind {
  Format format;
  int32_t group;
};
constexpr Kind kKinds[] = {{Format::int8, 32},  {Format::int4, 32}, {Format::fp8, 32},  {Format::int8, 64},
                           {Format::int8, 128}, {Format::int4, 64}, {Format::int4, 128}};
constexpr char const* kNames[] = {"plain", "int8", "int4", "fp8"};

// Random weights [n, k] in a format, and the same as real numbers.
struct Packed {
  std::vector<uint8_t> rows;
  std::vector<uint8_t> scales;
  std::vector<float> values;

  Packed(Random& random, Kind kind, int32_t n, int32_t k) : values(size_t(n * k)) {
    size_t const row = cuda::row_bytes(kind.format, k),
                 row_scales = cuda::row_scale_bytes(kind.format, k, kind.group);
    rows.resize(size_t(n) * row);
    scales.resize(size_t(n) * row_scales);
    for (int32_t r = 0; r < n; ++r)
      fill(random, kind, &values[size_t(r * k)], k, &rows[size_t(r) * row], &scales[size_t(r) * row_scales]);
  }

 private:
  static void fill(Random& random, Kind kind, float* value, int32_t k, void* row, void* row_scales) {
    if (kind.format == Format::fp8) {
      // Numbers of four bits and a scale of 1/4: exact.
      for (int32_t i = 0; i < k; ++i) value[i] = std::ldexp(float(random.below(16)), random.below(4) - 4);
      value[random.below(k)] = 448.0f / 4;
      for (int32_t i = 0; i < k; ++i) value[i] *= random.below(2) ? 1 : -1;
      return cuda::round_row_to_fp8(std::span(value, size_t(k)), row, row_scales);
    }
    int const codes = kind.format == Format::int8 ? 256 : 16;
    std::vector<int8_t> q(static_cast<size_t>(k));
    std::vector<uint16_t> halves(size_t((k + kind.group - 1) / kind.group));
    for (uint16_t& half : halves) half = uint16_t(0x1c00 + random.below(0x800));  // 2^-8 .. 2^-6
    for (int32_t i = 0; i < k; ++i) {
      q[size_t(i)] = int8_t(random.below(codes) - codes / 2);
      value[i] = cuda::half_value(halves[size_t(i / kind.group)]) * float(q[size_t(i)]);
    }
    cuda::pack_row(kind.format, kind.group, q, halves, row, row_scales);
  }
};

struct Scene {
  int32_t tokens, n, k;
  std::vector<double> want, scale;
  DeviceArray<uint16_t> x;
  DeviceArray<uint8_t> rows, scales;
  DeviceArray<float> bias, y;
  GemmScratch scratch;
  cuda::Gemm gemm;

  Scene(Random& random, Kind kind, int32_t t, int32_t columns, int32_t depth)
      : Scene(kind, t, columns, depth, Packed(random, kind, columns, depth),
              random_halves(random, size_t(t * depth)), random_floats(random, size_t(columns))) {}

  std::vector<float> run(void (*kernel)(cuda::Stream&, cuda::Gemm const&)) {
    std::string const fault = fault_of([&](cuda::Stream& stream) {
      stream.fill(y.data(), 0xff, y.size() * sizeof(float));
      kernel(stream, gemm);
    });
    CHECK(fault.empty(), "%s", fault.c_str());
    return y.get();
  }

  bool is_right(std::vector<float> const& got) const {
    for (size_t i = 0; i < got.size(); ++i)
      if (!(std::fabs(double(got[i]) - want[i]) <= kSumError * scale[i] + 1e-6)) return false;
    return true;
  }

 private:
  Scene(Kind kind, int32_t t, int32_t columns, int32_t depth, Packed const& w,
        std::vector<uint16_t> const& tokens_x, std::vector<float> const& biases)
      : tokens(t),
        n(columns),
        k(depth),
        want(size_t(t * columns)),
        scale(want.size()),
        x(tokens_x),
        rows(w.rows),
        scales(w.scales),
        bias(biases),
        y(want.size()),
        scratch(want.size()),
        gemm{x.data(),
             {kind.format, rows.data(), scales.data(), kind.group},
             bias.data(),
             y.data(),
             t,
             columns,
             depth,
             scratch.partial.data(),
             scratch.arrived.data()} {
    for (int32_t row = 0; row < t; ++row)
      for (int32_t column = 0; column < n; ++column) {
        double sum = double(biases[size_t(column)]), absolute = std::fabs(sum);
        for (int32_t i = 0; i < k; ++i) {
          double const term = double(reference::widen(tokens_x[size_t(row * k + i)])) *
                              double(w.values[size_t(column * k + i)]);
          sum += term;
          absolute += std::fabs(term);
        }
        want[size_t(row * n + column)] = sum;
        scale[size_t(row * n + column)] = absolute;
      }
  }
};

}  // namespace

TEST(cuda_gemm_formats_match_sums_in_double_and_each_other) {
  Random random{23};
  for (Kind kind : kKinds)
    for (auto [tokens, n, k] : {std::tuple(1, 17, 264), std::tuple(12, 40, 1544), std::tuple(29, 16, 136),
                                std::tuple(64, 130, 520)}) {
      Scene scene(random, kind, tokens, n, k);
      std::vector<float> const few = scene.run(cuda::gemm_few), many = scene.run(cuda::gemm_many);
      CHECK(scene.is_right(few), "few %s in groups of %d T=%d N=%d K=%d", kNames[int(kind.format)],
            kind.group, tokens, n, k);
      CHECK(few == many, "many %s in groups of %d T=%d N=%d K=%d: other bits", kNames[int(kind.format)],
            kind.group, tokens, n, k);
    }
}

TEST(cuda_gemm_formats_wait_nowhere_in_vain) {
  Random random{24};
  for (Kind kind : {Kind{Format::int4, 32}, Kind{Format::fp8, 32}}) {
    Scene scene(random, kind, 20, 40, 1032);
    every_wait_is_needed(
        [&](cuda::Stream& stream) {
          stream.fill(scene.y.data(), 0xff, scene.y.size() * sizeof(float));
          cuda::gemm_many(stream, scene.gemm);
        },
        [&] { return scene.is_right(scene.y.get()); });
  }
}

TEST(cuda_gemm_formats_refuse_groups_without_a_kernel) {
  Random random{25};
  Scene scene(random, {Format::int4, 64}, 1, 16, 128);
  scene.gemm.w.group = 96;
  for (auto kernel : {cuda::gemm_few, cuda::gemm_many}) {
    std::string const fault = fault_of([&](cuda::Stream& stream) { kernel(stream, scene.gemm); });
    CHECK(fault.find("no kernel for groups of 96") != std::string::npos, "%s", fault.c_str());
  }
}

}  // namespace bunting::test
