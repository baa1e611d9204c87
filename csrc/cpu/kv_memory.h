// kv_memory.h - the KV pages in host memory.
#pragma once

#include <vector>

#include "boundary/step_block.h"
#include "cpu/kernels/kernels.h"
#include "host/memory_region.h"
#include "host/thread_pool.h"
#include "model/model.h"

namespace bunting {

class KvMemory {
 public:
  // Has `spare` pages after the others, which page copies never touch. Throws BUNTING_NO_MEMORY.
  KvMemory(Model const& model, int32_t pages, int32_t spare = 0);

  // KV pages that a layer reads: its own, or those of an earlier layer.
  KvLayer layer(int32_t index) const;
  // Copies the step's moved pages, in all layers.
  void copy(StepPlan const& plan, ThreadPool& pool) const;
  // Copy whole pages in all layers, layer after layer, page after page. Ids must be valid.
  void read(int32_t const* pages, int32_t count, char* bytes) const;
  void write(int32_t const* pages, int32_t count, char const* bytes);
  // Takes physical memory, before a step, for pages that this step or later ones will write.
  void populate_ahead(StepPlan const& plan);

 private:
  Model const& model_;
  int32_t pages_;
  MemoryRegion region_;
  std::vector<size_t> layer_at_;  // offset of a layer's own pages in bytes
  // Pages below populated_pages_ are in physical memory, or will be when a step writes them. The next equal
  // part is populated for the layers below populated_layers_.
  int32_t populated_pages_ = 0, populated_layers_ = 0;
};

}  // namespace bunting
