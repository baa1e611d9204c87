// add_norm.cu - x[r] = sum_scale * (x[r] + delta_scale * norm(delta[r])); y[r] = norm(x[r]).
//
//   x  [T, H] f32, read and, with a delta, written     y  [T, H] bf16     delta  [T, H] f32 or null
//
// A norm is x / sqrt(mean(x^2) + epsilon) * weight, or the same of x - mean(x), maybe with a bias, or,
// without weights, x itself.
//
// Work:     one block per row. A thread adds up every 256th group of four columns and reads them again for y,
//           from L1; once more where the mean is subtracted.
// Roofline: memory, 14 * H bytes per row with a delta.
// Checked:  against reference::norm and reference::add_normed in double, one bf16 rounding.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"
#include "include/engine.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;
constexpr int kSums = kThreads / kWarp;  // floats of scratch for a sum over the block
constexpr size_t kSharedBytes = 4 * kSums * sizeof(float);

// Affine map of a row's numbers: (v - mean) * scale * weight, plus a bias if the norm has biases.
struct Moments {
  float mean = 0, scale = 1;
  GPU_DEVICE Float4 of(AddNorm const& n, Float4 const& v, float const* weights, int i) const {
    Float4 const weight = load(reinterpret_cast<Float4 const*>(weights) + i);
    Float4 bias{{0, 0, 0, 0}};
    if (n.has_biases) bias = load(reinterpret_cast<Float4 const*>(weights + n.hidden) + i);
    Float4 out;
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) out.at[j] = (v.at[j] - mean) * (scale * weight.at[j]) + bias.at[j];
    return out;
  }
};

// Thread's part of the sums over a row.
struct Sums {
  float sum = 0, squares = 0;
  GPU_DEVICE void add(Float4 const& v) {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      sum += v.at[j];
      squares += v.at[j] * v.at[j];
    }
  }
};

// Returns the moments of a row; `scratch` has room for two sums.
GPU_DEVICE Moments moments_of(AddNorm const& n, Float4 const* row, Sums const& sums, Shared<float> scratch) {
  float const count = float(n.hidden);
  if (n.kind == BUNTING_NORM_RMS)
    return {0, reciprocal_sqrt(block_sum<kThreads>(sums.squares, scratch) / count + n.epsilon)};
  float const mean = block_sum<kThreads>(sums.sum, scratch) / count;
  float deviations = 0;
  for (int i = thread_index(); i < n.hidden / 4; i += kThreads) {
    Float4 const v = load(row + i);
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) deviations += (v.at[j] - mean) * (v.at[j] - mean);
  }
  return {mean, reciprocal_sqrt(block_sum<kThreads>(deviations, scratch + kSums) / count + n.epsilon)};
}

GPU_KERNEL(kThreads, 4) add_norm_kernel(AddNorm const n) {
  int64_t const row = int64_t(block_index()) * n.hidden;
  int const vectors = n.hidden / 4;
  Float4* const x = reinterpret_cast<Float4*>(n.x + row);
  Float4 const* const delta = n.delta ? reinterpret_cast<Float4 const*>(n.delta + row) : nullptr;
  Shared<float> const scratch{0};

  Moments of_delta;
  if (delta && n.delta_weight) {
    Sums sums;
    for (int i = thread_index(); i < vectors; i += kThreads) sums.add(load(delta + i));
    of_delta = moments_of(n, delta, sums, scratch);
  }
  Sums sums;
  for (int i = thread_index(); i < vectors; i += kThreads) {
    Float4 v = load(x + i);
    if (delta) {
      Float4 added = load(delta + i);
      if (n.delta_weight) added = of_delta.of(n, added, n.delta_weight, i);
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) v.at[j] = (v.at[j] + n.delta_scale * added.at[j]) * n.sum_scale;
      store(x + i, v);
    }
    sums.add(v);
  }
  if (!n.y && !n.exact) return;
  Moments of_x;
  if (n.weight) of_x = moments_of(n, x, sums, scratch + 2 * kSums);
  Half4* const y = reinterpret_cast<Half4*>(n.y + row);
  for (int i = thread_index(); i < vectors; i += kThreads) {
    Float4 v = load(x + i);
    if (n.weight) v = of_x.of(n, v, n.weight, i);
    if (n.y) store(y + i, narrow4(v));
    if (n.exact) store(reinterpret_cast<Float4*>(n.exact + row) + i, v);
  }
}

}  // namespace

void add_norm(Stream& stream, AddNorm const& n) {
  if (n.tokens > 0) stream.launch("add_norm", add_norm_kernel, {n.tokens, kThreads, kSharedBytes}, n);
}

}  // namespace bunting::cuda
