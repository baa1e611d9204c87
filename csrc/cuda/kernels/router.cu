// router.cu - chooses the experts of a token: a product in f32, as on the CPU, so that both engines choose
// the same experts, then the choice.
//
//   logits[t, e] = sum_h x[t, h] * w[e, h] + bias[e]             x, w, logits  f32
//   chosen[t]    the k experts with the largest scores, plus biases, ties to the lower number; their weights
//
// Work:     logits: a block has four experts and eight tokens; each of its four warps processes every fourth
//           128 columns, and their sums are added in order. Choice: a warp per token.
// Roofline: one token reads the router once, over E/4 blocks; many tokens are bound by L1, three reads of
//           sixteen bytes per 32 multiplications of four numbers each.
// Checked:  against reference::choose_experts, and bit for bit against the same row in another batch.
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"
#include "include/engine.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kTokens = 8, kExperts = 4;  // per block
constexpr float kLog2E = 1.44269504f;
constexpr float kInfinity = __builtin_inff();

GPU_DEVICE int last_of(int index, int count) {
  return index < count ? index : count - 1;
}

GPU_KERNEL(kThreads, 4) router_kernel(Router const r) {
  int const expert_tiles = (r.experts + kExperts - 1) / kExperts;
  int const first_token = block_index() / expert_tiles * kTokens,
            first_expert = block_index() % expert_tiles * kExperts;
  float sums[kExperts][kTokens] = {};
  for (int i = thread_index(); i < r.hidden / 4; i += kThreads) {
    Float4 w[kExperts];
    GPU_UNROLL
    for (int e = 0; e < kExperts; ++e)
      w[e] = load(
          reinterpret_cast<Float4 const*>(r.w + int64_t(last_of(first_expert + e, r.experts)) * r.hidden) +
          i);
    GPU_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      Float4 const x = load(
          reinterpret_cast<Float4 const*>(r.x + int64_t(last_of(first_token + t, r.tokens)) * r.hidden) + i);
      GPU_UNROLL
      for (int e = 0; e < kExperts; ++e) {
        GPU_UNROLL
        for (int j = 0; j < 4; ++j) sums[e][t] = fmaf(w[e].at[j], x.at[j], sums[e][t]);
      }
    }
  }
  Shared<float> const of_warps{0};  // [warp][expert][token]
  GPU_UNROLL
  for (int e = 0; e < kExperts; ++e) {
    GPU_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      float const sum = warp_sum(sums[e][t]);
      if (lane() == 0) of_warps.set((warp() * kExperts + e) * kTokens + t, sum);
    }
  }
  block_sync();
  int const i = thread_index(), expert = first_expert + i / kTokens, token = first_token + i % kTokens;
  if (i >= kExperts * kTokens || expert >= r.experts || token >= r.tokens) return;
  float sum = r.bias ? load(r.bias + expert) : 0;
  GPU_UNROLL
  for (int w = 0; w < kWarps; ++w) sum += of_warps.get(w * kExperts * kTokens + i);
  store(r.logits + int64_t(token) * r.experts + expert, sum);
}

// Expert, what it is chosen by, and its score; -1: none.
struct Choice {
  int expert = -1;
  float by = -kInfinity, score = 0;
  GPU_DEVICE bool comes_before(Choice const& other) const {
    if (expert < 0 || other.expert < 0) return expert >= 0;
    return by > other.by || (by == other.by && expert < other.expert);
  }
};

// Turns this lane's logits of a token into scores: shares of the softmax over all, or sigmoids.
GPU_DEVICE void score_logits(ChooseExperts const& c, float* logits) {
  float largest = -kInfinity, sum = 0;
  bool const is_sigmoid = c.score == BUNTING_ROUTER_SIGMOID;
  for (int e = lane(); e < c.experts && !is_sigmoid; e += kWarp) largest = fmaxf(largest, load(logits + e));
  for (int mask = kWarp / 2; mask > 0; mask /= 2) largest = fmaxf(largest, shuffle_xor(largest, mask));
  for (int e = lane(); e < c.experts; e += kWarp) {
    float const x = load(logits + e);
    float const power = exp2_fast(kLog2E * (is_sigmoid ? -x : x - largest));
    sum += power;
    store(logits + e, is_sigmoid ? 1 / (1 + power) : power);
  }
  sum = warp_sum(sum);
  for (int e = lane(); e < c.experts && !is_sigmoid; e += kWarp) store(logits + e, load(logits + e) / sum);
}

GPU_DEVICE float chosen_by(ChooseExperts const& c, float score, int expert) {
  return c.bias ? score + load(c.bias + expert) : score;
}

// Returns the set of groups with the largest sums of their two best experts. Each lane reads its own experts.
GPU_DEVICE uint64_t choose_groups(ChooseExperts const& c, float const* logits) {
  int const size = c.experts / c.groups;
  float mine[2] = {-kInfinity, -kInfinity};  // sums of groups lane() and lane() + kWarp
  for (int group = 0; group < c.groups; ++group) {
    float best = -kInfinity, next = -kInfinity;
    for (int e = lane(); e < c.experts; e += kWarp) {
      if (e / size != group) continue;
      float const by = chosen_by(c, load(logits + e), e);
      next = fmaxf(next, fminf(best, by));
      best = fmaxf(best, by);
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      float const other = shuffle_xor(best, mask), other_next = shuffle_xor(next, mask);
      next = fmaxf(fmaxf(next, other_next), fminf(best, other));
      best = fmaxf(best, other);
    }
    GPU_UNROLL
    for (int half = 0; half < 2; ++half)
      if (lane() + half * kWarp == group) mine[half] = best + next;
  }
  uint64_t chosen = 0;
  for (int round = 0; round < c.groups_used; ++round) {
    Choice best;
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      int const group = lane() + half * kWarp;
      Choice const one{group < c.groups && !(chosen >> group & 1) ? group : -1, mine[half], 0};
      if (one.comes_before(best)) best = one;
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      Choice const other{shuffle_xor(best.expert, mask), shuffle_xor(best.by, mask), 0};
      if (other.comes_before(best)) best = other;
    }
    if (best.expert >= 0) chosen |= uint64_t{1} << best.expert;
  }
  return chosen;
}

GPU_KERNEL(kThreads, 8) choose_experts_kernel(ChooseExperts const c) {
  int const token = block_index() * kWarps + warp();
  if (token >= c.tokens) return;
  float* const logits = c.logits + int64_t(token) * c.experts;
  int32_t* const chosen = c.chosen + int64_t(token) * c.used;
  float* const weights = c.weights + int64_t(token) * c.used;
  if (c.slots && load(c.slots + token) == kNoSlot) {
    if (lane() >= c.used) return;
    store(chosen + lane(), -1);
    store(weights + lane(), 0.0f);
    return;
  }
  bool const is_softmax_of_chosen = c.score == BUNTING_ROUTER_CHOSEN;
  if (!is_softmax_of_chosen) score_logits(c, logits);
  uint64_t const groups = c.groups > 1 ? choose_groups(c, logits) : ~uint64_t{0};
  int const group_size = c.experts / c.groups;
  // Picks the experts in falling order, each one the best after the one before. Lane i keeps the expert of
  // round i.
  Choice mine, last;
  float largest = 0;
  bool has_nan = false;
  for (int round = 0; round < c.used; ++round) {
    Choice best;
    for (int e = lane(); e < c.experts; e += kWarp) {
      float const score = load(logits + e);
      has_nan = has_nan || score != score;
      if (!(groups >> (e / group_size) & 1)) continue;
      Choice one{e, chosen_by(c, score, e), score};
      if (one.by != one.by) one.by = -kInfinity;
      if ((round == 0 || last.comes_before(one)) && one.comes_before(best)) best = one;
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      Choice const other{shuffle_xor(best.expert, mask), shuffle_xor(best.by, mask),
                         shuffle_xor(best.score, mask)};
      if (other.comes_before(best)) best = other;
    }
    if (round == 0) largest = best.score;
    if (lane() == round) mine = best;
    last = best;
  }
  constexpr float kLeast = 1e-20f;  // a sum of sigmoids may vanish
  bool const is_choice = lane() < c.used;
  float const share = !is_choice             ? 0
                      : is_softmax_of_chosen ? exp2_fast(kLog2E * (mine.score - largest))
                                             : mine.score;
  float const sum = warp_sum(share);
  float const weight = is_softmax_of_chosen || c.is_normalised ? share / fmaxf(sum, kLeast) : share;
  bool const is_lost = ballot(has_nan) != 0;
  int rank = 0;  // rank by rising number
  for (int i = 0; i < c.used; ++i) rank += shuffle(mine.expert, i) < mine.expert;
  if (!is_choice) return;
  store(chosen + rank, mine.expert);
  float const scale = c.scales ? c.scale * load(c.scales + mine.expert) : c.scale;
  store(weights + rank, is_lost ? __builtin_nanf("") : weight * scale);
}

}  // namespace

void router(Stream& stream, Router const& r) {
  int32_t const blocks = (r.tokens + kTokens - 1) / kTokens * ((r.experts + kExperts - 1) / kExperts);
  constexpr size_t kSharedBytes = sizeof(float) * kWarps * kExperts * kTokens;
  if (blocks > 0) stream.launch("router", router_kernel, {blocks, kThreads, kSharedBytes}, r);
}

void choose_experts(Stream& stream, ChooseExperts const& c) {
  int32_t const blocks = (c.tokens + kWarps - 1) / kWarps;
  if (blocks > 0) stream.launch("choose_experts", choose_experts_kernel, {blocks, kThreads, 0}, c);
}

}  // namespace bunting::cuda
