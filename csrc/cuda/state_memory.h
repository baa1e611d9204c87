// state_memory.h - the slots of recurrent states on the device.
#pragma once

#include "boundary/step_block.h"
#include "cuda/host_copies.h"
#include "cuda/kernels/states.h"
#include "cuda/runtime.h"
#include "model/model.h"

namespace bunting::cuda {

// State slots: [slot][recurrent layer] of the numbers in kernels/states.h.
class StateMemory {
 public:
  // Throws BUNTING_NO_MEMORY.
  StateMemory(Model const& model, int32_t slots);

  StateLayer layer(int32_t index) const;
  // Copy `size` bytes of a slot from `offset` on. The slot and the range must be valid. Throw BUNTING_LOST.
  void read(int32_t slot, uint64_t offset, char* bytes, uint64_t size);
  void write(int32_t slot, uint64_t offset, char const* bytes, uint64_t size);
  // Queues a copy to pinned memory, which ends before settle() lets a step write the slot.
  void send(int32_t slot, uint64_t offset, char* bytes, uint64_t size);
  // Wait for the copies of slots that a step writes; and for all that were sent before. Throw BUNTING_LOST.
  void settle(StepPlan const& plan);
  void wait_sent() { copies_.settle(copies_.all_sent()); }

 private:
  char* at(int32_t slot, uint64_t offset) const {
    return memory_.data() + size_t(slot) * size_t(model_.state_bytes()) + offset;
  }

  Model const& model_;
  DeviceMemory memory_;
  HostCopies copies_;
};

}  // namespace bunting::cuda
