// embed.cu - x[t] = scale * table[ids[t]].
//
//   table  [V, H] bf16     x  [T, H] f32
//
// Work:     one block per token, eight columns per thread and turn.
// Roofline: memory, 6 * H bytes per token.
// Checked:  exactly.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 128;

GPU_KERNEL(kThreads, 8) embed_kernel(Embed const e) {
  int const token = block_index();
  Vec const* const row = reinterpret_cast<Vec const*>(e.table + int64_t(load(e.ids + token)) * e.hidden);
  Float4* const x = reinterpret_cast<Float4*>(e.x + int64_t(token) * e.hidden);
  for (int i = thread_index(); i < e.hidden / 8; i += kThreads) {
    Vec const v = load(row + i);
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      uint32_t const first = v.word[2 * half], second = v.word[2 * half + 1];
      store(x + 2 * i + half, Float4{{e.scale * widen_low(first), e.scale * widen_high(first),
                                      e.scale * widen_low(second), e.scale * widen_high(second)}});
    }
  }
}

}  // namespace

void embed(Stream& stream, Embed const& e) {
  if (e.tokens > 0) stream.launch("embed", embed_kernel, {e.tokens, kThreads, 0}, e);
}

}  // namespace bunting::cuda
