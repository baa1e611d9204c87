// memory_region.h - one large zeroed allocation, cut up by a Carver.
//
// Weights, pages and workspaces are each one anonymous mapping aligned to 2 MiB with huge pages advised: 4
// KiB pages cost 5-10 % of memory bandwidth. Physical memory is taken when first touched. A region may show a
// file instead, whose pages the system has in memory anyway.
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
  ~MemoryRegion();
  MemoryRegion(MemoryRegion&& other) noexcept { swap(other); }
  MemoryRegion& operator=(MemoryRegion&& other) noexcept {
    swap(other);
    return *this;
  }

  // Puts `bytes` of a file from `offset` on, whole pages both, where the region begins, for reading only. An
  // offset of whole huge pages lets the system map large pages of its file cache as they are. False: this
  // file cannot be mapped.
  bool map_file(int file, int64_t offset, size_t bytes);
  // Makes them zeros that can be written again.
  void unmap_file(size_t bytes);

  // Takes physical memory for `bytes` from `offset` on now instead of when they are first touched; what is in
  // them stays. Advice only.
  void populate(size_t offset, size_t bytes) const;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(MemoryRegion& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  char* data_ = nullptr;  // 2 MiB aligned
  size_t bytes_ = 0;
};

// Hands out 64-byte aligned pieces of a region one after the other. With a null base it only adds up, so that
// the same walk first measures and then places.
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
