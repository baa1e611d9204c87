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
  // Copy `size` bytes of a slot from `offset` on. The slot and the range must be valid.
  void read(int32_t slot, uint64_t offset, char* bytes, uint64_t size) const;
  void write(int32_t slot, uint64_t offset, char const* bytes, uint64_t size);

 private:
  char* at(int32_t slot, uint64_t offset) const {
    return region_.data() + size_t(slot) * size_t(model_.state_bytes()) + offset;
  }

  Model const& model_;
  MemoryRegion region_;
};

}  // namespace bunting
