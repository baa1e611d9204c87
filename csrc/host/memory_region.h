// memory_region.h - one large zeroed allocation, divided by a Carver.
//
// Weights, pages and workspaces are each one anonymous mapping, aligned to 2 MiB. They advise huge pages,
// because small pages cost memory bandwidth. The system assigns physical memory at the first touch. A region
// may map a file instead, and then uses the system's file cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace bunting {

inline constexpr size_t kHugePage = size_t(2) << 20;

class MemoryRegion {
 public:
  MemoryRegion() = default;
  // Throws BUNTING_NO_MEMORY naming `what` and the size. Zero bytes are legal.
  MemoryRegion(size_t bytes, char const* what);
  // Reserves addresses alone: an access ends the process until back_by_memory() or map_file().
  static MemoryRegion of_addresses(size_t bytes, char const* what);
  ~MemoryRegion();
  MemoryRegion(MemoryRegion&& other) noexcept { swap(other); }
  MemoryRegion& operator=(MemoryRegion&& other) noexcept {
    swap(other);
    return *this;
  }

  // Maps `bytes` of a file from `offset` on at the beginning of the region, read-only; both are whole pages.
  // If `offset` is a multiple of huge pages, the system can map large pages of its file cache directly.
  // Returns false if the file cannot be mapped.
  bool map_file(int file, int64_t offset, size_t bytes);
  // Replaces those bytes by writable zeros.
  void unmap_file(size_t bytes);

  // Allows accesses to `bytes` from `offset` on, and to the rest of their pages. Throws BUNTING_NO_MEMORY.
  void back_by_memory(size_t offset, size_t bytes) const;
  // Takes pages of a mapped file that lie in these bytes out of this process's memory. They stay in the
  // system's file cache. A hint only.
  void let_go(size_t offset, size_t bytes) const;

  // Takes physical memory for `bytes` from `offset` on now instead of at the first touch; their contents
  // stay. A hint only.
  void populate(size_t offset, size_t bytes) const;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(MemoryRegion& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(file_bytes_, other.file_bytes_);
  }

  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  char* data_ = nullptr;  // 2 MiB aligned
  size_t bytes_ = 0;
  size_t file_bytes_ = 0;  // mapped from a file
};

// Allocator of 64-byte aligned pieces of a region, one after the other. With a null base it only adds up
// sizes, so that the same function first measures and then places.
class Carver {
 public:
  explicit Carver(char* base) : base_(base) {}

  template <typename T>
  T* take(size_t count) {
    size_t const at = used_;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return base_ ? reinterpret_cast<T*>(base_ + at) : nullptr;
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

}  // namespace bunting
