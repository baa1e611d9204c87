// state_slots.h - size of the state slots of an engine, on any device.
#pragma once

#include "boundary/error.h"
#include "model/model.h"

namespace bunting {

// Returns the bytes of `slots` state slots. Throws BUNTING_NO_MEMORY if they cannot be addressed.
inline size_t state_slots_bytes(Model const& model, int32_t slots) {
  size_t bytes;
  if (__builtin_mul_overflow(size_t(model.state_bytes()), size_t(slots), &bytes))
    fail(BUNTING_NO_MEMORY, "%d state slots of %llu bytes cannot be addressed", slots,
         (unsigned long long)model.state_bytes());
  return bytes;
}

}  // namespace bunting
