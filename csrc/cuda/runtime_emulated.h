// runtime_emulated.h - fault injection for the emulated devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bunting::cuda {

// Injected faults of the first device; those of words and of memory are the same on every device.
struct Mishaps {
  int64_t fail_allocation = -1;  // fails one allocation, after this many more
  int64_t resets_before = 0;     // mishaps of calls and allocations wait for so many resets
  // Loses the device at a stream operation, after this many more.
  int64_t lose_device = -1;
  int64_t hang = -1;  // hangs at such an operation instead
  // Loses the device at every copy with these words in sequence, such as a step with these tokens.
  std::vector<int32_t> lose_on_words = {};
  // Driver call (driver.h: "reset", "release", "finish") that hangs, fails, or finds no memory once, after
  // `calls_before` that succeed.
  std::string hang_in = {}, fail_in = {}, no_memory_in = {};
  int64_t calls_before = 0;
  std::string break_kernel = {};  // kernel of which one launch stores outside all memory, likewise
  int32_t copy_ms = 0;            // time that every copy of a stream takes
  double step_deadline_ms = 0;    // each replaces the usual deadline unless 0
  double call_deadline_ms = 0;
  uint64_t memory_bytes = 0;  // replaces the usual memory size unless 0
  int32_t devices = 1;
  uint64_t seed = 1;  // seed of delays and of the order in which a kernel's threads run
};

// Sets the mishaps of this process's devices from now on, replacing those of the environment. A lost or hung
// device becomes usable again, and a call that hangs ends. No stream may have work in flight.
void set_mishaps(Mishaps const& mishaps);
// Waits until a call hangs; returns false after `deadline_ms`.
bool wait_for_hang(double deadline_ms);

}  // namespace bunting::cuda
