// staging.h - pinned host memory by way of which weights go to the device.
//
// Two slots take turns: while copies from one are on their way, the other is filled. Each has a stream of its
// own, whose end shows that the slot may be filled again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cuda/runtime.h"

namespace bunting::cuda {

class Staging {
 public:
  // Bytes of a slot, and the time for the copies from it. Tests make both smaller.
  inline static size_t slot_bytes = size_t(32) << 20;
  inline static double deadline_ms = 60'000;
  static size_t bytes() { return 2 * slot_bytes; }

  // Takes ordinary memory, and says so, where the host has no pinned memory left. Throws BUNTING_NO_MEMORY if
  // it has none at all.
  Staging();

  // Returns memory to fill, at most slot_bytes, aligned to 64 bytes. Waits for the copies from its slot.
  // Throws BUNTING_LOST if they do not end in time.
  char* take(size_t bytes);
  // Queues a copy from the memory that was taken last, which must not change any more.
  void send(void* to, void const* from, size_t bytes);
  // Waits for all copies.
  void finish();

 private:
  struct Slot {
    MappedMemory memory{slot_bytes, "the weights on their way", MappedMemory::Kind::pinned_if_possible};
    Stream stream;  // closes before its memory is freed
    size_t used = 0;
    void finish();
  };
  std::array<Slot, 2> slots_;
  size_t current_ = 0;
};

}  // namespace bunting::cuda
