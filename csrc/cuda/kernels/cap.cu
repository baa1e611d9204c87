// cap.cu - x = cap * tanh(x / cap), in place.
//
// Work:     four numbers per thread.
// Roofline: memory, 8 bytes per number.
// Checked:  against sums in double, to 1e-6 of the cap.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256, kOfBlock = 4 * kThreads;

GPU_KERNEL(kThreads, 8) cap_kernel(Cap const c) {
  float const inverse = 1 / c.cap;
  GPU_UNROLL
  for (int i = 0; i < kOfBlock / kThreads; ++i) {
    int64_t const at = int64_t(block_index()) * kOfBlock + i * kThreads + thread_index();
    if (at < c.count) store(c.x + at, c.cap * tanh_of(load(c.x + at) * inverse));
  }
}

}  // namespace

void cap(Stream& stream, Cap const& c) {
  int32_t const blocks = int32_t((c.count + kOfBlock - 1) / kOfBlock);
  if (blocks > 0) stream.launch("cap", cap_kernel, {blocks, kThreads, 0}, c);
}

}  // namespace bunting::cuda
