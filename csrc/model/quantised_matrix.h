// quantised_matrix.h - matrices of quantised safetensors, whose integers, scales and zeros are separate
// tensors. It converts them to rows of blocks as in a GGUF file, which are then loaded like those.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/kernels/weight_format.h"
#include "include/engine.h"
#include "model/tensor_file.h"

namespace bunting {

class QuantisedMatrix {
 public:
  // Maps the tensors (bunting_model_load_quantised). Throws BUNTING_INVALID or BUNTING_IO. row_step is the
  // distance between rows of integers and of scales; 2 means that they alternate with rows of another matrix.
  // For is_read_soon see TensorFile.
  QuantisedMatrix(bunting_quantised const& how, char const* paths, uint64_t const* offsets, int64_t rows,
                  int64_t cols, int64_t row_step = 1, bool is_read_soon = true);

  // True if blocks of this type hold its numbers exactly, except that scales and minimums are rounded to f16.
  // q8 holds any numbers, rounded to its own integers if needed.
  bool can_be(Dtype type) const;
  // Writes rows [begin, end) as blocks of a type for which can_be() is true.
  void read(Dtype type, int64_t begin, int64_t end, char* to) const;

 private:
  enum Part { integers, scales, zeros, order, factor, levels, nested_scales, nested_levels, state, parts };
  static_assert(parts == BUNTING_PARTS);
  uint8_t const* bytes(Part part) const { return reinterpret_cast<uint8_t const*>(files_[part]->data()); }
  int64_t scale_row(int64_t n) const { return n * row_step_ / how_.group_rows; }
  int integer(int64_t n, int64_t k) const;
  int zero(int64_t n, int64_t group) const;
  double scale(int64_t n, int64_t group) const { return stored_scale(n, group) * factor_; }
  double stored_scale(int64_t n, int64_t group) const;
  // Returns the block of GGUF's NVFP4 with column k of row n.
  uint8_t const* block_of(int64_t n, int64_t k) const {
    return bytes(integers) + (n * row_step_ * cols_ + k) / 64 * 36;
  }
  int64_t group_of(int64_t k) const;
  double number(int64_t n, int64_t k) const;
  void read_block(Dtype type, int64_t n, int64_t first, char* to) const;
  void read_nvfp4(int64_t n, int64_t first, char* to) const;

  bunting_quantised how_;
  int64_t rows_, cols_, row_step_, groups_;
  double factor_ = 1, nested_offset_ = 0;
  std::unique_ptr<TensorFile> files_[parts];
};

}  // namespace bunting
