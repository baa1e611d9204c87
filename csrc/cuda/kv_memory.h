// kv_memory.h - the pages of keys and values on the device.
#pragma once

#include <vector>

#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"
#include "model/model.h"

namespace bunting::cuda {

// Pages are [page][layer][keys | values][kv head][Tp][D], of the layers that have keys, and in fp8 the
// multipliers after the values of each layer.
class KvMemory {
 public:
  // Throws BUNTING_NO_MEMORY.
  KvMemory(Model const& model, int32_t pages);

  // What a layer reads: its own pages, or those of a layer before.
  KvPages layer(int32_t index) const;
  // The copies are in device memory.
  void copy(Stream& stream, PageCopy const* copies, int32_t count) const;

 private:
  // Layers of one size that lie together.
  struct Run {
    int32_t first_layer;
    int64_t elements;
  };
  int64_t stride() const { return int64_t(model_.page_bytes() / sizeof(bf16)); }

  Model const& model_;
  DeviceMemory memory_;
  std::vector<int64_t> layer_at_;  // elements in a page before a layer's own
  std::vector<Run> runs_;
};

}  // namespace bunting::cuda
