#include "emulator/device_memory.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "emulator/grid.h"

namespace bunting::emulator {
namespace {

struct Ranges {
  std::mutex mutex;
  std::map<uintptr_t, uintptr_t> end_by_start;
  std::atomic<uint64_t> version{1};  // of the map: what a thread remembers of it may be stale
};

Ranges& ranges() {
  static Ranges all;
  return all;
}

// The ranges found last, since kernels walk a few arrays side by side.
struct Remembered {
  static constexpr int kSlots = 8;
  uint64_t version = 0;
  int next = 0;
  uintptr_t start[kSlots], end[kSlots];
};
thread_local Remembered remembered;

bool is_remembered(uintptr_t first, uintptr_t last) {
  Remembered& r = remembered;
  uint64_t const version = ranges().version.load(std::memory_order_acquire);
  if (r.version != version) {
    r = Remembered{};
    r.version = version;
    for (int i = 0; i < Remembered::kSlots; ++i) r.start[i] = r.end[i] = 0;
  }
  for (int i = 0; i < Remembered::kSlots; ++i)
    if (first >= r.start[i] && last <= r.end[i]) return true;
  return false;
}

}  // namespace

GlobalRange::GlobalRange(void const* start, size_t bytes) : start_(start) {
  uintptr_t const first = reinterpret_cast<uintptr_t>(start);
  std::lock_guard lock(ranges().mutex);
  ranges().end_by_start[first] = first + bytes;
  ++ranges().version;
}

GlobalRange::~GlobalRange() {
  std::lock_guard lock(ranges().mutex);
  ranges().end_by_start.erase(reinterpret_cast<uintptr_t>(start_));
  ++ranges().version;
}

void check_global(void const* at, size_t bytes, size_t alignment, char const* operation) {
  uintptr_t const first = reinterpret_cast<uintptr_t>(at), last = first + bytes;
  if (first % alignment != 0)
    fault("%s of %zu bytes at global address %p, which is not a multiple of %zu", operation, bytes, at,
          alignment);
  if (is_remembered(first, last)) return;
  uintptr_t start = 0, end = 0;
  {
    std::lock_guard lock(ranges().mutex);
    auto next = ranges().end_by_start.upper_bound(first);
    if (next != ranges().end_by_start.begin()) {
      start = (--next)->first;
      end = next->second;
    }
  }
  if (first >= end || last > end) {
    if (first < end)
      fault("%s of %zu bytes at byte %zu of an allocation of %zu", operation, bytes, size_t(first - start),
            size_t(end - start));
    fault("%s of %zu bytes at %p, which is in no allocation (the one below it ends %zu bytes before)",
          operation, bytes, at, size_t(first - end));
  }
  Remembered& r = remembered;
  r.start[r.next] = start;
  r.end[r.next] = end;
  r.next = (r.next + 1) % Remembered::kSlots;
}

}  // namespace bunting::emulator
