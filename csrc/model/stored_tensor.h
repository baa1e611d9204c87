// stored_tensor.h - a tensor in its files: checked when it is described, read and packed panel by panel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/quantised_matrix.h"
#include "model/stored_layout.h"
#include "model/tensor_file.h"
#include "model/tensor_kinds.h"

namespace bunting {

// Places of the parts of a quantised matrix (bunting_model_load_quantised).
struct QuantisedSource {
  bunting_quantised how;
  std::string paths;  // BUNTING_PARTS of them, each ended by a NUL
  uint64_t offsets[BUNTING_PARTS];
  int64_t row_step;  // 2: rows alternate with those of another matrix
};

struct StoredTensor {
  std::string path, name;
  uint64_t offset;
  TensorTarget to;
  StoredLayout layout;
  std::optional<QuantisedSource> quantised;
  float divisor = 1;         // of a vector's numbers
  float factor = 1;          // of all numbers
  bool negates_exp = false;  // a vector's numbers x become -exp(x)

  // Numbers of a vector or table.
  int64_t numbers() const { return to.rows * to.cols; }
  // Throws BUNTING_INVALID or BUNTING_IO unless the files have all bytes of the tensor.
  void check_files() const;
};

// Work memory of a thread that packs panels.
struct PanelScratch {
  std::vector<char> stored, converted;
  size_t bytes() const { return stored.capacity() + converted.capacity(); }
  // Bytes of the panels of a matrix at most, whatever its stored type.
  static size_t bytes_max(int64_t cols) { return size_t(2 * kPanel * cols) * sizeof(float); }
};

// Reads a tensor from its files, which stay mapped for the lifetime of the object.
class TensorReader {
 public:
  // The tensor must outlive the reader. Throws as check_files() does.
  explicit TensorReader(StoredTensor const& tensor);

  // The next two return false if a number is not finite. Several threads may call them.
  // Packs panel `panel` of a matrix to `to`, which has room for it.
  bool pack(Kernels const& kernels, int64_t panel, char* to, PanelScratch& scratch) const;
  // Copies a row. has_rows_of_bf16() must be true.
  bool copy_bf16(int64_t row, void* to) const;
  bool has_rows_of_bf16() const;
  // Reads a vector or table. Throws BUNTING_INVALID if a number is not finite.
  void read(float* to) const;

  // Takes panels that were read out of this process's memory, if they are together in the file. Other tensors
  // leave it with this object.
  void let_go(int64_t panel, int64_t panels) const;
  [[noreturn]] void refuse() const;  // throws BUNTING_INVALID for a number that is not finite

  StoredTensor const& tensor() const { return tensor_; }

 private:
  StoredTensor const& tensor_;
  std::optional<TensorFile> file_;
  std::optional<QuantisedMatrix> quantised_;
};

}  // namespace bunting
