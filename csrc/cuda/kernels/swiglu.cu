// swiglu.cu - y[t, f] = silu(gate_up[t, f]) * gate_up[t, F + f].
//
//   gate_up  [T, 2F] f32     y  [T, F] bf16
//
// Work:     one block per 1024 columns of a token, four per thread.
// Roofline: memory, 10 * F bytes per token.
// Checked:  against reference::swiglu in double, one bf16 rounding.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;
constexpr int kColumns = 4 * kThreads;
constexpr float kLog2E = 1.44269504f;

struct Task {
  SwiGlu s;
  int32_t blocks_per_token;
};

GPU_KERNEL(kThreads, 8) swiglu_kernel(Task const task) {
  SwiGlu const& s = task.s;
  int64_t const token = block_index() / task.blocks_per_token;
  int const column = block_index() % task.blocks_per_token * kColumns + 4 * thread_index();
  if (column >= s.feed_forward) return;
  float const* const row = s.gate_up + token * 2 * s.feed_forward + column;
  Float4 const gate = load(reinterpret_cast<Float4 const*>(row));
  Float4 y = load(reinterpret_cast<Float4 const*>(row + s.feed_forward));
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) y.at[j] *= gate.at[j] / (1 + exp2_fast(-kLog2E * gate.at[j]));
  store(reinterpret_cast<Half4*>(s.y + token * s.feed_forward + column), narrow4(y));
}

}  // namespace

void swiglu(Stream& stream, SwiGlu const& s) {
  if (s.tokens == 0) return;
  Task const task{s, (s.feed_forward + kColumns - 1) / kColumns};
  stream.launch("swiglu", swiglu_kernel, {s.tokens * task.blocks_per_token, kThreads, 0}, task);
}

}  // namespace bunting::cuda
