// host_places.h - pinned host memory for offloaded pages and pieces of states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/runtime.h"

namespace bunting::cuda {

// Buffers ("places") of one size. They are allocated in regions, so that no call of the driver takes long.
class HostPlaces {
 public:
  // Bytes of a region at most, but at least a place. Tests make it smaller.
  inline static size_t region_bytes = size_t(1) << 30;

  HostPlaces() = default;
  // Throws BUNTING_NO_MEMORY.
  HostPlaces(int32_t count, size_t bytes);

  int32_t count() const { return count_; }
  size_t bytes() const { return bytes_; }
  char* at(int32_t place) const {
    return regions_[size_t(place) / each_]->data() + size_t(place) % each_ * bytes_;
  }

 private:
  int32_t count_ = 0;
  size_t bytes_ = 0, each_ = 1;  // bytes of a place; places of a region
  std::vector<std::unique_ptr<MappedMemory>> regions_;
};

}  // namespace bunting::cuda
