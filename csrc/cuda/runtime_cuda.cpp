// runtime_cuda.cpp - runtime.h on the CUDA runtime, which is linked statically and finds the driver when it
// is first used.
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "cuda/runtime.h"
#include "error.h"

namespace bunting::cuda {
namespace {

void check(cudaError_t status, char const* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // errors that do not stick are over once they were told
  fail(BUNTING_LOST, "%s: %s (%s)", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace

int32_t device_count(std::string& why_none) {
  int count = 0;
  cudaError_t const status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  auto const version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  if (driver == 0)
    why_none = "there is no NVIDIA driver on this machine";
  else if (status == cudaErrorInsufficientDriver)
    why_none = "the NVIDIA driver is too old: it speaks CUDA " + version(driver) +
               ", and this library needs " + version(runtime);
  else
    why_none = std::string("the NVIDIA driver finds no GPU: ") + cudaGetErrorString(status);
  return 0;
}

DeviceInfo device_info(int32_t device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  check(cudaSetDevice(device), "selecting the device");
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for the device's memory");
  return {properties.name,
          properties.major * 10 + properties.minor,
          properties.multiProcessorCount,
          properties.sharedMemPerBlockOptin,
          total,
          free};
}

void use_device(int32_t device) {
  check(cudaSetDevice(device), "selecting the device");
}

DeviceMemory::DeviceMemory(size_t bytes, char const* what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  cudaError_t const status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(BUNTING_NO_MEMORY, "the device has no %zu bytes left for %s", bytes, what);
  }
  check(status, "allocating device memory");
  data_ = static_cast<char*>(data);
  check(cudaMemset(data, 0, bytes), "clearing device memory");
  check(cudaStreamSynchronize(cudaStreamLegacy),
        "clearing device memory");  // our streams do not wait for that one
}

DeviceMemory::~DeviceMemory() {
  cudaFree(data_);
}

MappedMemory::MappedMemory(size_t bytes, char const* what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  cudaError_t const status = cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(BUNTING_NO_MEMORY, "the host has no %zu bytes of pinned memory left for %s", bytes, what);
  }
  check(status, "allocating pinned memory");
  data_ = static_cast<char*>(data);
  std::memset(data, 0, bytes);
}

MappedMemory::~MappedMemory() {
  cudaFreeHost(data_);
}

// Counts the waits that the stream has reached, so that the host can sleep with a deadline.
struct Stream::Queue {
  cudaStream_t stream = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t asked = 0, reached = 0;

  static void CUDART_CB arrive(void* queue) {
    Queue& self = *static_cast<Queue*>(queue);
    std::lock_guard lock(self.mutex);
    ++self.reached;
    self.changed.notify_all();
  }
};

Stream::Stream() : queue_(new Queue) {
  check(cudaStreamCreateWithFlags(&queue_->stream, cudaStreamNonBlocking), "making a stream");
}

Stream::~Stream() {
  cudaStreamSynchronize(queue_->stream);
  cudaStreamDestroy(queue_->stream);
}

void Stream::copy(void* to, void const* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue_->stream), "copying");
}

void Stream::fill(void* to, int value, size_t bytes) {
  check(cudaMemsetAsync(to, value, bytes, queue_->stream), "filling memory");
}

void Stream::launch_any(char const* name, LaunchShape shape, void (*)(void const*, void const*),
                        void const* kernel, void const* argument, size_t) {
  void const* function;
  std::memcpy(&function, kernel, sizeof function);
  constexpr size_t kAllowedUnasked = 48 * 1024;
  if (shape.shared_bytes > kAllowedUnasked)
    check(
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shape.shared_bytes)),
        name);
  void* arguments[] = {const_cast<void*>(argument)};
  check(cudaLaunchKernel(function, dim3(unsigned(shape.blocks)), dim3(unsigned(shape.threads)), arguments,
                         shape.shared_bytes, queue_->stream),
        name);
}

bool Stream::wait(double deadline_ms) {
  check(cudaLaunchHostFunc(queue_->stream, Queue::arrive, queue_.get()), "waiting for a stream");
  std::unique_lock lock(queue_->mutex);
  int64_t const until = ++queue_->asked;
  // A device that is lost calls no host function any more; so its error is asked for now and then.
  constexpr double kLookMs = 100;
  for (double waited = 0;; waited += kLookMs) {
    double const left = deadline_ms - waited;
    bool const in_time = queue_->changed.wait_for(
        lock, std::chrono::duration<double, std::milli>(left < kLookMs ? left : kLookMs),
        [&] { return queue_->reached >= until; });
    cudaError_t const status = cudaStreamQuery(queue_->stream);
    if (status != cudaErrorNotReady) check(status, "running kernels");
    if (in_time) return true;
    if (left <= kLookMs) return false;
  }
}

}  // namespace bunting::cuda
