// runtime_cuda.cpp - driver.h on the CUDA runtime, which is linked statically and finds the driver at its
// first use.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cuda/architectures.h"
#include "cuda/driver.h"

namespace bunting::cuda::driver {
namespace {

// Makes the runtime load all kernels at the device's first use. Loading each at its first launch would
// allocate memory, maybe while a graph is recorded. Must be called before any function of the runtime.
void load_kernels_at_once() {
  static int const eager = setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  (void)eager;
}

Outcome outcome_of(cudaError_t status, char const* what) {
  if (status == cudaSuccess) return {};
  cudaGetLastError();  // clears an error that is not sticky, now that it is reported
  return {status == cudaErrorMemoryAllocation ? Outcome::Kind::no_memory : Outcome::Kind::failed,
          std::string(what) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")"};
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

struct NativeStream {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;  // marks the end of the work to wait for
};
NativeStream& native(void* stream) {
  return *static_cast<NativeStream*>(stream);
}

void const* function_at(void const* kernel) {
  void const* function;
  std::memcpy(&function, kernel, sizeof function);
  return function;
}

Outcome allow_shared(void const* function, LaunchShape shape, char const* name) {
  constexpr size_t kAllowedUnasked = 48 * 1024;
  if (shape.shared_bytes <= kAllowedUnasked) return {};
  return outcome_of(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shape.shared_bytes)),
      name);
}

}  // namespace

// A start includes the start of the driver, which takes many seconds on a machine of many GPUs. A step's time
// is far above that of a decode step on the slowest GPU. Tests make them shorter.
Deadlines cuda_deadlines = {.call_ms = 5'000, .open_ms = 60'000, .step_ms = 20'000};

Deadlines deadlines() {
  return cuda_deadlines;
}

int32_t count(std::string& why_none) {
  load_kernels_at_once();
  int count = 0;
  cudaError_t const status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
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

Outcome select(int32_t device) {
  load_kernels_at_once();
  if (Outcome const outcome = outcome_of(cudaSetDevice(device), "selecting the device"); !outcome)
    return outcome;
  int major = 0, minor = 0;
  cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (status != cudaSuccess) return outcome_of(status, "asking for the device");
  // The library contains machine code only and compiles nothing at run time.
  if (runs_on(BUNTING_CUDA_ARCHITECTURES, major * 10 + minor)) return {};
  return {Outcome::Kind::unsupported, "is sm_" + std::to_string(major) + std::to_string(minor) +
                                          "; this library has kernels for sm " BUNTING_CUDA_ARCHITECTURES};
}

Outcome describe(int32_t device, DeviceInfo& info) {
  cudaDeviceProp properties;
  cudaError_t status = cudaGetDeviceProperties(&properties, device);
  size_t free = 0, total = 0;
  if (status == cudaSuccess) status = cudaMemGetInfo(&free, &total);
  if (status != cudaSuccess) return outcome_of(status, "asking for the device");
  int driver = 0;
  cudaDriverGetVersion(&driver);
  int const capability = properties.major * 10 + properties.minor;
  info = {properties.name,
          capability,
          properties.multiProcessorCount,
          properties.sharedMemPerBlockOptin,
          total,
          free,
          "sm_" + std::to_string(capability) + ", driver for CUDA " + version_text(driver)};
  return {};
}

Outcome reset(int32_t device) {
  // Selecting a device after a fault reports the fault again, so the selection alone counts here.
  cudaSetDevice(device);
  int selected = -1;
  cudaGetDevice(&selected);
  if (selected != device) return {Outcome::Kind::failed, "the device cannot be selected"};
  return outcome_of(cudaDeviceReset(), "resetting the device");
}

Outcome allocate(size_t bytes, void*& data) {
  cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaSuccess) status = cudaMemset(data, 0, bytes);
  // The streams of an engine do not wait for the legacy stream.
  if (status == cudaSuccess) status = cudaStreamSynchronize(cudaStreamLegacy);
  Outcome const outcome = outcome_of(status, "allocating device memory");
  if (!outcome && data) cudaFree(std::exchange(data, nullptr));
  return outcome;
}

Outcome release(void* data, size_t) {
  return outcome_of(cudaFree(data), "freeing device memory");
}

Outcome allocate_mapped(size_t bytes, void*& data) {
  cudaError_t const status = cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (status == cudaSuccess) std::memset(data, 0, bytes);
  return outcome_of(status, "allocating pinned memory");
}

Outcome release_mapped(void* data, size_t) {
  return outcome_of(cudaFreeHost(data), "freeing pinned memory");
}

Outcome resident_blocks(void const* kernel, LaunchShape shape, int32_t& blocks) {
  void const* const function = function_at(kernel);
  if (Outcome const outcome = allow_shared(function, shape, "asking for a kernel"); !outcome) return outcome;
  int count = 0;
  cudaError_t const status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, shape.threads, shape.shared_bytes);
  blocks = count;
  return outcome_of(status, "asking for a kernel");
}

Outcome open_stream(void*& stream) {
  auto made = std::make_unique<NativeStream>();
  cudaError_t status = cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking);
  if (status == cudaSuccess)
    status = cudaEventCreateWithFlags(&made->event, cudaEventBlockingSync | cudaEventDisableTiming);
  Outcome const outcome = outcome_of(status, "making a stream");
  if (outcome)
    stream = made.release();
  else if (made->stream)
    cudaStreamDestroy(made->stream);
  return outcome;
}

Outcome close_stream(void* stream) {
  std::unique_ptr<NativeStream> const closing(&native(stream));
  cudaStreamSynchronize(closing->stream);
  cudaEventDestroy(closing->event);
  return outcome_of(cudaStreamDestroy(closing->stream), "closing a stream");
}

Outcome copy(void* stream, void* to, void const* from, size_t bytes) {
  return outcome_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream).stream), "copying");
}

Outcome fill(void* stream, void* to, int value, size_t bytes) {
  return outcome_of(cudaMemsetAsync(to, value, bytes, native(stream).stream), "filling memory");
}

Outcome launch(void* stream, Launch const& launch) {
  void const* const function = function_at(launch.kernel);
  if (Outcome const outcome = allow_shared(function, launch.shape, launch.name); !outcome) return outcome;
  void* arguments[] = {const_cast<void*>(launch.argument)};
  return outcome_of(
      cudaLaunchKernel(function, dim3(unsigned(launch.shape.blocks)), dim3(unsigned(launch.shape.threads)),
                       arguments, launch.shape.shared_bytes, native(stream).stream),
      launch.name);
}

Outcome call(void* stream, std::function<std::string(void* native)> const& work) {
  std::string const failure = work(native(stream).stream);
  if (failure.empty()) return {};
  return {Outcome::Kind::failed, failure};
}

Outcome begin_recording(void* stream) {
  return outcome_of(cudaStreamBeginCapture(native(stream).stream, cudaStreamCaptureModeThreadLocal),
                    "recording a graph");
}

Outcome end_recording(void* stream, void*& graph) {
  cudaGraph_t recorded = nullptr;
  cudaError_t status = cudaStreamEndCapture(native(stream).stream, &recorded);
  cudaGraphExec_t made = nullptr;
  if (status == cudaSuccess) status = cudaGraphInstantiate(&made, recorded, 0);
  if (recorded) cudaGraphDestroy(recorded);
  if (status == cudaSuccess) status = cudaGraphUpload(made, native(stream).stream);
  graph = made;
  return outcome_of(status, "recording a graph");
}

Outcome launch_graph(void* stream, void* graph) {
  return outcome_of(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), native(stream).stream),
                    "launching a graph");
}

Outcome close_graph(void* graph) {
  return outcome_of(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)), "freeing a graph");
}

Outcome finish(void* stream) {
  using Clock = std::chrono::steady_clock;
  NativeStream& of = native(stream);
  cudaError_t status = cudaEventRecord(of.event, of.stream);
  // Polling sees the end of a short event sooner than an interrupt would.
  constexpr auto kLooking = std::chrono::milliseconds(1);
  constexpr auto kPause = std::chrono::microseconds(10);
  auto const until = Clock::now() + kLooking;
  if (status == cudaSuccess) status = cudaEventQuery(of.event);
  while (status == cudaErrorNotReady && Clock::now() < until) {
    std::this_thread::sleep_for(kPause);
    status = cudaEventQuery(of.event);
  }
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    status = cudaEventSynchronize(of.event);
  }
  return outcome_of(status, "running kernels");
}

}  // namespace bunting::cuda::driver
