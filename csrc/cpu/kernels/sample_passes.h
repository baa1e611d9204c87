// sample_passes.h - the passes of sampling that read the whole vocabulary, once per instruction set.
//
// All passes work lane by lane without fused multiply-adds and add in one fixed order. So every instruction
// set gives the same bits, and every machine draws the same token.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

inline constexpr int kSampleBlock = 64;  // tokens per block of maxima and masses

constexpr int64_t sample_blocks(int64_t vocab) {
  return (vocab + kSampleBlock - 1) / kSampleBlock;
}

// Flags of scan().
enum { kScanNanOrInfinity = 1, kScanMinusInfinity = 2 };

// Conditions for keeping a token. Its unnormalised probability is exp((x - largest) / temperature), 1 for the
// most likely one. A token is kept if x > cut, or x == cut and its id <= cut_token, and if its probability is
// >= least.
struct Weights {
  float largest, temperature;
  float cut;
  int32_t cut_token;
  float least;
};

struct SamplePasses {
  // Sets block_max[b] to the largest of x[64 b ..] and returns flags of the non-finite values. With
  // kScanNanOrInfinity the maxima are meaningless.
  int (*scan)(float* block_max, float const* x, int32_t vocab);
  // Sets block_mass[b] to the sum of probabilities of the block's kept tokens.
  void (*masses)(double* block_mass, float const* block_max, float const* x, int32_t vocab,
                 Weights const& weights);
  // Writes the probability of each token of block b: weight [64], 0 for tokens not kept or beyond the
  // vocabulary.
  void (*block_weights)(float* weight, float const* x, int32_t vocab, int64_t b, Weights const& weights);
};

// Implementation of Kernels::sample on the passes of one instruction set.
SampleResult sample_with(SamplePasses const& passes, SampleRow const& row, float const* logits, int32_t vocab,
                         char* scratch, int32_t* top);

}  // namespace bunting
