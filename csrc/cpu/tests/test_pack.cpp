// Tests of pack and embed against plain loops, bit for bit, because both only move and round values.
#include <algorithm>
#include <cmath>

#include "cpu/tests/dense_test.h"

namespace bunting::test {
namespace {

// Returns a file's bytes: random bit patterns of finite values, so that subnormals, zeros of both signs and
// ties occur.
Bytes random_source(Random& random, Dtype dtype, int64_t count, int64_t offset) {
  Bytes out(offset + count * bytes_of(dtype));
  for (int64_t i = 0; i < count; ++i) {
    char* at = out.data.get() + offset + i * bytes_of(dtype);
    if (dtype == Dtype::f32) {
      // Half of them are exactly between two bf16 values.
      uint32_t bits = uint32_t(random.next());
      if (random.below(2) == 0) bits = (bits & 0xffff0000u) | 0x8000u;
      if ((bits >> 23 & 255) == 255) bits &= 0xff7fffffu & ~(1u << 30);
      std::memcpy(at, &bits, 4);
    } else {
      uint16_t bits = uint16_t(random.next());
      uint16_t const exponent = dtype == Dtype::f16 ? 0x7c00 : 0x7f80;
      if ((bits & exponent) == exponent) bits = uint16_t(bits & ~0x4000);
      std::memcpy(at, &bits, 2);
    }
  }
  return out;
}

}  // namespace

TEST(pack_matches_reference) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    for (Dtype source : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      for (int64_t n : {0, 1, 15, 16, 17, 33, 100}) {
        for (int64_t k : {1, 2, 31, 32, 33, 63, 64, 65, 200}) {
          Random random{uint64_t(n * 1000 + k)};
          Bytes const src = random_source(random, source, n * k, 3);  // files do not align their tensors
          PackedMatrix want{.dtype = dtype, .n = n, .k = k}, got = want;
          Bytes want_bytes(int64_t(want.bytes()));
          want.data = want_bytes.data.get();
          reference::pack(want, src.data.get() + 3, source);
          for (Kernels const* kernels : dense_levels()) {
            Bytes got_bytes(int64_t(got.bytes()));
            got.data = got_bytes.data.get();
            int64_t const middle = got.panels() / 2;
            kernels->pack(got, src.data.get() + 3, source, middle, got.panels());
            kernels->pack(got, src.data.get() + 3, source, 0, middle);
            CHECK(std::memcmp(got.data, want.data, want.bytes()) == 0, "%s %s from %s N=%d K=%d",
                  kernels->name, name_of(dtype), name_of(source), int(n), int(k));
          }
        }
      }
    }
  }
}

TEST(pack_keeps_not_a_number) {
  for (Dtype source : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    uint32_t const patterns[] = {0x7f800001u, 0x7fffffffu, 0xffffffffu};
    uint16_t const halves[] = {uint16_t(source == Dtype::f16 ? 0x7c01 : 0x7f81), 0x7fff, 0xffff};
    for (Kernels const* kernels : dense_levels()) {
      PackedMatrix w{.dtype = Dtype::bf16, .n = 1, .k = 3};
      Bytes bytes(int64_t(w.bytes()));
      w.data = bytes.data.get();
      kernels->pack(w, source == Dtype::f32 ? static_cast<void const*>(patterns) : halves, source, 0, 1);
      for (int64_t k = 0; k < 3; ++k)
        CHECK(std::isnan(reference::weight(w, 0, k)), "%s from %s, pattern %d", kernels->name,
              name_of(source), int(k));
    }
  }
}

TEST(embed_matches_reference) {
  for (Dtype const type : kWeightTypes) {
    for (int64_t const width : {1, 16, 33, 100}) {
      Random random{uint64_t(width)};
      Weights const table(random, type, 100, width);
      int64_t const hidden = table.matrix.k;
      std::vector<int32_t> const ids = {0, 15, 16, 99, 99, 1, 47};
      int64_t const tokens = int64_t(ids.size()), ldx = hidden + 5;
      std::vector<double> want(size_t(tokens * ldx), NAN);
      reference::embed(want.data(), ldx, table.matrix, ids.data(), tokens);
      for (Kernels const* kernels : dense_levels()) {
        std::vector<float> got(size_t(tokens * ldx), NAN);
        kernels->embed(got.data(), ldx, table.matrix, ids.data(), 3, tokens);
        kernels->embed(got.data(), ldx, table.matrix, ids.data(), 0, 3);
        for (size_t i = 0; i < got.size(); ++i)
          CHECK(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])),
                "%s %s H=%d at %d: %g, not %g", kernels->name, name_of(type), int(hidden), int(i), got[i],
                want[i]);
      }
    }
  }
}

}  // namespace bunting::test
