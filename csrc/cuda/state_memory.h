// state_memory.h - the slots of recurrent states on the device.
#pragma once

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

 private:
  Model const& model_;
  DeviceMemory memory_;
};

}  // namespace bunting::cuda
