// Tests of weight formats: every code has the value that quantise.h defines, in the place where the kernels
// read it.
#include "cuda/kernels/formats.h"
#include "cuda/quantise.h"
#include "reference/kv_value.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

using namespace cuda;

// Returns an e4m3 by its definition: sign, four bits of exponent, three of fraction.
float e4m3(uint32_t code) {
  int const exponent = int(code >> 3 & 15), fraction = int(code & 7);
  float const size =
      exponent == 0 ? std::ldexp(float(fraction), -9) : std::ldexp(float(8 + fraction), exponent - 10);
  return code & 0x80 ? -size : size;
}

// Returns a row as the kernels read it, without scales: of each piece and slab the bytes of the four lanes.
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

// Returns the scales of a row as the kernels read them, one per slab of 32 k.
template <Format kFormat>
std::vector<uint16_t> scales_of(Row const& row) {
  using Scales = SlabScales<kFormat>;
  std::vector<uint16_t> scales;
  for (size_t piece = 0; piece < row.bytes.size() / kPieceBytes; ++piece) {
    Scales some;
    std::memcpy(&some, row.scales.data() + piece / Scales::kPieces * Scales::kCount, sizeof some);
    for (int slab = 0; slab < Weights<kFormat>::kSlabs; ++slab)
      scales.push_back(some.half[slab * Scales::kCount / Weights<kFormat>::kSlabs]);
  }
  return scales;
}

// Checks a row of k with a different scale per group: every slab must get the scale of its group.
template <Format kFormat>
void check_scales(int32_t k) {
  constexpr int kScaleK = scale_k(kFormat);
  std::vector<uint16_t> scales;
  for (int32_t i = 0; i < (k + kScaleK - 1) / kScaleK; ++i) scales.push_back(uint16_t(0x3c00 + i));
  Row row(kFormat, k);
  pack_row(kFormat, std::vector<int8_t>(size_t(k), 1), scales, row.bytes.data(), row.scales.data());
  std::vector<uint16_t> const got = scales_of<kFormat>(row);
  for (int32_t slab = 0; slab < (k + 31) / 32; ++slab)
    CHECK(got[size_t(slab)] == 0x3c00 + slab * 32 / kScaleK, "format %d groups of %d k=%d slab %d: scale %d",
          int(kFormat), kScaleK, k, slab, got[size_t(slab)] - 0x3c00);
}

}  // namespace

TEST(cuda_formats_mean_what_they_say) {
  std::vector<int8_t> all, nibbles;
  for (int i = 0; i < 256; ++i) all.push_back(int8_t(i));
  for (int i = 0; i < 128; ++i) nibbles.push_back(int8_t(i * 5 % 16 - 8));
  Row bytes(Format::int8_32, 256), halves(Format::int4_32, 128);
  pack_row(Format::int8_32, all, std::vector<uint16_t>(8), bytes.bytes.data(), bytes.scales.data());
  pack_row(Format::int4_32, nibbles, std::vector<uint16_t>(4), halves.bytes.data(), halves.scales.data());
  CHECK(codes_of<Format::int8_32>(bytes.bytes) == std::vector<float>(all.begin(), all.end()), "int8");
  CHECK(codes_of<Format::int4_32>(halves.bytes) == std::vector<float>(nibbles.begin(), nibbles.end()),
        "int4");

  std::vector<int8_t> codes;
  std::vector<float> e2m1;
  for (int i = 0; i < 128; ++i) {
    constexpr float kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    codes.push_back(int8_t(i * 5 % 16));
    e2m1.push_back(codes.back() & 8 ? -kSizes[codes.back() & 7] : kSizes[codes.back() & 7]);
  }
  Row floats(Format::mxfp4, 128);
  pack_row(Format::mxfp4, codes, std::vector<uint16_t>(4), floats.bytes.data(), floats.scales.data());
  CHECK(codes_of<Format::mxfp4>(floats.bytes) == e2m1, "e2m1");
  for (int e = 0; e < 255; ++e)
    CHECK(gpu::widen(mxfp4_scale(uint8_t(e))) == std::ldexp(1.0f, e - 127), "2^(%d - 127)", e);

  // All finite e4m3: 0x7f and 0xff are NaN. The largest is 448, so that the scale is 1.
  std::vector<float> wanted;
  for (uint32_t code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f) wanted.push_back(e4m3(code));
  wanted.resize(256);
  Row real(Format::fp8, 256);
  round_row_to_fp8(wanted, real.bytes.data(), real.scales.data());
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
    std::vector<int8_t> const ones(size_t(k), 1);
    std::vector<uint16_t> const scales(size_t(k + 31) / 32);
    Row a(Format::int8_32, k), b(Format::int4_32, k), c(Format::fp8, k);
    pack_row(Format::int8_32, ones, scales, a.bytes.data(), a.scales.data());
    pack_row(Format::int4_32, ones, scales, b.bytes.data(), b.scales.data());
    round_row_to_fp8(std::vector<float>(size_t(k), 1.0f), c.bytes.data(), c.scales.data());
    for (auto const& codes : {codes_of<Format::int8_32>(a.bytes), codes_of<Format::int4_32>(b.bytes),
                              codes_of<Format::fp8>(c.bytes)})
      for (size_t i = 0; i < codes.size(); ++i)
        CHECK((codes[i] != 0) == (i < size_t(k)), "k=%d: code %g at %zu", k, double(codes[i]), i);
  }
}

TEST(cuda_formats_keep_one_scale_for_each_group) {
  for (int32_t k : {8, 64, 72, 136, 256, 328}) {
    check_scales<Format::int8_128>(k);
    check_scales<Format::int8_32>(k);
    check_scales<Format::int4_32>(k);
    check_scales<Format::mxfp4>(k);
  }
  // 8.125, 8.5 and 4.5 bits per weight.
  CHECK(row_scale_bytes(Format::int8_128, 4096) == 64, "int8 in groups of 128");
  CHECK(row_scale_bytes(Format::int8_32, 4096) == 256, "int8 in groups of 32");
  CHECK(row_scale_bytes(Format::int4_32, 4096) == 256, "int4 in groups of 32");
}

TEST(cuda_formats_round_to_half_a_step) {
  Random random{22};
  constexpr int32_t kK = 384;
  std::vector<float> values(kK);
  for (float& value : values) value = random.uniform(-1, 1) * std::exp2(random.uniform(-14, 3));
  Row row(Format::fp8, kK);
  round_row_to_fp8(values, row.bytes.data(), row.scales.data());
  std::vector<float> const codes = codes_of<Format::fp8>(row.bytes);
  float scale;
  std::memcpy(&scale, row.scales.data(), sizeof scale);
  for (size_t i = 0; i < kK; ++i)
    CHECK(std::fabs(values[i] - scale * codes[i]) <=
              std::max(std::fabs(values[i]) * 0x1p-4f, scale * 0x1p-10f) * 1.001f,
          "%g becomes %g", double(values[i]), double(scale * codes[i]));
}

}  // namespace bunting::test
