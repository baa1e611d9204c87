#include "emulator/device_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

#include "emulator/grid.h"

namespace bunting::emulator {
namespace {

constexpr size_t kCellBytes = 2;

struct Range {
  uintptr_t start, end;
  uint32_t stored_launch;  // last launch that stored here
  Moment* writes;          // last write of each two bytes
};

struct Ranges {
  std::mutex mutex;
  std::map<uintptr_t, Range> by_start;
  // Version of the map; an older version invalidates what a thread has cached.
  std::atomic<uint64_t> version{1};
};

Ranges& ranges() {
  static Ranges all;
  return all;
}

// Cache of the ranges found last, since kernels walk a few arrays side by side.
struct Remembered {
  static constexpr int kSlots = 8;
  uint64_t version = 0;
  int next = 0;
  Range* slot[kSlots];
};
thread_local Remembered remembered;

size_t write_bytes(size_t bytes) {
  return (bytes / kCellBytes + 1) * sizeof(Moment);
}

Range* recall(uintptr_t first, uintptr_t last) {
  static Range nowhere{};
  Remembered& r = remembered;
  uint64_t const version = ranges().version.load(std::memory_order_acquire);
  if (r.version != version) {
    r.version = version;
    for (Range*& slot : r.slot) slot = &nowhere;
  }
  for (Range* const range : r.slot)
    if (first >= range->start && last <= range->end) return range;
  return nullptr;
}

Range& find(void const* at, size_t bytes, size_t alignment, char const* operation) {
  uintptr_t const first = reinterpret_cast<uintptr_t>(at), last = first + bytes;
  if (first % alignment != 0)
    fault("%s of %zu bytes at global address %p, which is not a multiple of %zu", operation, bytes, at,
          alignment);
  if (Range* const range = recall(first, last)) return *range;
  Range* range = nullptr;
  {
    std::lock_guard lock(ranges().mutex);
    auto const next = ranges().by_start.upper_bound(first);
    if (next != ranges().by_start.begin()) range = &std::prev(next)->second;
  }
  uintptr_t const start = range ? range->start : 0, end = range ? range->end : 0;
  if (first >= end || last > end) {
    if (first < end)
      fault("%s of %zu bytes at byte %zu of an allocation of %zu", operation, bytes, size_t(first - start),
            size_t(end - start));
    fault("%s of %zu bytes at %p, which is in no allocation (the one below it ends %zu bytes before)",
          operation, bytes, at, size_t(first - end));
  }
  Remembered& r = remembered;
  r.slot[r.next] = range;
  r.next = (r.next + 1) % Remembered::kSlots;
  return *range;
}

// Checks that other blocks' writes to these bytes were handed over.
void check_order(Range const& range, void const* at, size_t bytes, Moment const& now, char const* operation) {
  if (range.stored_launch != now.launch) return;
  size_t const first = reinterpret_cast<uintptr_t>(at) - range.start;
  for (size_t cell = first / kCellBytes; cell <= (first + bytes - 1) / kCellBytes; ++cell) {
    Moment const& write = range.writes[cell];
    if (write.launch == now.launch && write.block != now.block && !was_handed_over(write))
      fault(
          "race: %s of %zu bytes at byte %zu of an allocation, which thread %d of block %d wrote and did not "
          "hand over",
          operation, bytes, first, write.thread, write.block);
  }
}

}  // namespace

GlobalRange::GlobalRange(void const* start, size_t bytes) : start_(start) {
  uintptr_t const first = reinterpret_cast<uintptr_t>(start);
  void* const writes = mmap(nullptr, write_bytes(bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (writes == MAP_FAILED) std::abort();
  std::lock_guard lock(ranges().mutex);
  ranges().by_start[first] = {first, first + bytes, 0, static_cast<Moment*>(writes)};
  ++ranges().version;
}

GlobalRange::~GlobalRange() {
  std::lock_guard lock(ranges().mutex);
  auto const range = ranges().by_start.find(reinterpret_cast<uintptr_t>(start_));
  munmap(range->second.writes, write_bytes(range->second.end - range->second.start));
  ranges().by_start.erase(range);
  ++ranges().version;
}

void check_load(void const* at, size_t bytes, size_t alignment, char const* operation) {
  Range const& range = find(at, bytes, alignment, operation);
  check_order(range, at, bytes, moment_of_self(), operation);
}

void check_store(void const* at, size_t bytes, size_t alignment, char const* operation) {
  Range& range = find(at, bytes, alignment, operation);
  Moment const now = moment_of_self();
  check_order(range, at, bytes, now, operation);
  range.stored_launch = now.launch;
  size_t const first = reinterpret_cast<uintptr_t>(at) - range.start;
  for (size_t cell = first / kCellBytes; cell <= (first + bytes - 1) / kCellBytes; ++cell)
    range.writes[cell] = now;
}

void check_atomic(void const* at, size_t bytes, size_t alignment, char const* operation) {
  find(at, bytes, alignment, operation);
}

}  // namespace bunting::emulator
