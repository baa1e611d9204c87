// kv_memory.h - the KV pages on the device.
#pragma once

#include <vector>

#include "boundary/step_block.h"
#include "cuda/host_copies.h"
#include "cuda/host_places.h"
#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"
#include "model/model.h"

namespace bunting::cuda {

// KV pages: [page][layer][keys | values][kv head][Tp][D], for the layers that have keys. With fp8 the
// multipliers follow the values of each layer.
class KvMemory {
 public:
  // Throws BUNTING_NO_MEMORY.
  KvMemory(Model const& model, int32_t pages);

  // KV pages that a layer reads: its own, or those of an earlier layer.
  KvPages layer(int32_t index) const;
  // Copies pages; `copies` is in device memory.
  void copy(Stream& stream, PageCopy const* copies, int32_t count) const;
  // Copy whole pages to and from the host, each on a stream of its own. Ids must be valid. Throw
  // BUNTING_LOST.
  void read(int32_t const* pages, int32_t count, char* bytes);
  void write(int32_t const* pages, int32_t count, char const* bytes);
  // Queues copies of pages to places, which end before settle() lets a step write the pages.
  void send(int32_t const* pages, int32_t const* to, int32_t count, HostPlaces const& places);
  void fetch(int32_t const* pages, int32_t const* from, int32_t count, HostPlaces const& places);
  // Wait for the copies of pages that a step writes; and for all that were sent before. Throw BUNTING_LOST.
  void settle(StepPlan const& plan);
  void wait_sent() { copies_.settle(copies_.all_sent()); }

 private:
  // Adjacent layers of one size.
  struct Run {
    int32_t first_layer;
    int64_t elements;
  };
  char* at(int32_t page) const { return memory_.data() + size_t(page) * size_t(model_.page_bytes()); }
  void settle(int32_t const* pages, int32_t count);
  int64_t stride() const { return int64_t(model_.page_bytes() / sizeof(bf16)); }

  Model const& model_;
  DeviceMemory memory_;
  std::vector<int64_t> layer_at_;  // offset of a layer's part in a page, in elements
  std::vector<Run> runs_;
  HostCopies copies_;
};

}  // namespace bunting::cuda
