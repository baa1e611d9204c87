// fake_cudart.h - faults of the fake CUDA runtime, which has two devices and executes copies and fills as
// late as it may: when somebody asks for an event after them, or waits for the stream. A kernel does nothing,
// or faults.
#pragma once

#include <string>
#include <vector>

namespace bunting::test {

struct FakeCuda {
  std::string hang_in = {};       // function that hangs on device 0, until the plan changes
  std::string no_memory_in = {};  // function that finds no memory on device 0
  std::string fault_in = {};      // function that reports a fault of device 0, as do all later ones
  int calls_before = 0;           // calls of these functions that succeed
  bool is_once = false;           // true: a function finds no memory once only
  int faulty_launch = -1;         // number of the launch on device 0 that faults; seen at a later call
};

// Replaces the plan, ends calls that hang, and makes both devices whole.
void set_fake_cuda(FakeCuda const& plan);
// Returns the devices that were reset since set_fake_cuda().
std::vector<int> fake_cuda_resets();
// Returns how many calls of the plan's functions there were.
int fake_cuda_calls();
// Returns the number of allocations, streams, events and graphs that are not freed.
int fake_cuda_objects();

}  // namespace bunting::test
