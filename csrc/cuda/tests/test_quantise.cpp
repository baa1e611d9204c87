// Formats of weights: every code means what quantise.h says, in the place where the kernels look for it.
#include "cuda/kernels/formats.h"
#include "cuda/quantise.h"
#include "error.h"
#include "reference/kv_value.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

using namespace cuda;

// e4m3 by its definition: sign, four bits of exponent, three of fraction.
float e4m3(uint32_t code) {
  int const exponent = int(code >> 3 & 15), fraction = int(code & 7);
  float const size =
      exponent == 0 ? std::ldexp(float(fraction), -9) : std::ldexp(float(8 + fraction), exponent - 10);
  return code & 0x80 ? -size : size;
}

// A row as the kernels see it, without scales: of each piece and slab what the four lanes take.
template <Format kFormat>
std::vector<float> codes_of(std::vector<uint8_t> const& row) {
  std::vector<float> values;
  for (size_t piece = 0; piece < row.size() / kPieceBytes; ++piece)
    for (int slab = 0; slab < Weights<kFormat>::kSlabs; ++slab)
      for (int lane = 0; lane < 4; ++lane) {
        gpu::Vec v;
        std::memcpy(&v, row.data() + piece * kPieceBytes + size_t(lane) * 16, sizeof v);
        for (uint32_t word : Weights<kFormat>::slab(v, slab).word) {
          values.push_back(gpu::widen_low(word));
          values.push_back(gpu::widen_high(word));
        }
      }
  return values;
}

struct Row {
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> scales;  // or the two halves of an f32
  Row(Format format, int32_t k) : bytes(row_bytes(format, k)), scales(row_scale_bytes(format, k) / 2) {}
};

}  // namespace

TEST(cuda_formats_mean_what_they_say) {
  std::vector<int8_t> all, nibbles;
  for (int i = 0; i < 256; ++i) all.push_back(int8_t(i));
  for (int i = 0; i < 128; ++i) nibbles.push_back(int8_t(i * 5 % 16 - 8));
  Row bytes(Format::int8, 256), halves(Format::int4, 128);
  pack_row(Format::int8, all, std::vector<uint16_t>(8), bytes.bytes.data(), bytes.scales.data());
  pack_row(Format::int4, nibbles, std::vector<uint16_t>(4), halves.bytes.data(), halves.scales.data());
  CHECK(codes_of<Format::int8>(bytes.bytes) == std::vector<float>(all.begin(), all.end()), "int8");
  CHECK(codes_of<Format::int4>(halves.bytes) == std::vector<float>(nibbles.begin(), nibbles.end()), "int4");

  // All finite e4m3: 0x7f and 0xff are no numbers. The largest is 448, so that the scale is 1.
  std::vector<float> wanted;
  for (uint32_t code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f) wanted.push_back(e4m3(code));
  wanted.resize(256);
  Row real(Format::fp8, 256);
  quantise_row(Format::fp8, wanted, 32, real.bytes.data(), real.scales.data());
  CHECK(codes_of<Format::fp8>(real.bytes) == wanted, "e4m3");
  for (uint32_t code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f)
      CHECK(gpu::narrow_e4m3(e4m3(code)) == code, "the device takes e4m3 %02x for %02x", code,
            gpu::narrow_e4m3(e4m3(code)));
}

TEST(cuda_formats_narrow_to_the_nearest_e4m3) {
  Random random{21};
  for (int i = 0; i < 20000; ++i) {
    float const x = std::ldexp(random.uniform(-1, 1), random.below(20) - 10);
    float const got = e4m3(gpu::narrow_e4m3(x));
    float best = 0;
    for (uint32_t code = 0; code < 0x7f; ++code)
      for (float value : {e4m3(code), -e4m3(code)})
        if (std::fabs(value - x) < std::fabs(best - x)) best = value;
    CHECK(std::fabs(got - x) == std::fabs(best - x), "%g becomes %g, nearer is %g", double(x), double(got),
          double(best));
  }
}

TEST(cuda_formats_fill_up_with_zeros) {
  for (int32_t k : {8, 72, 136}) {
    std::vector<float> const ones(size_t(k), 1.0f);
    Row a(Format::int8, k), b(Format::int4, k), c(Format::fp8, k);
    quantise_row(Format::int8, ones, 32, a.bytes.data(), a.scales.data());
    quantise_row(Format::int4, ones, 32, b.bytes.data(), b.scales.data());
    quantise_row(Format::fp8, ones, 32, c.bytes.data(), c.scales.data());
    for (auto const& codes :
         {codes_of<Format::int8>(a.bytes), codes_of<Format::int4>(b.bytes), codes_of<Format::fp8>(c.bytes)})
      for (size_t i = 0; i < codes.size(); ++i)
        CHECK((codes[i] != 0) == (i < size_t(k)), "k=%d: code %g at %zu", k, double(codes[i]), i);
  }
}

TEST(cuda_formats_round_to_half_a_step) {
  Random random{22};
  constexpr int32_t kK = 384;
  std::vector<float> values(kK);
  for (float& value : values) value = random.uniform(-1, 1) * std::exp2(random.uniform(-6, 3));
  for (int32_t group : {32, 64, 128}) {
    Row a(Format::int8, kK), b(Format::int4, kK);
    quantise_row(Format::int8, values, group, a.bytes.data(), a.scales.data());
    quantise_row(Format::int4, values, group, b.bytes.data(), b.scales.data());
    std::vector<float> const bytes = codes_of<Format::int8>(a.bytes),
                             halves = codes_of<Format::int4>(b.bytes);
    for (size_t i = 0; i < kK; ++i) {
      float const byte_scale = gpu::widen_half(a.scales[i / 32]),
                  half_scale = gpu::widen_half(b.scales[i / 32]);
      CHECK(a.scales[i / 32] == a.scales[i / size_t(group) * size_t(group) / 32], "a group has one scale");
      CHECK(std::fabs(values[i] - byte_scale * bytes[i]) <= 0.51f * byte_scale, "int8 %g", double(values[i]));
      // The code of the largest magnitude is -8; as large a number of the other sign has no code.
      CHECK(std::fabs(values[i] - half_scale * halves[i]) <= 1.01f * std::fabs(half_scale), "int4 %g",
            double(values[i]));
    }
  }
  values[3] = NAN;
  Row row(Format::int8, kK);
  try {
    quantise_row(Format::int8, values, 32, row.bytes.data(), row.scales.data());
    CHECK(false, "a weight that is no number is taken");
  } catch (Error const& error) {
    CHECK(error.status() == BUNTING_INVALID, "%s", error.what());
  }
}

}  // namespace bunting::test
