// rope_angles.cu - cosines and sines of the rotary embedding for a step's tokens.
//
//   far, near  f64     cos, sin  [T, R/2] f32
//
//   cos, sin of a + b = cos a cos b - sin a sin b, sin a cos b + cos a sin b; a at every kRopeStride-th
//   position
//
// Work:     a thread per token and pair; once a step, for all layers and heads that have the rope.
// Roofline: memory, 24 bytes per number, and seven operations in f64, which are cheap even on GPUs with a
//           1/64 rate.
// Checked:  bit for bit against the CPU's.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256;

GPU_KERNEL(kThreads, 4) rope_angles_kernel(RopeAngles const r) {
  int64_t const at = int64_t(block_index()) * kThreads + thread_index();
  if (at >= int64_t(r.tokens) * r.pairs) return;
  int const token = int(at / r.pairs), pair = int(at % r.pairs), position = load(r.positions + token);
  Turn const far = load(r.far + int64_t(position / kRopeStride) * r.pairs + pair);
  Turn const near = load(r.near + int64_t(position % kRopeStride) * r.pairs + pair);
  double const magnitude = r.magnitude;
  store(r.cos + at,
        float(magnitude * (multiply_rounded(far.cos, near.cos) - multiply_rounded(far.sin, near.sin))));
  store(r.sin + at,
        float(magnitude * (multiply_rounded(far.sin, near.cos) + multiply_rounded(far.cos, near.sin))));
}

}  // namespace

void rope_angles(Stream& stream, RopeAngles const& r) {
  int64_t const count = int64_t(r.tokens) * r.pairs;
  if (count > 0)
    stream.launch("rope_angles", rope_angles_kernel,
                  {int32_t((count + kThreads - 1) / kThreads), kThreads, 0}, r);
}

}  // namespace bunting::cuda
