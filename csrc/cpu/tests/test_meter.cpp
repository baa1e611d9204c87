// Tests of the meter: what it counts, not how fast the machine is.
#include <cmath>
#include <cstring>
#include <vector>

#include "boundary/error.h"
#include "cpu/meter.h"
#include "host/machine.h"
#include "tests/kv_test.h"

namespace bunting::test {
namespace {

constexpr double kSeconds = 0.001;

TEST(peak_loops_run_on_every_level) {
  for (Kernels const* kernels : levels())
    for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::q8})
      CHECK(kernels->peak(dtype) >= 1e6, "%s: %g operations", kernels->name, kernels->peak(dtype));
}

TEST(reading_adds_up_every_word) {
  constexpr size_t kBytes = 64 * 1024;
  Aligned<char> memory(kBytes);
  std::vector<uint64_t> words(kBytes / 8);
  uint64_t sum = 0;
  Random random{7};
  for (uint64_t& word : words) sum += word = random.next();
  std::memcpy(memory.data(), words.data(), kBytes);
  for (Kernels const* kernels : levels())
    CHECK(kernels->read(memory.data(), kBytes) == sum, "%s adds up something else", kernels->name);
}

TEST(meter_counts_a_matrix_by_its_numbers_and_bytes) {
  Meter meter(usable_isa(), 2);
  CHECK(meter.read(kSeconds) > 0 && meter.peak(Dtype::q8, kSeconds) > 0, "a ceiling is 0");
  for (Dtype dtype : {Dtype::bf16, Dtype::q8, Dtype::q4_k, Dtype::q6_k})
    for (int64_t rows : {1, 7, 100}) {
      PackedMatrix const w{.dtype = dtype, .n = 512, .k = 1024};
      auto const [operations, bytes] = meter.gemm(dtype, rows, w.n, w.k, kSeconds);
      double const want = double(w.bytes()) / (2.0 * double(rows) * double(w.n) * double(w.k));
      CHECK(operations > 0 && std::fabs(bytes / operations / want - 1) < 1e-6,
            "type %d, %lld rows: %g bytes per operation, not %g", int(dtype), (long long)rows,
            bytes / operations, want);
    }
}

TEST(meter_counts_attention_by_its_keys) {
  Meter meter(usable_isa(), 2);
  auto const decode = meter.attention(1, 1023, kSeconds);
  // A tile of a decode has the 4 query heads of a key head, each with 1,024 keys of 128 numbers.
  double const want = 1024 * 2 * 2.0 * 128 / (4.0 * 128 * 1024 * 4);
  CHECK(decode.operations > 0 && std::fabs(decode.bytes / decode.operations / want - 1) < 0.01,
        "%g bytes per operation, not %g", decode.bytes / decode.operations, want);
}

TEST(meter_refuses_what_does_not_fit_its_memory) {
  Meter meter(usable_isa(), 1);
  auto const refuses = [](auto const& measure) {
    try {
      measure();
    } catch (Error const& error) {
      return error.status() == BUNTING_INVALID;
    }
    return false;
  };
  CHECK(refuses([&] { meter.gemm(Dtype::bf16, 1, 1 << 20, 1 << 12, kSeconds); }), "a matrix of 8 GiB");
  CHECK(refuses([&] { meter.gemm(Dtype::bf16, 0, 16, 64, kSeconds); }), "no rows");
  CHECK(refuses([&] { meter.attention(1, 1 << 24, kSeconds); }), "more keys than memory");
}

}  // namespace
}  // namespace bunting::test
