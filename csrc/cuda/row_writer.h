// row_writer.h - a row of packed weights in the order in which the GPU's kernels read it (quantise.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {

// Returns the device format of a packed matrix.
Format format_of(Dtype dtype, bool as_fp8);

// Writes rows for one thread, with its buffers for one row. csrc/cpu/kernels/kernels.h describes the packed
// order.
class RowWriter {
 public:
  // Writes row_bytes() and row_scale_bytes().
  void write(PackedMatrix const& from, int64_t row, Format format, void* to, void* to_scales);

  bool is_finite() const { return is_finite_; }  // true while all numbers rounded to fp8 were finite

  // Bytes of the buffers, and their most for rows of `width` padded numbers.
  size_t bytes() const;
  static size_t bytes_max(int64_t width);

 private:
  void read_groups(PackedMatrix const& from, int64_t row);
  float value_of(PackedMatrix const& from, int64_t k) const;

  bool is_finite_ = true;
  std::vector<int8_t> q_;
  std::vector<uint16_t> scales_;  // one per group
  std::vector<float> values_;
};

}  // namespace bunting::cuda
