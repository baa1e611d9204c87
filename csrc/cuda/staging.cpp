#include "cuda/staging.h"

#include <cstdio>

#include "boundary/error.h"
#include "cuda/device_use.h"

namespace bunting::cuda {
Staging::Staging() {
  for (Slot const& slot : slots_)
    if (!slot.memory.is_pinned()) {
      std::fprintf(
          stderr,
          "GPU %d: the host has no pinned memory left for the weights on their way; they go by way of "
          "ordinary memory, which is slower\n",
          current_device());
      break;
    }
}

char* Staging::take(size_t bytes) {
  if (bytes > slot_bytes)
    fail(BUNTING_INVALID, "rows of %zu bytes do not fit into the %zu bytes of a slot on the way to the GPU",
         bytes, slot_bytes);
  if (slots_[current_].used + bytes > slot_bytes) {
    current_ = 1 - current_;
    slots_[current_].finish();
  }
  Slot& slot = slots_[current_];
  char* const taken = slot.memory.data() + slot.used;
  slot.used += (bytes + 63) / 64 * 64;
  return taken;
}

void Staging::send(void* to, void const* from, size_t bytes) {
  slots_[current_].stream.copy(to, from, bytes);
}

void Staging::finish() {
  for (Slot& slot : slots_) slot.finish();
}

void Staging::Slot::finish() {
  stream.finish(deadline_ms, "has not taken weights");
  used = 0;
}

}  // namespace bunting::cuda
