#include "model/tensor_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "boundary/error.h"

namespace bunting {

namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

// Bytes to read ahead of a tensor: files mostly store tensors in the order in which they are loaded.
constexpr uint64_t kAheadBytes = uint64_t(64) << 20;

int open_for_reading(char const* path) {
  int number;
  do number = open(path, O_RDONLY | O_CLOEXEC);
  while (number < 0 && errno == EINTR);
  return number;
}

}  // namespace

TensorFile::TensorFile(char const* path, uint64_t offset, uint64_t bytes,
                       [[maybe_unused]] bool is_read_soon) {
  Descriptor const file{open_for_reading(path)};
  if (file.number < 0) fail(BUNTING_IO, "%s: cannot be opened: %s", path, std::strerror(errno));
  struct stat status;
  if (fstat(file.number, &status) != 0) fail(BUNTING_IO, "%s: %s", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(BUNTING_IO, "%s: not a regular file", path);
  uint64_t const file_bytes = uint64_t(status.st_size);
  if (offset > file_bytes || bytes > file_bytes - offset)
    fail(BUNTING_INVALID, "%s: bytes [%llu, +%llu) leave the file of %llu bytes", path,
         (unsigned long long)offset, (unsigned long long)bytes, (unsigned long long)file_bytes);

  uint64_t const os_page = uint64_t(sysconf(_SC_PAGESIZE));
  uint64_t const begin = offset / os_page * os_page;
  mapping_bytes_ = size_t(offset + bytes - begin);
  void* const mapping = mmap(nullptr, mapping_bytes_, PROT_READ, MAP_PRIVATE, file.number, off_t(begin));
  if (mapping == MAP_FAILED) fail(BUNTING_IO, "%s: cannot be mapped: %s", path, std::strerror(errno));
  mapping_ = mapping;
#ifdef POSIX_FADV_WILLNEED
  if (is_read_soon)
    posix_fadvise(file.number, off_t(begin), off_t(mapping_bytes_ + kAheadBytes),
                  POSIX_FADV_WILLNEED);  // a hint
#endif

  data_ = static_cast<char const*>(mapping_) + (offset - begin);
}

TensorFile::~TensorFile() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

void TensorFile::let_go(char const* from, uint64_t bytes) const {
  uintptr_t const os_page = uintptr_t(sysconf(_SC_PAGESIZE)), start = reinterpret_cast<uintptr_t>(from);
  uintptr_t const begin = (start + os_page - 1) / os_page * os_page,
                  end = (start + bytes) / os_page * os_page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // a hint
}

}  // namespace bunting
