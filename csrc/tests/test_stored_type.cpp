// Tests of stored types against formulas that read one number at a time, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "include/engine.h"
#include "model/stored_type.h"
#include "reference/stored_type.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

// Returns the types of plain numbers and of blocks.
std::vector<Dtype> file_types() {
  std::vector<Dtype> types;
  for (WeightFormat const& format : kFormats)
    if (format.file.bytes > 0) types.push_back(format.type);
  return types;
}

bool same(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

TEST(stored_types_match_reference) {
  for (Dtype const dtype : file_types()) {
    int32_t const type = int32_t(dtype);
    StoredType const& stored = *stored_type(type);
    for (uint64_t seed = 0; seed < 20; seed++) {
      Random random{seed * 1000 + uint64_t(type)};
      int64_t const blocks = 1 + random.below(5), count = blocks * stored.block;
      // Bytes are random, at an odd address: infinities, NaN and subnormal scales are among them.
      std::vector<char> bytes(size_t(stored.bytes_of(count)) + 1);
      for (char& byte : bytes) byte = char(random.next());
      std::vector<float> got(size_t(count), -1.0f);
      stored.decode(bytes.data() + 1, blocks, got.data());
      for (int64_t i = 0; i < count; i++) {
        float const want = reference::stored_value(type, bytes.data() + 1, i);
        CHECK(same(got[size_t(i)], want), "%s, seed %d, number %d: %g, not %g", stored.name, int(seed),
              int(i), double(got[size_t(i)]), double(want));
      }
    }
  }
}

TEST(stored_types_tell_blocks_that_are_no_numbers) {
  std::vector<int32_t> types;
  for (Dtype const dtype : file_types()) types.push_back(int32_t(dtype));
  for (int32_t of_codebook = 30; of_codebook <= 36; of_codebook++) types.push_back(of_codebook);
  for (int32_t const type : types) {
    StoredType const& stored = *stored_type(type);
    for (uint64_t seed = 0; seed < 200; seed++) {
      Random random{seed * 1000 + uint64_t(type)};
      std::vector<char> bytes(size_t(stored.bytes_of(stored.block)));
      for (char& byte : bytes) byte = char(random.next());
      if (seed % 2) std::fill(bytes.begin(), bytes.end(), char(random.below(2) ? 0xff : 0x3f));
      std::vector<float> numbers(size_t(stored.block));
      stored.decode(bytes.data(), 1, numbers.data());
      bool is_finite = std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
      if (weight_format(Dtype(type)).scales == Scales::exponent)
        is_finite = bytes[size_t(weight_format(Dtype(type)).file.scale.at)] != char(0xff);
      CHECK(stored.is_finite(bytes.data(), 1) == is_finite, "%s, seed %d", stored.name, int(seed));
    }
  }
}

TEST(stored_q4_0_is_the_same_numbers_in_q8_0) {
  Random random{5};
  constexpr int64_t kBlocks = 40, kCount = 32 * kBlocks;
  std::vector<char> narrow(size_t(kBlocks) * 18), wide(size_t(kBlocks) * 34);
  for (char& byte : narrow) byte = char(random.next());
  widen_q4_0(narrow.data(), kBlocks, wide.data());
  for (int64_t i = 0; i < kCount; i++) {
    float const want = reference::stored_value(BUNTING_Q4_0, narrow.data(), i);
    float const got = reference::stored_value(BUNTING_Q8_0, wide.data(), i);
    CHECK(same(got, want), "number %d: %g, not %g", int(i), double(got), double(want));
  }
}

// Bounds the memory of blocks. K is a multiple of a block's length, so a panel's header only adds its padding
// to whole lines.
TEST(blocks_take_a_tenth_more_memory_than_in_a_file_at_most) {
  for (Dtype const dtype : file_types()) {
    if (!is_grouped(dtype)) continue;
    PackedMatrix const packed{.dtype = dtype, .n = kPanel, .k = 8 * kSuper};
    int64_t const in_file = stored_type(int32_t(dtype))->bytes_of(packed.n * packed.k);
    CHECK(int64_t(packed.bytes()) * 10 <= in_file * 11, "%s: %d bytes, %d in a file",
          weight_format(dtype).name, int(packed.bytes()), int(in_file));
  }
}

TEST(formats_have_numbers_of_their_own) {
  for (WeightFormat const& a : kFormats)
    for (WeightFormat const& b : kFormats) {
      if (&a == &b) continue;
      CHECK(a.type != b.type, "%s and %s are both number %d", a.name, b.name, int(a.type));
      CHECK(a.file.bytes == 0 || b.file.bytes == 0 || a.file.type != b.file.type,
            "%s and %s are both type %d in files", a.name, b.name, a.file.type);
    }
  for (WeightFormat const& format : kFormats)
    CHECK(int(format.type) < 30 || int(format.type) > 36, "%s has the number of a code book", format.name);
}

TEST(stored_types_are_known_by_number) {
  for (int32_t const type : {-1, 3, 15, 21, 38, 64, 65, 256, 272})
    CHECK(stored_type(type) == nullptr, "type %d", type);
  CHECK(stored_type(int32_t(Dtype::q6_k))->bytes_of(512) == 420, "two blocks of Q6_K");
}

}  // namespace
}  // namespace bunting::test
