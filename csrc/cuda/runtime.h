// runtime.h - devices, their memory and streams for the CUDA engine, on one of two drivers (driver.h): CUDA
// or the emulator.
//
// Functions throw on failure (error.h). BUNTING_NO_MEMORY: an allocation failed and nothing changed.
// BUNTING_LOST: the device is unusable, which includes every fault in a kernel. After that each call on the
// device throws BUNTING_LOST again; destructors do not throw.
//
// The caller never enters the driver: other threads do, and the caller waits for them with a deadline. So a
// driver that hangs costs the device, and a thread that is left behind, but never the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace bunting::cuda {

struct DeviceInfo {
  std::string name;
  int32_t capability;  // compute capability times ten; 90 is sm_90
  int32_t multiprocessors;
  size_t shared_bytes_max;  // most shared memory of one block
  uint64_t memory_bytes, memory_free_bytes;
  std::string note;  // readable description of the driver
};

// Returns the number of devices. If there is none, `why_none` receives a sentence.
int32_t device_count(std::string& why_none);
// Throws BUNTING_INVALID with a sentence if there is no such device.
DeviceInfo device_info(int32_t device);
// Selects the device for the objects that this OS thread makes from now on. Throws as device_info does.
void use_device(int32_t device);
// Marks the device as lost, because it hangs; destructors then wait for nothing. A lost device is reset, if
// possible, once this process has no object on it.
[[noreturn]] void lose_device(int32_t device, std::string const& why);
// Returns an upper bound of the time of a small step on a healthy device.
double step_deadline_ms();
// True with BUNTING_CUDA_SYNC=1: each kernel ends before the next one starts, so that a fault names its
// kernel.
bool steps_through_kernels();

// Device memory, zeroed, on the current device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(size_t bytes, char const* what);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  char* data() const { return data_; }  // for kernels and Stream::copy; the host cannot read it
  size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
  }
  char* data_ = nullptr;
  size_t bytes_ = 0;
  int32_t device_ = 0;
};

// Host memory, zeroed, at an address that kernels share with the host. Kernels write small results directly
// into it.
class MappedMemory {
 public:
  // Kernels may not use memory that is not pinned; copies from and to it are slower.
  enum class Kind { pinned, pinned_if_possible };
  MappedMemory(size_t bytes, char const* what, Kind kind = Kind::pinned);
  ~MappedMemory();
  MappedMemory(MappedMemory const&) = delete;
  MappedMemory& operator=(MappedMemory const&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool is_pinned() const { return is_pinned_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
  int32_t device_ = 0;
  bool is_pinned_ = true;
};

struct LaunchShape {
  int32_t blocks;
  int32_t threads;  // per block, a multiple of 32
  size_t shared_bytes;
};

int32_t resident_blocks_of(void const* kernel, LaunchShape shape);
// Returns how many blocks of the kernel a multiprocessor of the current device runs at a time, at least 1.
template <class A>
int32_t resident_blocks(void (*kernel)(A), LaunchShape shape) {
  return resident_blocks_of(&kernel, shape);
}

// Recorded work of a stream that one launch repeats. Its arguments, including addresses, are fixed at
// recording; the contents of that memory may change.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

 private:
  friend class Stream;
  struct Work;
  std::unique_ptr<Work> work_;
};

// Queue of work that the device executes in order, asynchronously to the host. A thread of the stream takes
// the work to the driver.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream const&) = delete;
  Stream& operator=(Stream const&) = delete;

  // `from` in host memory must be MappedMemory, or must stay unchanged until the copy is done.
  void copy(void* to, void const* from, size_t bytes);
  void fill(void* to, int value, size_t bytes);
  template <class A>
  void launch(char const* name, void (*kernel)(A), LaunchShape shape, A const& argument);
  // Records instead of executing: until end_recording(), copies, fills and launches become part of the graph.
  // The caller must not wait in between. end_recording() throws BUNTING_INVALID if the driver cannot record
  // this work; the stream then works as before.
  void begin_recording();
  Graph end_recording();
  void launch(Graph const& graph);
  // Blocks until all queued work is done; returns false if that takes longer than `deadline_ms`.
  [[nodiscard]] bool wait(double deadline_ms);
  // Does the same, but loses the device after the deadline and throws BUNTING_LOST with `what`, as in "has
  // not finished a step".
  void finish(double deadline_ms, char const* what);
  // Marks the end of the work queued so far, for any thread to wait for. Marks rise from 1 on.
  int64_t mark();
  // Waits for the work before a mark, and fails, as finish(deadline_ms, what) does.
  void finish(int64_t mark, double deadline_ms, char const* what);
  // Queues work of a library: calls `work` with the cudaStream_t on which it must queue. The emulator calls
  // it with null when its turn comes. If `work` returns a sentence, this call or a later one throws
  // BUNTING_LOST.
  void call(std::function<std::string(void* native)> work);

 private:
  struct Queue;
  void launch_any(char const* name, LaunchShape shape, void (*call)(void const* kernel, void const* argument),
                  void const* kernel, void const* argument, size_t argument_bytes);
  std::shared_ptr<Queue> queue_;  // shared with its thread, which may outlive the stream
};

template <class A>
void Stream::launch(char const* name, void (*kernel)(A), LaunchShape shape, A const& argument) {
  // `call` restores the types for the emulator.
  auto const call = [](void const* kernel_bits, void const* bytes) {
    (*static_cast<void (*const*)(A)>(kernel_bits))(*static_cast<A const*>(bytes));
  };
  launch_any(name, shape, call, &kernel, &argument, sizeof argument);
}

}  // namespace bunting::cuda
