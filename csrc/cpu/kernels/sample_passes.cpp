// sample_passes.cpp: the passes over the vocabulary; sample_passes.h says what each computes.
//
//   x [V] f32, any alignment, V >= 1
//
// Work:     one row per call; blocks of 64 tokens, the last one padded.
// Roofline: scan is bound by memory, 4*V bytes (from L2 or L3); masses by about 20 operations per token.
// Checked:  bit by bit against each other over the levels, and through sample() against reference::sample.
#include "cpu/kernels/sample_passes.h"

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {
namespace {

// Returns block b of x: in place, or for a partial last block a copy padded with `rest`.
BUNTING_INLINE float const* block_of(float const* x, int32_t vocab, int64_t b, float* copy, float rest) {
  int64_t const begin = b * kSampleBlock, count = vocab - begin;
  if (count >= kSampleBlock) return x + begin;
  for (int64_t i = 0; i < kSampleBlock; ++i) copy[i] = i < count ? x[begin + i] : rest;
  return copy;
}

// Computes exp(x) for x <= 0 within 3e-7 relative, 0 below -87; exp(0) = 1. x = n ln 2 + r, and Taylor's
// polynomial of degree 7 for |r| <= ln(2)/2 (its error is 5e-9).
BUNTING_INLINE vf exp_unfused(vf x) {
  // Rounding constant, 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits.
  constexpr float kRound = 12582912.0f;
  vf const shifted = x * 1.44269504088896341f + kRound;
  vf const n = shifted - kRound;
  vf const r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;  // the first product is exact
  vf p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  vf const scale = (vf)(((vu)shifted << 23) + (127u << 23));
  return x < -87.0f ? vf{} : p * scale;
}

BUNTING_INLINE void weigh(float* weight, float const* x, int32_t first_token, Weights const& w) {
  static constexpr int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int i = 0; i < kSampleBlock; i += kLanes) {
    vf v;
    vi token;
    std::memcpy(&v, x + i, sizeof v);
    std::memcpy(&token, lanes, sizeof token);
    token += first_token + i;
    vf p = exp_unfused((v - w.largest) / w.temperature);
    vi const kept = ((v > w.cut) | ((v == w.cut) & (token <= w.cut_token))) & (p >= w.least);
    p = kept ? p : vf{};
    std::memcpy(weight + i, &p, sizeof p);
  }
}

int scan(float* block_max, float const* x, int32_t vocab) {
  float copy[kSampleBlock];
  vi bad{}, low{};
  for (int64_t b = 0; b < sample_blocks(vocab); ++b) {
    float const* const from = block_of(x, vocab, b, copy, x[vocab - 1]);
    f32x16 largest = load(from);
    for (int i = 0; i < kSampleBlock; i += 16) {
      f32x16 const v = load(from + i);
      largest = max(v, largest);
      for (int j = 0; j < kRegisters; ++j) {
        low |= v.r[j] == -__builtin_inff();
        bad |= ~(v.r[j] < __builtin_inff());
      }
    }
    block_max[b] = max(largest);
  }
  int flags = 0;
  for (int i = 0; i < kLanes; ++i)
    flags |= (bad[i] ? kScanNanOrInfinity : 0) | (low[i] ? kScanMinusInfinity : 0);
  return flags;
}

void masses(double* block_mass, float const* block_max, float const* x, int32_t vocab,
            Weights const& weights) {
  float copy[kSampleBlock], weight[kSampleBlock];
  for (int64_t b = 0; b < sample_blocks(vocab); ++b) {
    block_mass[b] = 0;
    if (block_max[b] < weights.cut) continue;
    weigh(weight, block_of(x, vocab, b, copy, -__builtin_inff()), int32_t(b * kSampleBlock), weights);
    block_mass[b] = double(sum((load(weight) + load(weight + 16)) + (load(weight + 32) + load(weight + 48))));
  }
}

void block_weights(float* weight, float const* x, int32_t vocab, int64_t b, Weights const& weights) {
  float copy[kSampleBlock];
  weigh(weight, block_of(x, vocab, b, copy, -__builtin_inff()), int32_t(b * kSampleBlock), weights);
}

}  // namespace

SampleResult sample(SampleRow const& row, float const* logits, int32_t vocab, char* scratch, int32_t* top) {
  return sample_with({scan, masses, block_weights}, row, logits, vocab, scratch, top);
}

}  // namespace bunting::BUNTING_ISA
