// experts.cu - groups tokens by their experts, and sums the experts' outputs per token.
//
//   chosen  [T, k]: pairs of a token and an expert; grouped pairs lie by rising expert, then rising token
//   y[t]    = sum over the token's experts, by rising number, of weight * x[its pair]
//
// Everything stays on the device: the host never learns how many pairs an expert has.
//
// Work:     grouping: a block per expert counts all pairs of the experts before its own, and then places its
//           own; each of its warps has a part of the pairs. Sums: a block per token.
// Roofline: grouping reads E * T * k words from L2; sums by memory, (4 k + 4) * H bytes per token.
// Checked:  exactly, and against sums in double.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

GPU_DEVICE int warp_total(int x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

GPU_KERNEL(kThreads, 4) group_experts_kernel(GroupExperts const g) {
  int const expert = block_index(), pairs = g.tokens * g.used;
  int const of_warp = (pairs + kThreads - 1) / kThreads * kWarp;
  int const begin = warp() * of_warp, end = begin + of_warp < pairs ? begin + of_warp : pairs;
  int before = 0, own = 0;
  for (int i = begin + lane(); i < end; i += kWarp) {
    int const of = load(g.chosen + i);
    before += of >= 0 && of < expert;
    own += of == expert;
  }
  before = warp_total(before);
  own = warp_total(own);
  Shared<int32_t> const befores{0}, owns = befores + kWarps;
  if (lane() == 0) {
    befores.set(warp(), before);
    owns.set(warp(), own);
  }
  block_sync();
  int first = 0, count = 0, at = 0;
  GPU_UNROLL
  for (int w = 0; w < kWarps; ++w) {
    first += befores.get(w);
    if (w < warp()) at += owns.get(w);
    count += owns.get(w);
  }
  at += first;
  for (int i = begin; i < end; i += kWarp) {
    int const choice = i + lane(), of = choice < end ? load(g.chosen + choice) : -2;
    uint32_t const ours = ballot(of == expert);
    if (of == expert) {
      int const pair = at + count_bits(ours & ((1u << lane()) - 1));
      store(g.row + pair, choice / g.used);
      store(g.pair + choice, pair);
    }
    if (of == -1 && expert == 0) store(g.pair + choice, -1);
    at += count_bits(ours);
  }
  if (thread_index() == 0) store(g.begin + expert, first);
  if (expert != g.experts - 1) return;
  if (thread_index() == 0) store(g.begin + g.experts, first + count);
  for (int i = first + count + thread_index(); i < pairs; i += kThreads) store(g.row + i, 0);
}

GPU_KERNEL(kThreads, 4) combine_experts_kernel(CombineExperts const c) {
  int64_t const token = block_index();
  for (int i = thread_index(); i < c.hidden / 4; i += kThreads) {
    Float4 sum{};
    if (c.shared) {
      constexpr float kLog2E = 1.44269504f;
      float const factor = c.gates ? 1 / (1 + exp2_fast(-kLog2E * load(c.gates + token))) : 1;
      sum = load(reinterpret_cast<Float4 const*>(c.shared + token * c.hidden) + i);
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) sum.at[j] *= factor;
    }
    for (int choice = 0; choice < c.used; ++choice) {
      int const pair = load(c.pair + token * c.used + choice);
      if (pair < 0) continue;
      float const weight = c.weights ? load(c.weights + token * c.used + choice) : 1;
      Float4 const x = load(reinterpret_cast<Float4 const*>(c.x + int64_t(pair) * c.hidden) + i);
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) sum.at[j] = fmaf(weight, x.at[j], sum.at[j]);
    }
    store(reinterpret_cast<Float4*>(c.y + token * c.hidden) + i, sum);
  }
}

}  // namespace

void group_experts(Stream& stream, GroupExperts const& g) {
  constexpr size_t kSharedBytes = 2 * kWarps * sizeof(int32_t);
  if (g.tokens > 0)
    stream.launch("group_experts", group_experts_kernel, {g.experts, kThreads, kSharedBytes}, g);
}

void combine_experts(Stream& stream, CombineExperts const& c) {
  if (c.tokens > 0) stream.launch("combine_experts", combine_experts_kernel, {c.tokens, kThreads, 0}, c);
}

}  // namespace bunting::cuda
