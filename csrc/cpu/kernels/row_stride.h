// row_stride.h - how far apart the rows of a GEMM's inputs should lie.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

// Elements from one row of k elements to the next, f32 or bf16, kp of them and more: an odd number of cache
// lines. Rows a multiple of 4 KB apart lie in the same few sets of the L1 cache and evict each other: with 16
// rows of 2,048 bf16 the product takes 1.8 times as long.
constexpr int64_t row_stride(Dtype dtype, int64_t k) {
  int64_t const line = 64 / input_bytes(dtype);
  return (round_up(k, kKAlign) / line | 1) * line;
}

}  // namespace bunting
