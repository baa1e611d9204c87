#include "cuda/host_places.h"

#include <algorithm>

namespace bunting::cuda {

HostPlaces::HostPlaces(int32_t count, size_t bytes)
    : count_(count), bytes_(bytes), each_(std::max(size_t(1), region_bytes / bytes)) {
  for (size_t left = size_t(count); left > 0;) {
    size_t const places = std::min(left, each_);
    regions_.push_back(std::make_unique<MappedMemory>(places * bytes, "KV pages in host memory"));
    left -= places;
  }
}

}  // namespace bunting::cuda
