// state_memory.h - the slots of recurrent states in host memory.
#pragma once

#include "cpu/kernels/kernels.h"
#include "host/memory_region.h"
#include "model/model.h"

namespace bunting {

class StateMemory {
 public:
  // Allocates `slots` slots, each contiguous. Throws BUNTING_NO_MEMORY.
  StateMemory(Model const& model, int32_t slots);

  // Memory for the states of a recurrent layer.
  StateLayer layer(int32_t index) const;

 private:
  Model const& model_;
  MemoryRegion region_;
};

}  // namespace bunting
