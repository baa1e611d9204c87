// stored_layout.h - the layout of one tensor in a file: its element type and the order of its rows.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/kernels/kernels.h"
#include "host/thread_pool.h"
#include "model/stored_type.h"
#include "model/tensor_kinds.h"

namespace bunting {

// The order of a tensor's rows in the file.
struct StoredRows {
  int64_t head_size = 1, rotated = 0;  // the first `rotated` rows of each head come in pairs
  int64_t step = 1;                    // 2: every second row is another tensor's
  int64_t run = 0, run_step = 0;       // run > 0: so many rows of the tensor in each run_step of the file

  int64_t source(int64_t row) const {
    if (run > 0) return row / run * run_step + row % run;
    int64_t const in_head = row % head_size, half = rotated / 2;
    return (in_head < rotated ? row - in_head + 2 * (in_head % half) + in_head / half : row) * step;
  }
};

struct StoredLayout {
  int32_t dtype = 0;  // without flags
  StoredType const* type = nullptr;
  bool is_paired = false, is_one_less = false, is_every_second = false, is_transposed = false;
  bool is_half_rows = false, is_grouped = false;
  bool is_vector = false;
  int64_t rows = 0, cols = 0;
  int64_t kv_heads = 1;
  StoredRows order;

  // Reads a type with the flags of engine.h, for a tensor of `model`.
  StoredLayout(int32_t dtype_and_flags, TensorTarget const& to, Model const& model, int32_t layer,
               bool is_layer_tensor);

  // Throws BUNTING_INVALID with a sentence that begins with `where` if no such tensor can be stored so.
  void validate(TensorKind const& kind, TensorTarget const& to, std::string const& where) const;
  // Bytes from the tensor's first number to its last.
  uint64_t bytes() const { return uint64_t(type->bytes_of(numbers())); }
  bool is_finite(char const* from, ThreadPool& pool) const;
  // Reads a vector.
  void read(char const* from, float* to) const;
  // Packs a matrix, its panels on all threads. Returns false if it has a number that is not finite.
  bool pack(Kernels const& kernels, PackedMatrix const& to, char const* from, ThreadPool& pool) const;

 private:
  int64_t numbers() const;
  bool is_packable(PackedMatrix const& to) const;
  void pack_rows(Kernels const& kernels, PackedMatrix const& to, char const* from, char* rows, int64_t begin,
                 int64_t end) const;
  void pack_columns(Kernels const& kernels, PackedMatrix const& to, char const* from, float* rows,
                    int64_t begin, int64_t end) const;
};

}  // namespace bunting
