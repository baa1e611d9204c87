// row_stride.h - distance between the rows of a GEMM's inputs.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

// Stride in elements for rows of k elements, f32 or bf16. It is at least kp and an odd number of cache lines.
// Rows a multiple of 4 KB apart would lie in the same few sets of the L1 cache and evict each other.
constexpr int64_t row_stride(Dtype dtype, int64_t k) {
  int64_t const line = 64 / input_bytes(dtype);
  return (round_up(k, kKAlign) / line | 1) * line;
}

}  // namespace bunting
