// Tests of GEMMs with weights in few bits, against sums in double of the numbers that the codes represent.
#include "cuda/quantise.h"
#include "cuda/tests/device_test.h"

namespace bunting::test {
namespace {

using cuda::Format;

constexpr Format kFormats[] = {Format::int8_128, Format::int8_32, Format::int4_32, Format::fp8,
                               Format::mxfp4};
constexpr char const* kNames[] = {"plain", "int8 in groups of 128", "int8 in groups of 32", "int4", "fp8",
                                  "mxfp4"};

// Random weights [n, k] in a format, and the same weights as floats.
struct Packed {
  std::vector<uint8_t> rows;
  std::vector<uint8_t> scales;
  std::vector<float> values;

  Packed(Random& random, Format format, int32_t n, int32_t k) : values(size_t(n * k)) {
    size_t const row = cuda::row_bytes(format, k), row_scales = cuda::row_scale_bytes(format, k);
    rows.resize(size_t(n) * row);
    scales.resize(size_t(n) * row_scales);
    for (int32_t r = 0; r < n; ++r)
      fill(random, format, &values[size_t(r * k)], k, &rows[size_t(r) * row],
           &scales[size_t(r) * row_scales]);
  }

 private:
  static void fill(Random& random, Format format, float* value, int32_t k, void* row, void* row_scales) {
    if (format == Format::fp8) {
      // Numbers of four bits and a scale of 1/4 are exact.
      for (int32_t i = 0; i < k; ++i) value[i] = std::ldexp(float(random.below(16)), random.below(4) - 4);
      value[random.below(k)] = 448.0f / 4;
      for (int32_t i = 0; i < k; ++i) value[i] *= random.below(2) ? 1 : -1;
      return cuda::round_row_to_fp8(std::span(value, size_t(k)), row, row_scales);
    }
    if (format == Format::mxfp4) {
      constexpr float kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      std::vector<int8_t> q(static_cast<size_t>(k));
      std::vector<uint16_t> scales(size_t((k + 31) / 32));
      for (size_t g = 0; g < scales.size(); ++g) {
        int const exponent = random.below(20) - 10;
        scales[g] = cuda::mxfp4_scale(uint8_t(127 + exponent));
        for (size_t i = g * 32; i < std::min(size_t(k), g * 32 + 32); ++i) {
          q[i] = int8_t(random.below(16));
          value[i] = std::ldexp(q[i] & 8 ? -kSizes[q[i] & 7] : kSizes[q[i] & 7], exponent);
        }
      }
      return cuda::pack_row(format, q, scales, row, row_scales);
    }
    int const codes = format == Format::int4_32 ? 16 : 256, group = cuda::scale_k(format);
    std::vector<int8_t> q(static_cast<size_t>(k));
    std::vector<uint16_t> halves(size_t((k + group - 1) / group));
    for (uint16_t& half : halves) half = uint16_t(0x1c00 + random.below(0x800));  // 2^-8 .. 2^-6
    for (int32_t i = 0; i < k; ++i) {
      q[size_t(i)] = int8_t(random.below(codes) - codes / 2);
      value[i] = cuda::half_value(halves[size_t(i / group)]) * float(q[size_t(i)]);
    }
    cuda::pack_row(format, q, halves, row, row_scales);
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

  Scene(Random& random, Format format, int32_t t, int32_t columns, int32_t depth)
      : Scene(format, t, columns, depth, Packed(random, format, columns, depth),
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
  Scene(Format format, int32_t t, int32_t columns, int32_t depth, Packed const& w,
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
             {format, rows.data(), scales.data()},
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
  for (Format format : kFormats)
    for (auto [tokens, n, k] : {std::tuple(1, 17, 264), std::tuple(12, 40, 1544), std::tuple(29, 16, 136),
                                std::tuple(64, 130, 520)}) {
      Scene scene(random, format, tokens, n, k);
      std::vector<float> const few = scene.run(cuda::gemm_few), many = scene.run(cuda::gemm_many);
      CHECK(scene.is_right(few), "few %s T=%d N=%d K=%d", kNames[int(format)], tokens, n, k);
      CHECK(few == many, "many %s T=%d N=%d K=%d: other bits", kNames[int(format)], tokens, n, k);
    }
}

TEST(cuda_gemm_formats_wait_nowhere_in_vain) {
  Random random{24};
  for (Format format : {Format::int4_32, Format::fp8}) {
    Scene scene(random, format, 20, 40, 1032);
    every_wait_is_needed(
        [&](cuda::Stream& stream) {
          stream.fill(scene.y.data(), 0xff, scene.y.size() * sizeof(float));
          cuda::gemm_many(stream, scene.gemm);
        },
        [&] { return scene.is_right(scene.y.get()); });
  }
}

}  // namespace bunting::test
