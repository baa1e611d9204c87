// cuda_runtime_api.h - the parts of the CUDA runtime that runtime_cuda.cpp uses, declared for the fake
// (fake_cudart.cpp). Numbers are the fake's own.
#pragma once

#include <cstddef>

enum cudaError_t {
  cudaSuccess,
  cudaErrorMemoryAllocation,
  cudaErrorInsufficientDriver,
  cudaErrorNotReady,
  cudaErrorIllegalAddress,
  cudaErrorStreamCaptureUnsupported,
};
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor };
enum cudaMemcpyKind { cudaMemcpyDefault };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum : unsigned { cudaHostAllocMapped = 1, cudaHostAllocPortable = 2 };
enum : unsigned { cudaStreamNonBlocking = 1 };
enum : unsigned { cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };

struct FakeStream;
struct FakeEvent;
struct FakeGraph;
using cudaStream_t = FakeStream*;
using cudaEvent_t = FakeEvent*;
using cudaGraph_t = FakeGraph*;
using cudaGraphExec_t = FakeGraph*;
inline cudaStream_t const cudaStreamLegacy = nullptr;

struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  size_t sharedMemPerBlockOptin;
};
struct dim3 {
  unsigned x;
  explicit dim3(unsigned blocks) : x(blocks) {}
};

cudaError_t cudaGetLastError();
char const* cudaGetErrorString(cudaError_t status);
char const* cudaGetErrorName(cudaError_t status);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDeviceReset();
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaMemset(void* data, int value, size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaFuncSetAttribute(void const* function, cudaFuncAttribute attribute, int value);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const* function, int threads,
                                                          size_t shared_bytes);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaMemcpyAsync(void* to, void const* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaLaunchKernel(void const* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
