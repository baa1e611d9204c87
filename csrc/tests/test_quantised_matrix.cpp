// Tests of quantised safetensors against the published meaning of their numbers, in double.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "boundary/error.h"
#include "model/quantised_matrix.h"
#include "reference/stored_type.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

constexpr int64_t kRows = 48, kCols = 128;

// File with the four parts, removed afterwards.
struct Parts {
  std::string path = [] {
    char const* const folder = std::getenv("TMPDIR");
    std::string name = std::string(folder ? folder : "/tmp") + "/bunting-quantised-XXXXXX";
    close(mkstemp(name.data()));
    return name;
  }();
  std::vector<uint8_t> integers, zeros;
  std::vector<float> scales;
  std::vector<int32_t> order;

  std::string paths(bool has_zeros, bool has_order) {
    FILE* const file = std::fopen(path.c_str(), "wb");
    auto const put = [&](void const* from, size_t bytes) {
      if (bytes == 0) return;  // then `from` may be null
      CHECK(std::fwrite(from, 1, bytes, file) == bytes, "written");
    };
    put(integers.data(), integers.size());
    put(scales.data(), scales.size() * 4);
    put(zeros.data(), zeros.size());
    put(order.data(), order.size() * 4);
    std::fclose(file);
    std::string const nul(1, '\0');
    return path + nul + path + nul + (has_zeros ? path : "") + nul + (has_order ? path : "") +
           std::string(BUNTING_PARTS - 3, '\0');
  }
  std::vector<uint64_t> offsets() const {
    uint64_t const scales_at = integers.size(), zeros_at = scales_at + scales.size() * 4;
    return {0, scales_at, zeros_at, zeros_at + zeros.size(), 0, 0, 0, 0, 0};
  }
  ~Parts() { std::remove(path.c_str()); }
};

void put_nibble(std::vector<uint8_t>& bytes, int64_t index, int value) {
  bytes[size_t(index / 2)] = uint8_t(bytes[size_t(index / 2)] | value << (index % 2 * 4));
}

// AWQ's packing order: place i of a word holds column kOrder[i].
int64_t awq_column(int64_t place) {
  constexpr int64_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  return place / 8 * 8 + kOrder[place % 8];
}

TEST(quantised_integers_of_four_bits_mean_what_is_published) {
  for (int32_t const layout : {BUNTING_LAYOUT_ROWS, BUNTING_LAYOUT_GPTQ, BUNTING_LAYOUT_AWQ}) {
    for (bool const has_zeros : {false, true}) {
      for (bool const has_order : {false, true}) {
        if (has_order && layout == BUNTING_LAYOUT_AWQ) continue;
        constexpr int64_t kLength = 64, kGroups = kCols / kLength;
        Random random{uint64_t(layout * 4 + has_zeros * 2 + has_order)};
        Parts parts;
        parts.integers.resize(size_t(kRows * kCols / 2));
        parts.zeros.resize(size_t(kRows * kGroups / 2));
        parts.scales.resize(size_t(kRows * kGroups));
        std::vector<int> q(size_t(kRows * kCols)), z(size_t(kRows * kGroups), 8);
        for (int64_t n = 0; n < kRows; n++) {
          for (int64_t k = 0; k < kCols; k++) q[size_t(n * kCols + k)] = int(random.below(16));
          for (int64_t g = 0; g < kGroups && has_zeros; g++)
            z[size_t(n * kGroups + g)] = int(random.below(15)) + 1;
        }
        for (float& scale : parts.scales) scale = random.uniform(0.01f, 0.02f);
        for (int64_t k = 0; k < kCols; k++) parts.order.push_back(int32_t((k * 7) % kGroups));
        for (int64_t n = 0; n < kRows; n++) {
          for (int64_t k = 0; k < kCols; k++) {
            int const value = q[size_t(n * kCols + k)];
            if (layout == BUNTING_LAYOUT_ROWS) put_nibble(parts.integers, n * kCols + k, value);
            if (layout == BUNTING_LAYOUT_GPTQ)
              put_nibble(parts.integers, (k / 8 * kRows + n) * 8 + k % 8, value);
            if (layout == BUNTING_LAYOUT_AWQ)
              put_nibble(parts.integers, k * kRows + n, q[size_t(awq_column(n) * kCols + k)]);
          }
          for (int64_t g = 0; g < kGroups; g++) {
            int const value = z[size_t(n * kGroups + g)];
            if (layout == BUNTING_LAYOUT_ROWS)
              put_nibble(parts.zeros, (n / 8 * kGroups + g) * 8 + n % 8, value);
            if (layout == BUNTING_LAYOUT_GPTQ) put_nibble(parts.zeros, g * kRows + n, value - 1);
            if (layout == BUNTING_LAYOUT_AWQ)
              put_nibble(parts.zeros, g * kRows + n, z[size_t(awq_column(n) * kGroups + g)]);
          }
        }
        bunting_quantised const how{.layout = layout,
                                    .number = BUNTING_NUMBER_UNSIGNED,
                                    .bits = 4,
                                    .zero_added = layout == BUNTING_LAYOUT_GPTQ ? 1 : 0,
                                    .group_rows = 1,
                                    .group_cols = kLength,
                                    .scale_type = BUNTING_SCALE_F32,
                                    .divided = 0,
                                    .state_bytes = 0};
        std::string const paths = parts.paths(has_zeros, has_order);
        QuantisedMatrix const matrix(how, paths.data(), parts.offsets().data(), kRows, kCols);
        Dtype const type = has_order ? Dtype::q8 : has_zeros ? Dtype::q4_1 : Dtype::q4;
        CHECK(matrix.can_be(type), "layout %d", layout);
        int64_t const row_bytes = kCols / kGroup * weight_format(type).file.bytes;
        std::vector<char> blocks(size_t(kRows * row_bytes));
        matrix.read(type, 0, kRows, blocks.data());
        for (int64_t n = 0; n < kRows; n++) {
          for (int64_t k = 0; k < kCols; k++) {
            int64_t const g = has_order ? parts.order[size_t(k)] : k / kLength;
            double const scale =
                parts.scales[size_t(layout == BUNTING_LAYOUT_ROWS ? n * kGroups + g : g * kRows + n)];
            double const want = (q[size_t(n * kCols + k)] - z[size_t(n * kGroups + g)]) * scale;
            double const got = reference::stored_value(int32_t(type), blocks.data() + n * row_bytes, k);
            // Scales and minimums are rounded to f16; with an order there is also half a step of 127 of up to
            // 15 * 0.02.
            CHECK(std::fabs(got - want) <= 31 * 0.02 / 2048 + (has_order ? 0.3 / 254 : 0),
                  "layout %d zeros %d order %d row %d column %d: %g, not %g", layout, has_zeros, has_order,
                  int(n), int(k), got, want);
          }
        }
      }
    }
  }
}

TEST(quantised_bytes_mean_what_is_published) {
  for (int32_t const number : {BUNTING_NUMBER_SIGNED, BUNTING_NUMBER_E4M3}) {
    for (int64_t const group_rows : {int64_t{1}, int64_t{32}, kRows}) {
      int64_t const group_cols = group_rows == 32 ? 32 : kCols, groups = kCols / group_cols;
      Random random{uint64_t(number * 100 + group_rows)};
      Parts parts;
      parts.scales.resize(size_t((kRows + group_rows - 1) / group_rows * groups));
      for (float& scale : parts.scales) scale = random.uniform(0.01f, 0.02f);
      for (int64_t i = 0; i < kRows * kCols; i++) {
        uint8_t const byte = uint8_t(random.next());
        parts.integers.push_back((byte & 127) == 127 && number == BUNTING_NUMBER_E4M3 ? 0 : byte);
      }
      bunting_quantised const how{.layout = BUNTING_LAYOUT_ROWS,
                                  .number = number,
                                  .bits = 8,
                                  .zero_added = 0,
                                  .group_rows = group_rows,
                                  .group_cols = group_cols,
                                  .scale_type = BUNTING_SCALE_F32,
                                  .divided = 0,
                                  .state_bytes = 0};
      std::string const paths = parts.paths(false, false);
      QuantisedMatrix const matrix(how, paths.data(), parts.offsets().data(), kRows, kCols);
      CHECK(!matrix.can_be(Dtype::q4) && matrix.can_be(Dtype::q8), "eight bits");
      std::vector<char> blocks(size_t(kRows * kCols / 32 * 34));
      matrix.read(Dtype::q8, 0, kRows, blocks.data());
      for (int64_t n = 0; n < kRows; n++) {
        for (int64_t k = 0; k < kCols; k++) {
          int const bits = parts.integers[size_t(n * kCols + k)];
          int const exponent = bits >> 3 & 15, mantissa = bits & 7;
          double const magnitude =
              exponent == 0 ? mantissa / 512.0 : (1 + mantissa / 8.0) * std::exp2(exponent - 7);
          double const q = number == BUNTING_NUMBER_SIGNED ? int8_t(bits)
                           : bits >= 128                   ? -magnitude
                                                           : magnitude;
          double const want = q * parts.scales[size_t(n / group_rows * groups + k / group_cols)];
          double const got = reference::stored_value(BUNTING_Q8_0, blocks.data() + n * kCols / 32 * 34, k);
          // Integers keep their bits and lose only those of their scale; floats lose half a step of the
          // group's 127.
          double const allowed =
              number == BUNTING_NUMBER_SIGNED ? 128 * 0.02 / 2048 : 448 * 0.02 * (1 / 254.0 + 1 / 2048.0);
          CHECK(std::fabs(got - want) <= allowed, "number %d group of %d rows, row %d column %d: %g, not %g",
                number, int(group_rows), int(n), int(k), got, want);
        }
      }
    }
  }
}

TEST(quantised_mxfp4_keeps_its_bits) {
  Random random{3};
  Parts parts;
  for (int64_t i = 0; i < kRows * kCols / 2; i++) parts.integers.push_back(uint8_t(random.next()));
  // The file's scales are bytes here, at the place of the floats.
  std::vector<uint8_t> exponents;
  for (int64_t i = 0; i < kRows * kCols / 32; i++) exponents.push_back(uint8_t(110 + random.below(30)));
  parts.zeros = exponents;
  bunting_quantised const how{.layout = BUNTING_LAYOUT_ROWS,
                              .number = BUNTING_NUMBER_E2M1,
                              .bits = 4,
                              .zero_added = 0,
                              .group_rows = 1,
                              .group_cols = 32,
                              .scale_type = BUNTING_SCALE_E8M0,
                              .divided = 0,
                              .state_bytes = 0};
  std::string const paths = parts.paths(false, false);
  uint64_t const offsets[BUNTING_PARTS] = {0, parts.offsets()[2]};
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int64_t const step : {1, 2}) {  // all rows, or rows that alternate with another matrix's
    int64_t const rows = kRows / step;
    QuantisedMatrix const matrix(how, paths.data(), offsets, rows, kCols, step);
    CHECK(matrix.can_be(Dtype::mxfp4), "is MXFP4");
    std::vector<char> blocks(size_t(rows * kCols / 32 * 17));
    matrix.read(Dtype::mxfp4, 0, rows, blocks.data());
    for (int64_t n = 0; n < rows; n++)
      for (int64_t k = 0; k < kCols; k++) {
        int64_t const at = n * step * kCols + k;
        int const bits = parts.integers[size_t(at / 2)] >> (at % 2 * 4) & 15;
        double const want =
            (bits >= 8 ? -1 : 1) * kNumbers[bits % 8] * std::exp2(exponents[size_t(at / 32)] - 127);
        double const got = reference::stored_value(BUNTING_MXFP4, blocks.data() + n * kCols / 32 * 17, k);
        CHECK(got == want, "row %d column %d: %g, not %g", int(n), int(k), got, want);
      }
  }
}

TEST(quantised_nvfp4_keeps_levels_and_rounds_small_scales) {
  constexpr int64_t kWidth = 512;
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int const spread : {24, 126}) {  // steps of e4m3: up to eight times, or any
    Random random{uint64_t(spread)};
    Parts parts;
    for (int64_t i = 0; i < kRows * kWidth / 64; i++) {
      for (int j = 0; j < 4; j++) parts.integers.push_back(uint8_t(126 - random.below(spread)));
      for (int j = 0; j < 32; j++) parts.integers.push_back(uint8_t(random.next()));
    }
    parts.scales = {0.37f};  // the factor
    bunting_quantised const how{.layout = BUNTING_LAYOUT_NVFP4,
                                .number = BUNTING_NUMBER_E2M1,
                                .bits = 4,
                                .zero_added = 0,
                                .group_rows = 1,
                                .group_cols = 16,
                                .scale_type = BUNTING_SCALE_E4M3,
                                .divided = 0,
                                .state_bytes = 0};
    parts.paths(false, false);  // writes the file
    std::string const nul(1, '\0'),
        paths = parts.path + nul + nul + nul + nul + parts.path + std::string(5, '\0');
    uint64_t const offsets[BUNTING_PARTS] = {0, 0, 0, 0, parts.integers.size()};
    QuantisedMatrix const matrix(how, paths.data(), offsets, kRows, kWidth);
    CHECK(matrix.can_be(Dtype::nvfp4) && !matrix.can_be(Dtype::mxfp4), "is NVFP4");
    std::vector<char> blocks(size_t(kRows * kWidth / 256 * 146));
    matrix.read(Dtype::nvfp4, 0, kRows, blocks.data());
    auto const scale_at = [&](int64_t at) {
      int const bits = parts.integers[size_t(at / 64 * 36 + at % 64 / 16)];
      return bits < 8 ? bits / 512.0 : (8 + bits % 8) * std::exp2(bits / 8 - 10);
    };
    for (int64_t n = 0; n < kRows; n++)
      for (int64_t k = 0; k < kWidth; k++) {
        int64_t const at = n * kWidth + k, first = at / 256 * 256;
        int const byte = parts.integers[size_t(at / 64 * 36 + 4 + at % 64 / 16 * 8 + at % 8)];
        int const bits = byte >> (at % 16 / 8 * 4) & 15;
        double largest = 0;
        for (int64_t i = first; i < first + 256; i += 16) largest = std::max(largest, scale_at(i));
        double const number = (bits >= 8 ? -1 : 1) * kNumbers[bits % 8],
                     want = number * scale_at(at) * double(0.37f);
        double const rounded = spread > 24 ? std::fabs(number) * largest / 128 * double(0.37f) : 0;
        double const got = reference::stored_value(BUNTING_NVFP4, blocks.data() + n * kWidth / 256 * 146, k);
        CHECK(std::fabs(got - want) <= rounded + std::fabs(want) * 0x1p-10, "row %d column %d: %g, not %g",
              int(n), int(k), got, want);
      }
  }
}

TEST(quantised_matrices_that_cannot_be_are_refused) {
  Parts parts;
  parts.integers.resize(size_t(kRows * kCols));
  parts.scales.resize(size_t(kRows));
  std::string const paths = parts.paths(false, false);
  bunting_quantised const good{.layout = BUNTING_LAYOUT_ROWS,
                               .number = BUNTING_NUMBER_SIGNED,
                               .bits = 8,
                               .zero_added = 0,
                               .group_rows = 1,
                               .group_cols = kCols,
                               .scale_type = BUNTING_SCALE_F32,
                               .divided = 0,
                               .state_bytes = 0};
  auto const is_refused = [&](bunting_quantised const& how, int64_t cols) {
    try {
      QuantisedMatrix(how, paths.data(), parts.offsets().data(), kRows, cols);
      return false;
    } catch (Error const& error) {
      return error.status() == BUNTING_INVALID;
    }
  };
  auto const with = [&](auto const& change) {
    bunting_quantised how = good;
    change(how);
    return how;
  };
  CHECK(!is_refused(good, kCols), "the good one");
  CHECK(is_refused(good, kCols - 1), "columns that are no whole blocks");
  CHECK(is_refused(good, kCols * 64), "a part that leaves its file");
  CHECK(is_refused(with([](auto& how) { how.layout = 4; }), kCols), "a layout that is none");
  CHECK(is_refused(with([](auto& how) { how.layout = BUNTING_LAYOUT_NVFP4; }), kCols),
        "signed bytes in NVFP4");
  CHECK(is_refused(with([](auto& how) { how.number = BUNTING_NUMBER_LEVELS, how.bits = 4; }), kCols),
        "levels that are nowhere");
  CHECK(is_refused(with([](auto& how) { how.scale_type = BUNTING_SCALE_NESTED; }), kCols),
        "nested scales without their own");
  CHECK(is_refused(with([](auto& how) { how.bits = 3; }), kCols), "three bits");
  CHECK(is_refused(with([](auto& how) { how.layout = BUNTING_LAYOUT_GPTQ; }), kCols),
        "signed bytes in words");
  CHECK(is_refused(with([](auto& how) { how.group_cols = 0; }), kCols), "no groups");
  CHECK(is_refused(with([](auto& how) { how.scale_type = 6; }), kCols), "a scale of no type");
}

}  // namespace
}  // namespace bunting::test
