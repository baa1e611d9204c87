// runtime_cuda.cpp - runtime.h on the CUDA runtime, which is linked statically and finds the driver at its
// first use.
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "boundary/error.h"
#include "cuda/architectures.h"
#include "cuda/runtime.h"

namespace bunting::cuda {
namespace {

constexpr double kStepDeadlineMs = 20'000;  // far above the time of a decode step on the slowest GPU
constexpr int32_t kDevicesMax = 64;

// State of this process on a device: number of objects, and the reason if the device is lost. A lost device's
// objects are not freed, because freeing would wait forever.
struct Use {
  std::mutex mutex;
  std::string lost;
  int64_t objects = 0;
};
Use& use_of(int32_t device) {
  static std::array<Use, kDevicesMax> uses;
  return uses[size_t(device)];
}
// Makes the runtime load all kernels at the device's first use. Loading each at its first launch would
// allocate memory, maybe while a graph is recorded. Must be called before any function of the runtime.
void load_kernels_at_once() {
  static int const eager = setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  (void)eager;
}

int32_t current_device() {
  load_kernels_at_once();
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && device < kDevicesMax ? device : 0;
}

void throw_if_lost(int32_t device) {
  Use& use = use_of(device);
  std::lock_guard lock(use.mutex);
  if (!use.lost.empty()) fail(BUNTING_LOST, "GPU %d is lost: %s", device, use.lost.c_str());
}

void check(cudaError_t status, char const* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears an error that is not sticky, now that it is reported
  lose_device(std::string(what) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

// Count an object on a device, and remove it; give_back returns true if the object may be freed.
void take_on(int32_t device) {
  std::lock_guard lock(use_of(device).mutex);
  ++use_of(device).objects;
}
bool give_back(int32_t device) {
  std::lock_guard lock(use_of(device).mutex);
  --use_of(device).objects;
  return use_of(device).lost.empty();
}

// Resets a lost device on which this process has no object left. After some faults, and while a kernel hangs,
// only another process gets the device back.
void begin_anew_if_unused(int32_t device) {
  Use& use = use_of(device);
  std::lock_guard lock(use.mutex);
  if (use.lost.empty() || use.objects > 0) return;
  if (cudaSetDevice(device) == cudaSuccess && cudaDeviceReset() == cudaSuccess &&
      cudaFree(nullptr) == cudaSuccess)
    use.lost.clear();
  cudaGetLastError();
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

int32_t device_count(std::string& why_none) {
  load_kernels_at_once();
  int count = 0;
  cudaError_t const status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count < kDevicesMax ? count : kDevicesMax;
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    why_none = "there is no NVIDIA driver on this machine";
  else if (status == cudaErrorInsufficientDriver)
    why_none = "the NVIDIA driver is too old: it speaks CUDA " + version_text(driver) +
               ", and this library needs " + version_text(runtime);
  else
    why_none = std::string("the NVIDIA driver finds no GPU: ") + cudaGetErrorString(status);
  return 0;
}

DeviceInfo device_info(int32_t device) {
  use_device(device);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for the device's memory");
  int driver = 0;
  cudaDriverGetVersion(&driver);
  int const capability = properties.major * 10 + properties.minor;
  return {properties.name,
          capability,
          properties.multiProcessorCount,
          properties.sharedMemPerBlockOptin,
          total,
          free,
          "sm_" + std::to_string(capability) + ", driver for CUDA " + version_text(driver)};
}

void use_device(int32_t device) {
  std::string why_none;
  int32_t const count = device_count(why_none);
  if (count == 0) fail(BUNTING_INVALID, "%s", why_none.c_str());
  if (device < 0 || device >= count)
    fail(BUNTING_INVALID, "there is no GPU %d: this machine has %d, counted from 0", device, count);
  begin_anew_if_unused(device);
  throw_if_lost(device);
  check(cudaSetDevice(device), "selecting the device");
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for the device");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "asking for the device");
  // The library contains machine code only and compiles nothing at run time.
  if (!runs_on(BUNTING_CUDA_ARCHITECTURES, major * 10 + minor))
    fail(BUNTING_INVALID, "GPU %d is sm_%d%d; this library has kernels for sm %s", device, major, minor,
         BUNTING_CUDA_ARCHITECTURES);
}

void lose_device(std::string const& why) {
  int32_t const device = current_device();
  {
    std::lock_guard lock(use_of(device).mutex);
    if (use_of(device).lost.empty()) use_of(device).lost = why;
  }
  throw_if_lost(device);
  std::abort();  // unreachable: throw_if_lost throws
}

double step_deadline_ms() {
  return kStepDeadlineMs;
}

DeviceMemory::DeviceMemory(size_t bytes, char const* what) : bytes_(bytes), device_(current_device()) {
  if (bytes == 0) return;
  throw_if_lost(device_);
  void* data = nullptr;
  cudaError_t const status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(BUNTING_NO_MEMORY, "GPU %d has no %zu bytes left for %s", device_, bytes, what);
  }
  check(status, "allocating device memory");
  data_ = static_cast<char*>(data);
  check(cudaMemset(data, 0, bytes), "clearing device memory");
  check(cudaStreamSynchronize(cudaStreamLegacy),
        "clearing device memory");  // our streams do not wait for the legacy stream
  take_on(device_);
}

DeviceMemory::~DeviceMemory() {
  if (data_ && give_back(device_)) cudaFree(data_);
}

MappedMemory::MappedMemory(size_t bytes, char const* what) : bytes_(bytes), device_(current_device()) {
  if (bytes == 0) return;
  throw_if_lost(device_);
  void* data = nullptr;
  cudaError_t const status = cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(BUNTING_NO_MEMORY, "the host has no %zu bytes of pinned memory left for %s", bytes, what);
  }
  check(status, "allocating pinned memory");
  data_ = static_cast<char*>(data);
  take_on(device_);
  std::memset(data, 0, bytes);
}

MappedMemory::~MappedMemory() {
  if (data_ && give_back(device_)) cudaFreeHost(data_);
}

// Counts the waits that the stream has reached, so that the host can sleep with a deadline.
struct Stream::Queue {
  cudaStream_t stream = nullptr;
  int32_t device = current_device();
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
  throw_if_lost(queue_->device);
  check(cudaStreamCreateWithFlags(&queue_->stream, cudaStreamNonBlocking), "making a stream");
  take_on(queue_->device);
}

Stream::~Stream() {
  if (!give_back(queue_->device)) {
    queue_.release();  // leaks it, because hung work may still call arrive()
    return;
  }
  cudaStreamSynchronize(queue_->stream);
  cudaStreamDestroy(queue_->stream);
}

void Stream::copy(void* to, void const* from, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue_->stream), "copying");
}

void Stream::fill(void* to, int value, size_t bytes) {
  if (bytes == 0) return;
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

struct Graph::Work {
  cudaGraphExec_t exec = nullptr;
  int32_t device = current_device();
  Work() { take_on(device); }
  ~Work() {
    if (give_back(device) && exec) cudaGraphExecDestroy(exec);
  }
};

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Stream::begin_recording() {
  check(cudaStreamBeginCapture(queue_->stream, cudaStreamCaptureModeThreadLocal), "recording a graph");
}

Graph Stream::end_recording() {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(queue_->stream, &recorded), "recording a graph");
  Graph graph;
  graph.work_ = std::make_unique<Graph::Work>();
  cudaError_t const status = cudaGraphInstantiate(&graph.work_->exec, recorded, 0);
  cudaGraphDestroy(recorded);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(BUNTING_NO_MEMORY, "the device has no memory left for a graph");
  }
  check(status, "making a graph");
  check(cudaGraphUpload(graph.work_->exec, queue_->stream), "making a graph");
  return graph;
}

void Stream::launch(Graph const& graph) {
  check(cudaGraphLaunch(graph.work_->exec, queue_->stream), "launching a graph");
}

void Stream::call(std::function<std::string(void* native)> work) {
  std::string const failure = work(queue_->stream);
  if (!failure.empty()) lose_device(failure);
}

bool Stream::wait(double deadline_ms) {
  check(cudaLaunchHostFunc(queue_->stream, Queue::arrive, queue_.get()), "waiting for a stream");
  std::unique_lock lock(queue_->mutex);
  int64_t const until = ++queue_->asked;
  // A lost device calls no host function, so the host polls its error from time to time.
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
