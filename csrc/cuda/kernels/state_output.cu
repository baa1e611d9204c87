// state_output.cu - norm and gate of a recurrent mixer's output, and the gate of attention's output.
//
//   state_output  y = norm(x) silu(z), norm(x silu(z)) or x silu(z)     x, z  f32     y  bf16
//   gate_output   x = x sigmoid(gate), in place                         x  bf16       gate  f32
//
// Work:     state_output: one block per token and part of a row that shares a norm, of one warp if the part
// is a
//           head; four numbers per thread and turn, which are read again for y, from L1. gate_output: eight
//           numbers per thread.
// Roofline: memory, 10 bytes per number; gate_output 8.
// Checked:  against loops in double, one bf16 rounding.
#include "cuda/kernels/device.h"
#include "cuda/kernels/states.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;
constexpr int kHeadMax = 256;  // numbers of the longest part that one warp computes
constexpr float kLog2E = 1.44269504f;

GPU_DEVICE float logistic(float x) {
  return 1 / (1 + exp2_fast(-kLog2E * x));
}

// Returns four numbers x, times silu(z) if `is_gated`.
GPU_DEVICE Float4 gated(Float4 x, float const* z, bool is_gated) {
  if (!is_gated) return x;
  Float4 const gate = load(reinterpret_cast<Float4 const*>(z));
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) x.at[j] *= gate.at[j] * logistic(gate.at[j]);
  return x;
}

template <int kBlock>
GPU_KERNEL(kBlock, kBlock == kThreads ? 4 : 24)
state_output_kernel(StateOutput const o) {
  int const parts = o.width / o.part;
  int64_t const token = block_index() / parts;
  int const first = block_index() % parts * o.part;
  float const* const x = o.x + token * o.width + first;
  float const* const z = o.z + token * o.z_stride + first;
  float const* const norm = o.norm ? o.norm + (o.norm_repeats ? 0 : first) : nullptr;
  bool const is_before = o.gate_first || !norm;
  auto const value = [&](int i) {
    return gated(load(reinterpret_cast<Float4 const*>(x + i)), z + i, is_before);
  };
  float scale = 1;
  if (norm) {
    float squares = 0;
    for (int i = 4 * thread_index(); i < o.part; i += 4 * kBlock) {
      Float4 const v = value(i);
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) squares = fmaf(v.at[j], v.at[j], squares);
    }
    scale = reciprocal_sqrt(block_sum<kBlock>(squares, {0}) / float(o.part) + o.epsilon);
  }
  for (int i = 4 * thread_index(); i < o.part; i += 4 * kBlock) {
    Float4 v = value(i);
    if (norm) {
      Float4 const weight = load(reinterpret_cast<Float4 const*>(norm + i));
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) v.at[j] *= scale * weight.at[j];
    }
    store(reinterpret_cast<Half4*>(o.y + token * o.width + first + i), narrow4(gated(v, z + i, !is_before)));
  }
}

GPU_KERNEL(kThreads, 8) gate_output_kernel(GateOutput const g) {
  int64_t const i = (int64_t(block_index()) * kThreads + thread_index()) * 8;
  if (i >= int64_t(g.tokens) * g.width) return;
  Vec x = load(reinterpret_cast<Vec const*>(g.x + i));
  GPU_UNROLL
  for (int half = 0; half < 2; ++half) {
    Float4 const gate = load(reinterpret_cast<Float4 const*>(g.gate + i) + half);
    GPU_UNROLL
    for (int j = 0; j < 2; ++j) {
      uint32_t const pair = x.word[2 * half + j];
      x.word[2 * half + j] =
          narrow(widen_low(pair) * logistic(gate.at[2 * j]), widen_high(pair) * logistic(gate.at[2 * j + 1]));
    }
  }
  store(reinterpret_cast<Vec*>(g.x + i), x);
}

}  // namespace

void state_output(Stream& stream, StateOutput const& o) {
  int32_t const blocks = o.tokens * (o.width / o.part);
  if (blocks == 0) return;
  auto const launch = [&](auto* kernel, int32_t threads) {
    stream.launch("state_output", kernel, {blocks, threads, size_t(threads / kWarp) * sizeof(float)}, o);
  };
  o.part <= kHeadMax ? launch(state_output_kernel<kWarp>, kWarp)
                     : launch(state_output_kernel<kThreads>, kThreads);
}

void gate_output(Stream& stream, GateOutput const& g) {
  int64_t const threads = int64_t(g.tokens) * g.width / 8;
  int32_t const blocks = int32_t((threads + kThreads - 1) / kThreads);
  if (blocks > 0) stream.launch("gate_output", gate_output_kernel, {blocks, kThreads, 0}, g);
}

}  // namespace bunting::cuda
