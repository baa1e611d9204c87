// fake_cudart.h - faults of the fake CUDA runtime, which has two devices and executes copies and fills at
// once. A kernel does nothing, or faults.
#pragma once

#include <string>
#include <vector>

namespace bunting::test {

struct FakeCuda {
  std::string hang_in = {};       // function that hangs on device 0, until the plan changes
  std::string no_memory_in = {};  // function that finds no memory on device 0
  int faulty_launch = -1;         // number of the launch on device 0 that faults; seen at a later call
};

// Replaces the plan, ends calls that hang, and makes both devices whole.
void set_fake_cuda(FakeCuda const& plan);
// Returns the devices that were reset since set_fake_cuda().
std::vector<int> fake_cuda_resets();
// Returns the number of allocations, streams, events and graphs that are not freed.
int fake_cuda_objects();

}  // namespace bunting::test
