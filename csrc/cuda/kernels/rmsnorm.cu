// rmsnorm.cu - x[r] += delta_scale * delta[r]; y[r] = x[r] / sqrt(mean(x[r]^2) + epsilon) * weight.
//
//   x  [T, H] f32, read and, with a delta, written     y  [T, H] bf16     delta  [T, H] f32 or null
//
// Work:     one block per row. A thread adds up every 256th group of four columns and reads them again for
//           y, from L1.
// Roofline: memory, 14 * H bytes per row with a delta.
// Checked:  against reference::rmsnorm in double, one bf16 rounding.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;
constexpr size_t kSharedBytes = kThreads / kWarp * sizeof(float);

GPU_KERNEL(kThreads, 4) rmsnorm_kernel(RmsNorm const n) {
  int const row = block_index();
  Float4* const x = reinterpret_cast<Float4*>(n.x + int64_t(row) * n.hidden);
  float squares = 0;
  for (int i = thread_index(); i < n.hidden / 4; i += kThreads) {
    Float4 v = load(x + i);
    if (n.delta) {
      Float4 const delta = load(reinterpret_cast<Float4 const*>(n.delta + int64_t(row) * n.hidden) + i);
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) v.at[j] += n.delta_scale * delta.at[j];
      store(x + i, v);
    }
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) squares += v.at[j] * v.at[j];
  }
  float const mean = block_sum<kThreads>(squares, Shared<float>{0}) / float(n.hidden);
  float const scale = reciprocal_sqrt(mean + n.epsilon);
  Half4* const y = reinterpret_cast<Half4*>(n.y + int64_t(row) * n.hidden);
  for (int i = thread_index(); i < n.hidden / 4; i += kThreads) {
    Float4 v = load(x + i);
    Float4 const weight = load(reinterpret_cast<Float4 const*>(n.weight) + i);
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) v.at[j] *= scale * weight.at[j];
    store(y + i, narrow4(v));
  }
}

}  // namespace

void rmsnorm(Stream& stream, RmsNorm const& n) {
  if (n.tokens > 0) stream.launch("rmsnorm", rmsnorm_kernel, {n.tokens, kThreads, kSharedBytes}, n);
}

}  // namespace bunting::cuda
