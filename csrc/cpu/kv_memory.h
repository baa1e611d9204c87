// kv_memory.h - the pages of keys and values in the machine's memory.
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
  // Throws BUNTING_NO_MEMORY.
  KvMemory(Model const& model, int32_t pages);

  // What a layer reads: its own pages, or those of a layer before.
  KvLayer layer(int32_t index) const;
  // The step's copies, in all layers.
  void copy(StepPlan const& plan, ThreadPool& pool) const;
  // Before a step: takes physical memory that it or later ones will write.
  void populate_ahead(StepPlan const& plan);

 private:
  Model const& model_;
  int32_t pages_;
  MemoryRegion region_;
  std::vector<size_t> layer_at_;  // bytes before a layer's own pages
  // Pages below this are in physical memory, or will be when they are written; and of as many pages behind
  // them, the layers below the other.
  int32_t populated_pages_ = 0, populated_layers_ = 0;
};

}  // namespace bunting
