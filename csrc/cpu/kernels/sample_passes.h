// sample_passes.h - the passes of sampling that touch the whole vocabulary, once per instruction set.
//
// All of them work lane by lane without fused multiply-adds and add in one fixed order, so every instruction
// set gives the same bits, and a token drawn on one machine is drawn on all.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

inline constexpr int kSampleBlock = 64;  // tokens whose maximum and mass are kept

constexpr int64_t sample_blocks(int64_t vocab) {
  return (vocab + kSampleBlock - 1) / kSampleBlock;
}

// Flags of scan().
enum { kScanNanOrInfinity = 1, kScanMinusInfinity = 2 };

// Which tokens are kept, and their unnormalised probability exp((x - largest) / temperature), 1 for the
// likeliest. A token is kept if x > cut, or x == cut and its id <= cut_token, and if its probability is >=
// least.
struct Weights {
  float largest, temperature;
  float cut;
  int32_t cut_token;
  float least;
};

struct SamplePasses {
  // block_max[b] = the largest of x[64 b ..]; returns which kinds of non-finite values there are. With
  // kScanNanOrInfinity the maxima mean nothing.
  int (*scan)(float* block_max, float const* x, int32_t vocab);
  // block_mass[b] = the probabilities of the kept tokens of a block, 0 for the others.
  void (*masses)(double* block_mass, float const* block_max, float const* x, int32_t vocab,
                 Weights const& weights);
  // The same for each token of block b: weight [64], 0 beyond the vocabulary.
  void (*block_weights)(float* weight, float const* x, int32_t vocab, int64_t b, Weights const& weights);
};

// What Kernels::sample does, on the passes of one instruction set.
SampleResult sample_with(SamplePasses const& passes, SampleRow const& row, float const* logits, int32_t vocab,
                         char* scratch, int32_t* top);

}  // namespace bunting
