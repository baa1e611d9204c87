// runtime.h - devices, their memory and their streams, as the CUDA engine needs them: the CUDA runtime
// (runtime_cuda.cpp) or the emulator (runtime_emulated.cpp).
//
// Failures are thrown (error.h): BUNTING_NO_MEMORY when an allocation fails, which changes nothing;
// BUNTING_LOST for everything after which the device is of no use, among them every fault in a kernel.
// After BUNTING_LOST each call on the device throws it again; destructors do not throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace bunting::cuda {

struct DeviceInfo {
  std::string name;
  int32_t capability;  // 90 is sm_90
  int32_t multiprocessors;
  size_t shared_bytes_max;  // of one block
  uint64_t memory_bytes, memory_free_bytes;
  std::string note;  // the driver, for people
};

// How many devices there are. If none, `why_none` becomes a sentence.
int32_t device_count(std::string& why_none);
// Throws BUNTING_INVALID with a sentence if there is no such device.
DeviceInfo device_info(int32_t device);
// What this OS thread does from now on is done with this device. Throws as device_info.
void use_device(int32_t device);
// The device in use does not come back: from now on it is lost, and destructors wait for nothing. A device
// that is lost is new again, if it can be, once this process has nothing on it any more.
[[noreturn]] void lose_device(std::string const& why);
// No small step of a healthy device takes longer.
double step_deadline_ms();

// Memory of the device in use, zeroed.
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

// Host memory, zeroed, at an address that kernels and the host share: small results go straight into it.
class MappedMemory {
 public:
  MappedMemory(size_t bytes, char const* what);
  ~MappedMemory();
  MappedMemory(MappedMemory const&) = delete;
  MappedMemory& operator=(MappedMemory const&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
  int32_t device_ = 0;
};

struct LaunchShape {
  int32_t blocks;
  int32_t threads;  // per block, a multiple of 32
  size_t shared_bytes;
};

// Work that a stream was given once and takes again at once, for what one launch costs. What the work was
// given as arguments stays as it was, addresses too; what lies there may change.
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

// A queue of work that the device executes in order, beside what the host does meanwhile.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream const&) = delete;
  Stream& operator=(Stream const&) = delete;

  // Host memory is MappedMemory, or does not change and stays until the copy is done.
  void copy(void* to, void const* from, size_t bytes);
  void fill(void* to, int value, size_t bytes);
  template <class A>
  void launch(char const* name, void (*kernel)(A), LaunchShape shape, A const& argument);
  // Until end_recording(), copies, fills and launches are not executed but become the graph. No waits in
  // between.
  void begin_recording();
  Graph end_recording();
  void launch(Graph const& graph);
  // Blocks until all that was queued is done; false if that takes longer than `deadline_ms`. Does not spin.
  [[nodiscard]] bool wait(double deadline_ms);
  // For libraries that queue work of their own: calls `work` with the cudaStream_t, which is what it queues
  // on. The emulator calls it, with null, when it is its turn. Throws BUNTING_LOST, then or later, when
  // `work` returns a sentence.
  void call(std::function<std::string(void* native)> work);

 private:
  struct Queue;
  void launch_any(char const* name, LaunchShape shape, void (*call)(void const* kernel, void const* argument),
                  void const* kernel, void const* argument, size_t argument_bytes);
  std::unique_ptr<Queue> queue_;
};

template <class A>
void Stream::launch(char const* name, void (*kernel)(A), LaunchShape shape, A const& argument) {
  // `call` is for the emulator: it knows the types again.
  auto const call = [](void const* kernel_bits, void const* bytes) {
    (*static_cast<void (*const*)(A)>(kernel_bits))(*static_cast<A const*>(bytes));
  };
  launch_any(name, shape, call, &kernel, &argument, sizeof argument);
}

}  // namespace bunting::cuda
