// device.h - common device code of several kernels: small vectors and sums over a block.
#pragma once

#include "cuda/gpu.h"

namespace bunting::cuda {

struct alignas(16) Float4 {
  float at[4];
};
struct alignas(8) Float2 {
  float at[2];
};
struct alignas(8) Half4 {
  uint32_t pair[2];
};

GPU_DEVICE Half4 narrow4(Float4 const& x) {
  return {{gpu::narrow(x.at[0], x.at[1]), gpu::narrow(x.at[2], x.at[3])}};
}

// Returns tanh(x) within 2e-7.
GPU_DEVICE float tanh_of(float x) {
  constexpr float kTwiceLog2E = 2.88539008f;
  return 1 - 2 / (1 + gpu::exp2_fast(kTwiceLog2E * x));
}

// Returns the sum of x over the block's kThreads threads, in every thread, in one fixed order. `scratch`
// holds kThreads / 32 floats. A barrier must lie between its last use and this call.
template <int kThreads>
GPU_DEVICE float block_sum(float x, gpu::Shared<float> scratch) {
  x = gpu::warp_sum(x);
  if (gpu::lane() == 0) scratch.set(gpu::warp(), x);
  gpu::block_sync();
  float sum = 0;
  GPU_UNROLL
  for (int w = 0; w < kThreads / gpu::kWarp; ++w) sum += scratch.get(w);
  return sum;
}

}  // namespace bunting::cuda
