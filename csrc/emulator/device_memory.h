// device_memory.h - which addresses are global memory: every allocation of the emulated runtime, and
// whatever a test announces.
#pragma once

#include <cstddef>

namespace bunting::emulator {

// Kernels may touch [start, start + bytes) while this object lives. Allocations do not overlap.
// Thread-safe.
class GlobalRange {
 public:
  GlobalRange(void const* start, size_t bytes);
  ~GlobalRange();
  GlobalRange(GlobalRange const&) = delete;
  GlobalRange& operator=(GlobalRange const&) = delete;

 private:
  void const* start_;
};

// Reports a fault (grid.h) unless the bytes lie in one range and the address is a multiple of `alignment`.
void check_global(void const* at, size_t bytes, size_t alignment, char const* operation);

}  // namespace bunting::emulator
