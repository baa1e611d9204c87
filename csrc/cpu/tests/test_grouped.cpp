// Tests of weights and activations in groups of integers: against plain loops, bit for bit, and as close to
// the original numbers as their bits allow.
#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu/tests/dense_test.h"
#include "reference/stored_type.h"

namespace bunting::test {
namespace {

std::vector<Dtype> rounded_types() {
  std::vector<Dtype> types;
  for (Dtype const dtype : kGroupedFormats)
    if (is_rounded_to(dtype)) types.push_back(dtype);
  return types;
}

// Returns groups of very different sizes: some are zero, some have ties between two integers.
std::vector<float> varied_numbers(Random& random, int64_t count) {
  std::vector<float> numbers(size_t(count), 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    int const kind = int((i / kGroup) % 6);
    float const size = std::ldexp(1.0f, kind * 12 - 40);
    if (kind == 3)
      numbers[size_t(i)] = float(random.below(255) - 127) / 2 + (i % kGroup == 0 ? 127.0f : 0.0f);
    else if (kind != 4)
      numbers[size_t(i)] = size * random.uniform(-1, 1);
  }
  return numbers;
}

}  // namespace

TEST(pack_grouped_matches_reference) {
  for (Dtype dtype : rounded_types()) {
    for (Dtype source : {Dtype::f32, Dtype::f16, Dtype::bf16, dtype}) {
      bool const is_stored = source == dtype;
      for (int64_t n : {1, 16, 35}) {
        for (int64_t k : {1, 31, 32, 64, 96, 200, 416}) {
          if (is_stored && (k % kGroup != 0 || weight_group(dtype) != kGroup)) continue;
          Random random{uint64_t(n * 1000 + k)};
          // Blocks may hold any bits; another test compares the values of their numbers.
          int64_t const bytes =
              is_stored ? n * k / kGroup * stored_block_bytes(dtype) : n * k * bytes_of(source);
          Bytes src(3 + bytes);
          char* const at = src.data.get() + 3;
          std::vector<float> const numbers = varied_numbers(random, n * k);
          for (int64_t i = 0; i < bytes; ++i) at[i] = char(random.next());
          for (int64_t i = 0; i < n * k && !is_stored; ++i) {
            if (source == Dtype::f32) std::memcpy(at + i * 4, &numbers[size_t(i)], 4);
            uint16_t half = source == Dtype::bf16 ? reference::narrow(numbers[size_t(i)])
                                                  : uint16_t(random.next() & 0xbbff);
            if (source != Dtype::f32) std::memcpy(at + i * 2, &half, 2);
          }
          for (int64_t i = 0; i < bytes && is_stored; i += stored_block_bytes(dtype))
            at[i + 1] &= char(0xbb);  // makes the scale finite
          PackedMatrix want{.dtype = dtype, .n = n, .k = k}, got = want;
          Bytes want_bytes(int64_t(want.bytes()));
          want.data = want_bytes.data.get();
          reference::pack(want, at, source);
          for (Kernels const* kernels : dense_levels()) {
            Bytes got_bytes(int64_t(got.bytes()));
            got.data = got_bytes.data.get();
            int64_t const middle = got.panels() / 2;
            kernels->pack(got, at, source, middle, got.panels());
            kernels->pack(got, at, source, 0, middle);
            CHECK(std::memcmp(got.data, want.data, want.bytes()) == 0, "%s %s from %s N=%d K=%d",
                  kernels->name, name_of(dtype), name_of(source), int(n), int(k));
          }
        }
      }
    }
  }
}

TEST(pack_of_stored_blocks_matches_reference) {
  for (Dtype const dtype : kGroupedFormats) {
    int64_t const length = stored_block_length(dtype), size = stored_block_bytes(dtype);
    if (size == 0) continue;
    for (int64_t n : {1, 16, 35}) {
      for (int64_t k : {length, 3 * length, 7 * length}) {
        Random random{uint64_t(n * 1000 + k)};
        Bytes const src = random_blocks(random, dtype, n, k);
        PackedMatrix want{.dtype = dtype, .n = n, .k = k}, got = want;
        Bytes want_bytes(int64_t(want.bytes()));
        want.data = want_bytes.data.get();
        reference::pack(want, src.data.get(), dtype);
        for (int64_t row = 0; row < n; ++row)
          for (int64_t i = 0; i < k; ++i) {
            float const stored =
                reference::stored_value(int32_t(dtype), src.data.get() + row * k / length * size, i);
            CHECK(float(reference::weight(want, row, i)) == stored, "%s row %d number %d", name_of(dtype),
                  int(row), int(i));
          }
        for (Kernels const* kernels : dense_levels()) {
          Bytes got_bytes(int64_t(got.bytes()));
          got.data = got_bytes.data.get();
          int64_t const middle = got.panels() / 2;
          kernels->pack(got, src.data.get(), dtype, middle, got.panels());
          kernels->pack(got, src.data.get(), dtype, 0, middle);
          CHECK(std::memcmp(got.data, want.data, want.bytes()) == 0, "%s %s N=%d K=%d", kernels->name,
                name_of(dtype), int(n), int(k));
        }
      }
    }
  }
}

// Memory bound of a format (block_formats.h): a matrix uses at most 6 % more memory than its file.
TEST(stored_blocks_take_little_more_in_memory) {
  for (Dtype const dtype : kGroupedFormats) {
    int64_t const size = stored_block_bytes(dtype);
    if (size == 0) continue;
    PackedMatrix const w{.dtype = dtype, .n = 2048, .k = 2048};
    double const ratio = double(w.bytes()) / double(w.n * w.k / stored_block_length(dtype) * size);
    CHECK(ratio >= 1 && ratio <= 1.06, "%s takes %g times its file", name_of(dtype), ratio);
  }
}

// Every weight is within half a step of its number, except at the ends of the range. The search of q4 leaves
// a smaller error than rounding by the largest number alone.
TEST(grouped_weights_are_near_their_numbers) {
  Random random{3};
  double searched = 0, plain = 0;
  for (int round = 0; round < 200; ++round) {
    float values[kGroupMax], largest = 0;
    for (float& value : values) value = random.uniform(-1, 1) * random.uniform(0, 1) * random.uniform(0, 1);
    int8_t q[kGroupMax];
    double scale;
    for (Dtype dtype : {Dtype::q8, Dtype::q8_128, Dtype::q6, Dtype::q5_0}) {
      reference::round_group(dtype, values, q, &scale);
      for (int i = 0; i < weight_group(dtype); ++i)
        CHECK(std::fabs(scale * q[i] - values[i]) <= 0.501 * std::fabs(scale) + 0.0005, "%s of %g: %g",
              name_of(dtype), values[i], scale * q[i]);
    }
    reference::round_group(Dtype::q4, values, q, &scale);
    for (int i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(values[i]));
    for (int i = 0; i < kGroup; ++i) {
      CHECK(q[i] >= -8 && q[i] <= 7, "q4: %d", q[i]);
      searched += std::pow(scale * q[i] - values[i], 2);
      float const step = largest / 7;
      plain += std::pow(step * std::round(values[i] / step) - values[i], 2);
    }
  }
  CHECK(searched < 0.85 * plain, "squared error %g, by the largest number alone %g", searched, plain);
}

TEST(grouped_weights_that_are_no_numbers) {
  for (Dtype dtype : rounded_types()) {
    for (float const bad : {float(NAN), float(INFINITY), -float(INFINITY)}) {
      constexpr int64_t kK = 320;
      std::vector<float> values(16 * kK, 0.5f);
      values[3 * kK + 140] = bad;
      for (Kernels const* kernels : dense_levels()) {
        PackedMatrix w{.dtype = dtype, .n = 16, .k = kK};
        Bytes bytes(int64_t(w.bytes()));
        w.data = bytes.data.get();
        kernels->pack(w, values.data(), Dtype::f32, 0, 1);
        for (int64_t n = 0; n < 16; ++n)
          for (int64_t k = 0; k < kK; ++k)
            CHECK(std::isnan(reference::weight(w, n, k)) == (n == 3 && k / w.group() == 140 / w.group()),
                  "%s %s column %d k %d", kernels->name, name_of(dtype), int(n), int(k));
      }
    }
  }
}

TEST(quantise_matches_reference) {
  for (auto const& [dtype, weights] :
       {std::pair(Dtype::f32, Dtype::q8), std::pair(Dtype::bf16, Dtype::q8),
        std::pair(Dtype::f32, Dtype::q8_128), std::pair(Dtype::bf16, Dtype::q6),
        std::pair(Dtype::f32, Dtype::q4), std::pair(Dtype::bf16, Dtype::q4),
        std::pair(Dtype::f32, Dtype::q4_k), std::pair(Dtype::bf16, Dtype::q6_k),
        std::pair(Dtype::f32, Dtype::q2_k), std::pair(Dtype::bf16, Dtype::iq4_xs)}) {
    for (int64_t k : {1, 32, 40, 64, 200, 416}) {
      constexpr int64_t kTokens = 5;
      Random random{uint64_t(k)};
      int64_t const ldx = round_up(k, kGroup) + 16, ldto = round_up(k, 64) / kGroup + 1;
      std::vector<float> const numbers = varied_numbers(random, kTokens * k);
      Bytes x(kTokens * ldx * bytes_of(dtype));
      for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t i = 0; i < ldx; ++i) {
          float value = i < k ? numbers[size_t(t * k + i)] : 0.0f;
          if (t == 1 && i < k && i % 50 == 7) value = value * 1000 + 5;  // outliers, of several sizes
          if (t == 4 && i < k && i % 37 == 3) value = (value + 1) * float(i % 5 + 1) * 100;
          if (t == 2 && i == 0) value = INFINITY;
          if (t == 3 && i == k / 2) value = dtype == Dtype::f32 ? float(NAN) : -float(INFINITY);
          reference::put(dtype, x.data.get(), size_t(t * ldx + i), value);
        }
      Bytes want(kTokens * ldto * int64_t(sizeof(InputGroup)));
      reference::quantise({want.data.get(), ldto, weights}, x.data.get(), dtype, ldx, k, kTokens);
      for (Kernels const* kernels : dense_levels()) {
        Bytes got(int64_t(want.size));
        auto* const groups = reinterpret_cast<InputGroup*>(got.data.get());
        Operand const to{groups, ldto, weights};
        kernels->quantise(to, x.data.get(), dtype, ldx, k, 2, kTokens);
        kernels->quantise(to, x.data.get(), dtype, ldx, k, 0, 2);
        CHECK(std::memcmp(got.data.get(), want.data.get(), want.size) == 0, "%s from %s for %s K=%d",
              kernels->name, name_of(dtype), name_of(weights), int(k));
        CHECK(std::isnan(groups[2 * ldto].scale) && std::isnan(groups[3 * ldto + k / 2 / kGroup].scale),
              "%s from %s for %s K=%d: a number that is none is lost", kernels->name, name_of(dtype),
              name_of(weights), int(k));
        for (Dtype const plain : {Dtype::f32, Dtype::bf16}) {
          int64_t const ld = round_up(k, kKAlign) + 32;
          Bytes back(kTokens * ld * bytes_of(plain));
          std::memset(back.data.get(), 0xff, back.size);
          kernels->dequantise({back.data.get(), ld, plain}, groups, ldto, k, 1, kTokens);
          kernels->dequantise({back.data.get(), ld, plain}, groups, ldto, k, 0, 1);
          for (int64_t t = 0; t < kTokens; ++t)
            for (int64_t i = 0; i < ld; ++i) {
              InputGroup const& group = groups[t * ldto + std::min(i, k - 1) / kGroup];
              bool const is_outlier = group.outlier != 0 && group.outlier_at == i % kGroup;
              float const value = is_outlier ? group.outlier : group.scale * float(group.q[i % kGroup]);
              float const wanted = i < k ? value : 0.0f;
              float const found = float(reference::get(plain, back.data.get(), size_t(t * ld + i)));
              float const error = plain == Dtype::f32 ? 0 : std::fabs(wanted) / 256;
              CHECK(std::isnan(wanted) ? std::isnan(found) : std::fabs(found - wanted) <= error,
                    "%s from %s to %s K=%d: row %d number %d is %g, not %g", kernels->name, name_of(weights),
                    name_of(plain), int(k), int(t), int(i), double(found), double(wanted));
            }
        }
      }
    }
  }
}

}  // namespace bunting::test
