// attention_softmax.h - arithmetic between the two products of attention: the keys that a row sees, the
// softmax over a span of positions, and sums and output of the spans' results.
#pragma once

#include "cuda/kernels/attention_memory.h"

namespace bunting::cuda {

constexpr float kLog2E = 1.44269504f;
constexpr float kInfinity = __builtin_inff();

// Returns exp2(x - largest), where largest may be -infinity because the row saw nothing.
GPU_DEVICE float relative_exp2(float x, float largest) {
  return largest == -kInfinity ? 0 : gpu::exp2_fast(x - largest);
}

// Caps scores before they are scaled: cap * tanh(scale * score / cap) / scale.
template <int kCount>
GPU_DEVICE void cap_scores(float (&scores)[kCount][4], float scale, float cap) {
  float const before = scale / cap, after = cap / scale;
  GPU_UNROLL
  for (int n = 0; n < kCount; ++n) {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j)
      scores[n][j] = gpu::multiply_rounded(after, tanh_of(gpu::multiply_rounded(scores[n][j], before)));
  }
}

// Positions that this lane's two rows see.
struct Seen {
  int first[2], last[2];

  GPU_DEVICE Seen(Attention const& a, AttentionItem const& item, int group, int first_row) {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      int const row = first_row + 8 * i;
      int const position =
          row < item.tokens * group ? gpu::load(a.positions + item.first_token + row / group) : -1;
      last[i] = position < item.kv_end ? position : item.kv_end - 1;
      first[i] = a.sliding_window == 0 ? 0
                 : a.is_chunked        ? position - position % a.sliding_window
                                       : position - a.sliding_window + 1;
    }
  }

  // Multiplies the scores of keys base .. base + kKeys - 1 by `factor`, or sets them to -infinity if the row
  // does not see them. `top` becomes the maximum of each row.
  template <int kKeys>
  GPU_DEVICE void mask(float (&scores)[kKeys / 8][4], float (&top)[2], int base, float factor) const {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      bool const all_seen = base >= first[i] && base + kKeys - 1 <= last[i];
      top[i] = -kInfinity;
      GPU_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        GPU_UNROLL
        for (int j = 0; j < 2; ++j) {
          int const position = base + 8 * n + 2 * (gpu::lane() % 4) + j;
          float& score = scores[n][2 * i + j];
          bool const seen = all_seen || (position >= first[i] && position <= last[i]);
          score = seen ? gpu::multiply_rounded(score, factor) : -kInfinity;
          top[i] = fmaxf(top[i], score);
        }
      }
      top[i] = fmaxf(top[i], gpu::shuffle_xor(top[i], 1));
      top[i] = fmaxf(top[i], gpu::shuffle_xor(top[i], 2));
    }
  }
};

// A lane's part of the current span, for its two rows: sums over the keys so far of probability times value,
// by kDimensions / 8 pairs of dimensions, and sums of probabilities. Both are relative to the largest score
// so far.
template <int kDimensions>
struct Span {
  float sums[kDimensions / 8][4] = {};
  float total[4] = {};                          // sums of probabilities, twice per row
  float largest[2] = {-kInfinity, -kInfinity};  // largest scores, in powers of two

  // Turns scores into probabilities, in pairs of bf16, and rescales the earlier sums to the new largest
  // score.
  template <int kKeys>
  GPU_DEVICE void take(float const (&scores)[kKeys / 8][4], float (&top)[2],
                       uint32_t (&pairs)[kKeys / 8][2]) {
    float rescale[2];
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      top[i] = fmaxf(top[i], largest[i]);
      rescale[i] = relative_exp2(largest[i], top[i]);
      largest[i] = top[i];
    }
    GPU_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 2; ++i)
        pairs[n][i] =
            gpu::narrow(relative_exp2(scores[n][2 * i], top[i]), relative_exp2(scores[n][2 * i + 1], top[i]));
    }
    GPU_UNROLL
    for (int n = 0; n < kDimensions / 8; ++n) {
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) sums[n][j] *= rescale[j / 2];
    }
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) total[j] *= rescale[j / 2];
  }

  // Clears the sums of a row for the next span.
  GPU_DEVICE void clear(int i) {
    GPU_UNROLL
    for (int n = 0; n < kDimensions / 8; ++n) sums[n][2 * i] = sums[n][2 * i + 1] = 0;
    total[2 * i] = total[2 * i + 1] = 0;
    largest[i] = -kInfinity;
  }
};

// Dimensions and places of the pairs n = 0, 1, .. of adjacent dimensions in a lane's sums. In bf16 sums[n]
// has one pair of each of two rows; in e4m3 sums[2c] and sums[2c + 1] together have two.
template <bool kFp8>
struct Dimensions {
  GPU_DEVICE static int of(int n) {
    return kFp8 ? n / 2 * 16 + gpu::lane() % 4 * 4 + n % 2 * 2 : 8 * n + gpu::lane() % 4 * 2;
  }
  GPU_DEVICE static Float2 pair(float const (*sums)[4], int n, int row) {
    if constexpr (kFp8)
      return {{sums[n / 2 * 2][2 * row + n % 2], sums[n / 2 * 2 + 1][2 * row + n % 2]}};
    else
      return {{sums[n][2 * row], sums[n][2 * row + 1]}};
  }
};

// Combination of the results of some positions and of those that follow. Each result is normalised, and `log`
// is the log2 of its divisor. A `log` of -infinity means that nothing was seen, and adds nothing.
struct Sum {
  float before = 1, after = 0, inverse = 1, log;

  GPU_DEVICE Sum(float log_before, float log_after) {
    log = log_before;
    if (log_after == -kInfinity) return;
    if (log_before == -kInfinity) {
      before = 0;
      after = 1;
      log = log_after;
      return;
    }
    float const top = fmaxf(log_before, log_after);
    before = gpu::exp2_fast(log_before - top);
    after = gpu::exp2_fast(log_after - top);
    inverse = 1 / (before + after);
    log = top + gpu::log2_fast(before + after);
  }
  GPU_DEVICE float of(float x, float y) const {
    return gpu::multiply_rounded(gpu::multiply_rounded(before, x) + gpu::multiply_rounded(after, y), inverse);
  }
  GPU_DEVICE Float2 of(Float2 x, Float2 y) const { return {{of(x.at[0], y.at[0]), of(x.at[1], y.at[1])}}; }
};

// Returns a query head's result over all positions, in bf16. The sink adds to the softmax denominator only.
GPU_DEVICE uint32_t result_of(Attention const& a, int query_head, Float2 x, float log) {
  if (a.sinks) x = Sum(log, gpu::multiply_rounded(gpu::load(a.sinks + query_head), kLog2E)).of(x, Float2{});
  return gpu::narrow(x.at[0], x.at[1]);
}

// Destination of the results of an item's row.
template <int D>
struct Output {
  Attention const& a;
  AttentionItem const& item;
  int group;

  GPU_DEVICE int64_t head_of(int row) const {
    return int64_t(item.first_token + row / group) * a.query_heads + item.kv_head * group + row % group;
  }
  // Writes dimensions d and d + 1 of a row, d even. `span`: index in the item, unless the item sums up its
  // spans.
  GPU_DEVICE void write(int span, int row, int d, Float2 x, float log) const {
    if (item.partial < 0) {
      gpu::store(reinterpret_cast<uint32_t*>(a.out + head_of(row) * D + d),
                 result_of(a, item.kv_head * group + row % group, x, log));
      return;
    }
    int64_t const partial = item.partial + (item.sums_up ? 0 : span * item.tokens * group) + row;
    gpu::store(reinterpret_cast<Float2*>(a.partial_out + partial * D + d), x);
    if (d == 0) gpu::store(a.partial_log + partial, log);
  }
};

}  // namespace bunting::cuda
