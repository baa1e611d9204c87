// host_copies.h - copies between the host and a part of the device's memory, beside steps.
#pragma once

#include <optional>

#include "cuda/device_use.h"
#include "cuda/runtime.h"

namespace bunting::cuda {

// Two streams, one for each direction. One thread at a time may use each.
class HostCopies {
 public:
  HostCopies() : device_(current_device()) {}

  // Stream of a direction, opened at its first use.
  Stream& reads() { return opened(reads_); }
  Stream& writes() { return opened(writes_); }

 private:
  Stream& opened(std::optional<Stream>& stream) const {
    if (!stream) {
      set_current_device(device_);
      stream.emplace();
    }
    return *stream;
  }

  int32_t device_;
  std::optional<Stream> reads_, writes_;
};

}  // namespace bunting::cuda
