// tensor_file.h - the bytes of one tensor in a file, mapped read-only for as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace bunting {

class TensorFile {
 public:
  // Maps `count` elements at `offset`. The file's size is read anew here, whatever its header said:
  // BUNTING_INVALID if the range leaves it, BUNTING_IO if it cannot be opened or mapped. A file must not
  // shrink while it is mapped.
  TensorFile(char const* path, uint64_t offset, Dtype dtype, int64_t count);
  ~TensorFile();
  TensorFile(TensorFile const&) = delete;
  TensorFile& operator=(TensorFile const&) = delete;

  // Aligned to the element size: the mapping itself, or a copy where the file has the tensor at an odd
  // offset.
  void const* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  void const* data_ = nullptr;
  void* copy_ = nullptr;
};

}  // namespace bunting
