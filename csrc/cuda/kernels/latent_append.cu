// latent_append.cu - steps between the projections and the attention of a latent layer.
//
//   query head [nope | rope]: nope to an operand; rope rotated, behind the latent's place in q. Both are
//                             multiplied by the scale of the position.
//   token [latent | rope]:    norm(latent), rope rotated, to the token's slot
//
// Work:     one warp per token and query head, and one per token for its key.
// Roofline: memory, 6 bytes per number.
// Checked:  against reference::latent_append in double, one rounding to bf16.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4;

GPU_DEVICE bf16 narrow_one(float x) {
  return bf16(narrow(x, 0));
}

// Rotates R numbers, times `scale`, to `to`.
GPU_DEVICE void rotate(LatentAppend const& a, float const* from, bf16* to, int token, float scale) {
  int const half = a.rotated / 2;
  int64_t const angles = int64_t(token) * half;
  for (int i = lane(); i < half; i += kWarp) {
    float const x = load(from + i), y = load(from + i + half), cos = load(a.cos + angles + i),
                sin = load(a.sin + angles + i);
    store(to + i, narrow_one((x * cos - y * sin) * scale));
    store(to + i + half, narrow_one((y * cos + x * sin) * scale));
  }
}

GPU_DEVICE void append_key(LatentAppend const& a, int token) {
  int const slot = load(a.slots + token), d = a.kv.head_size;
  if (slot == kNoSlot) return;
  float const* const in = a.key + int64_t(token) * d;
  bf16* const out =
      a.kv.layer + slot / a.kv.page_tokens * a.kv.page_stride + int64_t(slot % a.kv.page_tokens) * d;
  float squares = 0;
  for (int i = lane(); i < a.latent / 2; i += kWarp) {
    Float2 const x = load(reinterpret_cast<Float2 const*>(in) + i);
    squares += x.at[0] * x.at[0] + x.at[1] * x.at[1];
  }
  float const scale = reciprocal_sqrt(warp_sum(squares) / float(a.latent) + a.norm_epsilon);
  for (int i = lane(); i < a.latent / 2; i += kWarp) {
    Float2 const x = load(reinterpret_cast<Float2 const*>(in) + i),
                 w = load(reinterpret_cast<Float2 const*>(a.norm) + i);
    store(reinterpret_cast<uint32_t*>(out) + i, narrow(x.at[0] * scale * w.at[0], x.at[1] * scale * w.at[1]));
  }
  rotate(a, in + a.latent, out + a.latent, token, 1);
}

GPU_KERNEL(kWarps* kWarp, 8) latent_append_kernel(LatentAppend const a) {
  int64_t const task = int64_t(block_index()) * kWarps + warp();
  if (task >= int64_t(a.tokens) * (a.query_heads + 1)) return;
  int const token = int(task / (a.query_heads + 1)), head = int(task % (a.query_heads + 1));
  if (head == a.query_heads) return append_key(a, token);
  int64_t const row = int64_t(token) * a.query_heads + head;
  float const* const in = a.queries + row * (a.nope_size + a.rotated);
  float const scale = a.query_scale ? load(a.query_scale + load(a.positions + token)) : 1;
  uint32_t* const nope = reinterpret_cast<uint32_t*>(a.nope + row * a.nope_size);
  for (int i = lane(); i < a.nope_size / 2; i += kWarp) {
    Float2 const x = load(reinterpret_cast<Float2 const*>(in) + i);
    store(nope + i, narrow(x.at[0] * scale, x.at[1] * scale));
  }
  rotate(a, in + a.nope_size, a.q + row * a.kv.head_size + a.latent, token, scale);
}

}  // namespace

void latent_append(Stream& stream, LatentAppend const& a) {
  int64_t const tasks = int64_t(a.tokens) * (a.query_heads + 1);
  int32_t const blocks = int32_t((tasks + kWarps - 1) / kWarps);
  if (blocks > 0) stream.launch("latent_append", latent_append_kernel, {blocks, kWarps * kWarp, 0}, a);
}

}  // namespace bunting::cuda
