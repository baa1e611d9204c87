// Test of row_stride: rows are an odd number of cache lines apart, at least the GEMM's width and at most one
// line more.
#include <initializer_list>

#include "cpu/kernels/row_stride.h"
#include "tests/test.h"

namespace bunting::test {

TEST(rows_are_an_odd_number_of_cache_lines_apart) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    for (int64_t k = 1; k <= 5000; ++k) {
      int64_t const stride = row_stride(dtype, k), line = 64 / input_bytes(dtype),
                    least = round_up(k, kKAlign);
      CHECK(stride % line == 0 && stride / line % 2 == 1, "K=%d: %d elements", int(k), int(stride));
      CHECK(stride >= least && stride <= least + line, "K=%d: %d elements", int(k), int(stride));
    }
  }
}

}  // namespace bunting::test
