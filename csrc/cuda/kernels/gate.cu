// gate.cu - y[t, f] = activation(gate[t, f]) * up[t, f], or activation(gate[t, f]) alone.
//
//   gate, up  [T, F] f32, rows of wider ones     y  [T, F] bf16
//
// SiLU is g / (1 + exp(-g)); GELU by tanh is g / (1 + exp(-2u)) with u = sqrt(2 / pi) (g + 0.044715 g^3); the
// clamped SwiGLU is g / (1 + exp(-1.702 g)) * (up + 1) with g = min(gate, 7) and up within -7 to 7. engine.h
// has xIELU and the squared ReLU.
//
// Work:     one block per 1024 columns of a token, four per thread.
// Roofline: memory, 10 * F bytes per token.
// Checked:  against reference::gate and reference::xielu in double, one bf16 rounding.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"
#include "include/engine.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;
constexpr int kColumns = 4 * kThreads;
constexpr float kLimit = 7, kSlope = 1.702f;  // parameters of the clamped SwiGLU
constexpr float kTwiceRootOfTwoByPi = 1.59576912f, kCubic = 0.044715f;

struct Task {
  Gate g;
  int32_t blocks_per_token;
};

// Returns x / (1 + exp(-of)).
GPU_DEVICE float times_logistic(float x, float of) {
  constexpr float kLog2E = 1.44269504f;
  return x / (1 + exp2_fast(-kLog2E * of));
}

GPU_DEVICE float xielu(Xielu const& of, float x) {
  float const low = x < of.epsilon ? x : of.epsilon;
  return of.beta * x + (x > 0 ? of.p * x * x : of.n * (expm1f(low) - x));
}

// Returns the gated value; NaN stays NaN.
GPU_DEVICE float gated(Gate const& of, float gate, float up) {
  switch (of.activation) {
    case BUNTING_ACTIVATION_XIELU:
      return xielu(of.xielu, gate);
    case BUNTING_ACTIVATION_RELU_SQUARED: {
      float const positive = gate < 0 ? 0 : gate;
      return up * positive * positive;
    }
    case BUNTING_ACTIVATION_GELU_TANH:
      return up * times_logistic(gate, kTwiceRootOfTwoByPi * (gate + kCubic * gate * gate * gate));
    case BUNTING_ACTIVATION_CLAMPED_SWIGLU: {
      float const g = gate > kLimit ? kLimit : gate;
      float const u = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
      return (u + 1) * times_logistic(g, kSlope * g);
    }
    default:
      return up * times_logistic(gate, gate);
  }
}

GPU_KERNEL(kThreads, 8) gate_kernel(Task const task) {
  Gate const& g = task.g;
  int64_t const token = block_index() / task.blocks_per_token;
  int const column = block_index() % task.blocks_per_token * kColumns + 4 * thread_index();
  if (column >= g.feed_forward) return;
  int64_t const up_row = g.up_rows ? load(g.up_rows + token) : token;
  float const scale = g.scales ? load(g.scales + load(g.scale_rows + token)) : 1;
  Float4 const gate = load(reinterpret_cast<Float4 const*>(g.gate + token * g.gate_stride + column));
  Float4 y{{1, 1, 1, 1}};
  if (g.up) y = load(reinterpret_cast<Float4 const*>(g.up + up_row * g.up_stride + column));
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) y.at[j] = gated(g, scale * gate.at[j], scale * y.at[j]);
  store(reinterpret_cast<Half4*>(g.y + token * g.feed_forward + column), narrow4(y));
}

}  // namespace

void gate(Stream& stream, Gate const& g) {
  if (g.tokens == 0) return;
  Task const task{g, (g.feed_forward + kColumns - 1) / kColumns};
  stream.launch("gate", gate_kernel, {g.tokens * task.blocks_per_token, kThreads, 0}, task);
}

}  // namespace bunting::cuda
