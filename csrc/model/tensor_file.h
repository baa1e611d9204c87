// tensor_file.h - bytes of one tensor in a file, mapped read-only for the lifetime of the object.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bunting {

class TensorFile {
 public:
  // Maps bytes [offset, offset + bytes). Checks the file's current size, whatever its header says. Throws
  // BUNTING_INVALID if the range exceeds it, BUNTING_IO if the file cannot be opened or mapped. A file must
  // not shrink while it is mapped. `is_read_soon`: the system begins to read the bytes, and some after them.
  TensorFile(char const* path, uint64_t offset, uint64_t bytes, bool is_read_soon = true);
  ~TensorFile();
  TensorFile(TensorFile const&) = delete;
  TensorFile& operator=(TensorFile const&) = delete;

  // Start of the bytes, without any alignment.
  char const* data() const { return data_; }
  // Takes bytes that were read out of this process's memory. They stay in the system's file cache.
  void let_go(char const* from, uint64_t bytes) const;

 private:
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  char const* data_ = nullptr;
};

}  // namespace bunting
