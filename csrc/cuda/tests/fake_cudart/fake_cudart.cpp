#include "cuda/tests/fake_cudart/fake_cudart.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

using bunting::test::FakeCuda;

struct FakeStream {
  int device;
  bool is_capturing;
  std::vector<std::function<void()>> late = {};  // work that nobody has waited for

  void catch_up() {
    for (auto const& work : std::exchange(late, {})) work();
  }
  cudaError_t take(cudaError_t status, std::function<void()> work) {
    if (status == cudaSuccess && !is_capturing) late.push_back(std::move(work));
    return status;
  }
};
struct FakeEvent {
  int device;
  FakeStream* stream = nullptr;  // recorded on
};
struct FakeGraph {
  int device;
};

namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  FakeCuda plan;
  int life = 0;  // of the plan
  std::array<bool, 2> is_faulty = {};
  int launches = 0, objects = 0, calls = 0;
  std::vector<int> resets;
};
State& state() {
  static State& the_state = *new State;  // threads outlive main()
  return the_state;
}
thread_local int current = 0;

// Begins a call: it hangs, fails, or reports an earlier fault of the device.
cudaError_t enter(char const* name, int device) {
  std::unique_lock lock(state().mutex);
  FakeCuda& plan = state().plan;
  bool const is_planned =
      device == 0 && (plan.hang_in == name || plan.no_memory_in == name || plan.fault_in == name);
  bool const is_due = is_planned && state().calls++ >= plan.calls_before;
  if (is_due && plan.fault_in == name) state().is_faulty[0] = true;
  if (is_due && plan.hang_in == name) {
    int const life = state().life;
    state().changed.wait(lock, [&] { return state().life != life; });
    return cudaErrorIllegalAddress;
  }
  if (is_due && plan.no_memory_in == name && !(plan.is_once && state().calls > plan.calls_before + 1))
    return cudaErrorMemoryAllocation;
  return state().is_faulty[size_t(device)] ? cudaErrorIllegalAddress : cudaSuccess;
}

void count(int objects) {
  std::lock_guard lock(state().mutex);
  state().objects += objects;
}

template <class Object>
cudaError_t make(char const* name, Object** object, Object const& value) {
  cudaError_t const status = enter(name, current);
  if (status != cudaSuccess) return status;
  *object = new Object(value);
  count(1);
  return status;
}
template <class Object>
cudaError_t unmake(char const* name, Object* object) {
  cudaError_t const status = enter(name, object->device);
  if (status != cudaSuccess) return status;
  delete object;
  count(-1);
  return status;
}

cudaError_t make_memory(char const* name, void** data, size_t bytes) {
  cudaError_t const status = enter(name, current);
  if (status != cudaSuccess) return status;
  *data = std::malloc(bytes);
  count(1);
  return status;
}
cudaError_t free_memory(char const* name, void* data) {
  cudaError_t const status = enter(name, current);
  if (status != cudaSuccess) return status;
  std::free(data);
  count(-1);
  return status;
}

}  // namespace

namespace bunting::test {

void set_fake_cuda(FakeCuda const& plan) {
  std::lock_guard lock(state().mutex);
  state().plan = plan;
  ++state().life;
  state().is_faulty = {};
  state().launches = state().calls = 0;
  state().resets.clear();
  state().changed.notify_all();
}

std::vector<int> fake_cuda_resets() {
  std::lock_guard lock(state().mutex);
  return state().resets;
}

int fake_cuda_calls() {
  std::lock_guard lock(state().mutex);
  return state().calls;
}

int fake_cuda_objects() {
  std::lock_guard lock(state().mutex);
  return state().objects;
}

}  // namespace bunting::test

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
char const* cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "an error";
}
char const* cudaGetErrorName(cudaError_t status) {
  return status == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 2;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current = device;
  return enter("cudaSetDevice", device);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"a fake", 9, 0, 4, 227 * 1024};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t(1) << 30;
  return enter("cudaMemGetInfo", current);
}
cudaError_t cudaDeviceReset() {
  {
    std::lock_guard lock(state().mutex);
    state().resets.push_back(current);
    state().is_faulty[size_t(current)] = false;
  }
  return enter("cudaDeviceReset", current);
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  return make_memory("cudaMalloc", data, bytes);
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  std::memset(data, value, bytes);
  return enter("cudaMemset", current);
}
cudaError_t cudaFree(void* data) {
  return free_memory("cudaFree", data);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return make_memory("cudaHostAlloc", data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  return free_memory("cudaFreeHost", data);
}
cudaError_t cudaFuncSetAttribute(void const*, cudaFuncAttribute, int) {
  return enter("cudaFuncSetAttribute", current);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const*, int,
                                                          size_t shared_bytes) {
  *blocks = int(228 * 1024 / (shared_bytes + 1024));
  return enter("cudaOccupancyMaxActiveBlocksPerMultiprocessor", current);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return make("cudaStreamCreateWithFlags", stream, FakeStream{current, false, {}});
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return unmake("cudaStreamDestroy", stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream) stream->catch_up();
  return enter("cudaStreamSynchronize", stream ? stream->device : current);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return make("cudaEventCreateWithFlags", event, FakeEvent{current, nullptr});
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return unmake("cudaEventDestroy", event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  return enter("cudaEventRecord", stream->device);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  event->stream->catch_up();
  return enter("cudaEventQuery", event->device);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  event->stream->catch_up();
  return enter("cudaEventSynchronize", event->device);
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return stream->take(enter("cudaMemcpyAsync", stream->device), [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return stream->take(enter("cudaMemsetAsync", stream->device), [=] { std::memset(data, value, bytes); });
}
cudaError_t cudaLaunchKernel(void const*, dim3, dim3, void**, size_t, cudaStream_t stream) {
  cudaError_t const status = enter("cudaLaunchKernel", stream->device);
  std::lock_guard lock(state().mutex);
  if (status == cudaSuccess && stream->device == 0 && state().launches++ == state().plan.faulty_launch)
    state().is_faulty[0] = true;  // a later call reports it
  return status;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->is_capturing = true;
  return enter("cudaStreamBeginCapture", stream->device);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream->is_capturing = false;
  return make("cudaStreamEndCapture", graph, FakeGraph{stream->device});
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return make("cudaGraphInstantiate", made, FakeGraph{graph->device});
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return unmake("cudaGraphDestroy", graph);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t) {
  return enter("cudaGraphUpload", graph->device);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  return enter("cudaGraphLaunch", graph->device);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return unmake("cudaGraphExecDestroy", graph);
}
