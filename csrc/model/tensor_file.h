// tensor_file.h - the bytes of one tensor in a file, mapped read-only for as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bunting {

class TensorFile {
 public:
  // Maps bytes [offset, offset + bytes). The file's size is read anew here, whatever its header said:
  // BUNTING_INVALID if the range leaves it, BUNTING_IO if it cannot be opened or mapped. A file must not
  // shrink while it is mapped.
  TensorFile(char const* path, uint64_t offset, uint64_t bytes);
  ~TensorFile();
  TensorFile(TensorFile const&) = delete;
  TensorFile& operator=(TensorFile const&) = delete;

  // Not aligned to anything.
  char const* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  char const* data_ = nullptr;
};

}  // namespace bunting
