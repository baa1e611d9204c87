// runtime_emulated.h - the mishaps that an emulated device can be told to have.
#pragma once

#include <cstdint>
#include <vector>

namespace bunting::cuda {

struct Mishaps {
  int64_t fail_allocation = -1;  // the allocation after this many more fails, once
  // The operation of a stream after this many more never happens: the device is lost.
  int64_t lose_device = -1;
  int64_t hang = -1;  // ... or never ends
  // A copy that has these words one after the other loses the device, every time: a step with these tokens.
  std::vector<int32_t> lose_on_words = {};
  double step_deadline_ms = 0;  // in place of the usual one
  uint64_t memory_bytes = 0;    // likewise
  uint64_t seed = 1;            // of delays and of the order in which a kernel's threads run
};

// For the devices of this process from now on, in place of those that the environment asks for; a lost or
// hung device is a new one. No stream may have work under way.
void set_mishaps(Mishaps const& mishaps);

}  // namespace bunting::cuda
