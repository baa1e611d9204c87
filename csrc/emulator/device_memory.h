// device_memory.h - which addresses are global memory: every allocation of the emulated runtime, and
// whatever a test announces; and which thread wrote what of it in the launch that runs.
//
// Blocks of a launch run one after the other here, on a GPU at the same time. So a block may touch what
// another block of the launch wrote only after that was handed over: by an acquire-release addition of a
// thread of the writing block, after the write in that thread, or after a block barrier that followed the
// write.
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

// Each reports a fault (grid.h) unless the bytes lie in one range, the address is a multiple of `alignment`,
// and no other block wrote there without handing over.
void check_load(void const* at, size_t bytes, size_t alignment, char const* operation);
void check_store(void const* at, size_t bytes, size_t alignment, char const* operation);
// An atomic operation, unordered with others of its kind.
void check_atomic(void const* at, size_t bytes, size_t alignment, char const* operation);

}  // namespace bunting::emulator
