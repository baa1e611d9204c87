// device_memory.h - the emulator's record of global memory: every allocation of the emulated runtime and
// every range that a test announces, and the thread that wrote each part in the current launch.
//
// Blocks of a launch run one after the other here, but at the same time on a GPU. So a block may access
// another block's write only after it was handed over. A hand-over is an acquire-release addition by the
// writing thread after the write. It may also be one by another thread of the writing block, after a block
// barrier that followed the write.
#pragma once

#include <cstddef>

namespace bunting::emulator {

// Range [start, start + bytes) that kernels may access while this object lives. Allocations do not overlap.
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

// Each reports a fault (grid.h) unless the bytes lie in one range and the address is a multiple of
// `alignment`. Another block's write there, without a hand-over, is a fault too.
void check_load(void const* at, size_t bytes, size_t alignment, char const* operation);
void check_store(void const* at, size_t bytes, size_t alignment, char const* operation);
// Checks an atomic operation, which is unordered with others of its kind.
void check_atomic(void const* at, size_t bytes, size_t alignment, char const* operation);

}  // namespace bunting::emulator
