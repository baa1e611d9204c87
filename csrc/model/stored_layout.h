// stored_layout.h - the layout of one tensor in a file: its element type and the order of its rows.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/kernels/kernels.h"
#include "model/stored_type.h"
#include "model/tensor_kinds.h"

namespace bunting {

// The order of a tensor's rows in the file.
struct StoredRows {
  // `rotated` rows of each head come in pairs, those behind the first `unrotated` ones.
  int64_t head_size = 1, rotated = 0, unrotated = 0;
  int64_t step = 1;     // 2: every second row is another tensor's
  int64_t repeats = 1;  // rows of the tensor that share one row of the file
  // run > 0: so many rows of the tensor in each run_step of the file, behind its first run_first.
  int64_t run = 0, run_step = 0, run_first = 0;

  int64_t source(int64_t row) const {
    if (repeats > 1) return row / repeats;
    if (run > 0) return row / run * run_step + run_first + row % run;
    int64_t const in_head = row % head_size - unrotated, half = rotated / 2;
    return (in_head >= 0 && in_head < rotated ? row - in_head + 2 * (in_head % half) + in_head / half : row) *
           step;
  }
};

struct StoredLayout {
  int32_t dtype = 0;  // without flags
  StoredType const* type = nullptr;
  bool is_paired = false, is_one_less = false, is_every_second = false, is_transposed = false;
  bool is_half_rows = false, is_grouped = false, is_gated = false, is_negated_exp = false;
  bool is_row_per_head = false;
  bool is_with_values = false;  // keys and values of latents are in one matrix
  int64_t turned = 0;           // > 0: columns of the file are rows of the tensor, so many per head
  bool is_vector = false;
  int64_t rows = 0, cols = 0;
  int64_t runs = 1, heads = 1;  // runs: with is_grouped or is_gated
  StoredRows order;

  // Reads a type with the flags of engine.h, for a tensor of `model`.
  StoredLayout(int32_t dtype_and_flags, TensorKind const& kind, TensorTarget const& to, Model const& model,
               int32_t layer);

  // Throws BUNTING_INVALID with a sentence that begins with `where` if no such tensor can be stored so.
  void validate(TensorKind const& kind, TensorTarget const& to, std::string const& where) const;
  // Bytes from the tensor's first number to its last.
  uint64_t bytes() const { return uint64_t(type->bytes_of(numbers())); }
  // Shape of the matrix in the file that has the tensor's rows.
  int64_t stored_rows() const { return is_with_values ? heads * order.run_step : rows / order.repeats; }
  int64_t stored_cols() const { return turned > 0 ? turned : cols; }
  // Bytes of a row, which `order` and `from` of the functions below count in.
  int64_t row_bytes() const { return type->bytes_of(stored_cols()); }
  // True if a matrix has its rows in the file as they are in memory, one after the other.
  bool is_in_order() const {
    return order.rotated == 0 && !is_every_second && !is_transposed && !is_in_runs() && !is_with_values &&
           !is_row_per_head;
  }
  // True if rows of other tensors lie between those of this one.
  bool is_in_runs() const { return is_grouped || is_gated; }
  // Reads a vector. Returns false if one of the file's numbers is not finite.
  bool read(char const* from, float* to) const;
  // Packs stored rows into `to`, a matrix of one panel, which has as many. `converted` is room for kPanel
  // rows in f32. Returns false if a number is not finite.
  bool pack(Kernels const& kernels, PackedMatrix const& to, char const* rows, char* converted,
            float factor) const;
  // Packs panel `panel` of a file that has columns where the matrix has rows.
  bool pack_columns(Kernels const& kernels, PackedMatrix const& to, int64_t panel, char const* from,
                    float* converted) const;
  // Packs panel `panel` of a turned tensor. `row_of` returns a row of the file.
  template <typename RowOf>
  bool pack_turned(Kernels const& kernels, PackedMatrix const& to, int64_t panel, RowOf const& row_of,
                   float* converted) const {
    int64_t const head = panel * kPanel / turned, first = panel * kPanel % turned;
    for (int64_t k = 0; k < cols; k++)
      if (!copy_columns(row_of(head * order.run_step + k), first, to.n, converted + k)) return false;
    kernels.pack(to, converted, Dtype::f32, 0, 1);
    return true;
  }

 private:
  bool copy_columns(char const* row, int64_t first, int64_t count, float* to) const;
  int64_t numbers() const;
};

}  // namespace bunting
