// host_copies.h - asynchronous copies between the host and pages or state slots on the device, while steps
// run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/device_use.h"
#include "cuda/runtime.h"

namespace bunting::cuda {

// Two streams, one for each direction. One thread at a time may use each; any thread may wait for the copies.
class HostCopies {
 public:
  // `items`: number of pages or slots there.
  explicit HostCopies(int32_t items) : device_(current_device()), sent_(size_t(items)) {}

  // Stream of a direction, opened at its first use.
  Stream& reads() { return opened(reads_); }
  Stream& writes() { return opened(writes_); }

  // Marks the end of queued copies from these items on reads(); writers of an item wait for its mark.
  void sent(int32_t const* items, int32_t count) {
    int64_t const mark = reads().mark();
    for (int32_t i = 0; i < count; ++i) sent_[size_t(items[i])] = mark;
    last_ = mark;
  }
  // Returns the copies that must end before an item is written; 0: none.
  int64_t before_writing(int32_t item) const { return sent_[size_t(item)]; }
  int64_t all_sent() const { return last_; }
  // Waits until these copies, and all before them, have arrived. Throws BUNTING_LOST.
  void settle(int64_t copies) {
    if (copies > 0) reads_->finish(copies, step_deadline_ms(), "has not copied to the host");
  }

 private:
  Stream& opened(std::optional<Stream>& stream) const {
    if (!stream) {
      set_current_device(device_);
      stream.emplace();
    }
    return *stream;
  }

  int32_t device_;
  std::vector<int64_t> sent_;  // by item: the mark behind its last copy that was sent
  std::atomic<int64_t> last_ = 0;
  std::optional<Stream> reads_, writes_;
};

}  // namespace bunting::cuda
