// sample.cpp: draws one token from a row of logits; engine.h defines the order of operations.
//
// No step sorts the vocabulary. Every filter becomes a cut: the last token kept in the order "falling logit,
// then rising id". Maxima of blocks of 64 tokens select the blocks that can matter. The k-th largest maximum
// bounds the k-th largest token from below, so the first k tokens come from few blocks. A quickselect by
// count (top-k) or by mass (top-p) then finds the cut. The draw walks the kept tokens by rising id: first
// over block masses, then over the tokens of one block.
//
//   scratch   logits after penalties [V] | block maxima [B] of raw and of changed logits | block masses [B] |
//             keys of candidates [V]         with B = ceil(V/64)
//
// Work:     one row per call; O(V), for top-k about one pass over the logits.
// Checked:  against reference::sample (sorts everything, double), chi-square of the draws, bitwise over the
//           levels.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "boundary/philox.h"
#include "cpu/kernels/sample_passes.h"

namespace bunting {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Most likely tokens that top-p tries before it considers the whole vocabulary.
constexpr int64_t kLikelyKept = 1024;

struct SampleScratch {
  float* changed;
  float* raw_max;
  float* changed_max;
  double* mass;
  uint64_t* keys;
  static size_t bytes(int64_t vocab) {
    return size_t(round_up(vocab, 16) * 4 + 2 * round_up(sample_blocks(vocab), 16) * 4 +
                  sample_blocks(vocab) * 8 + vocab * 8);
  }
  SampleScratch(char* at, int64_t vocab) {
    changed = reinterpret_cast<float*>(at);
    raw_max = changed + round_up(vocab, 16);
    changed_max = raw_max + round_up(sample_blocks(vocab), 16);
    mass = reinterpret_cast<double*>(changed_max + round_up(sample_blocks(vocab), 16));
    keys = reinterpret_cast<uint64_t*>(mass + sample_blocks(vocab));
  }
};

// Logits, their block maxima, and scratch memory.
struct Row {
  SamplePasses const& passes;
  float const* x;
  float const* block_max;
  int32_t vocab;
  SampleScratch const& scratch;
  int64_t blocks() const { return sample_blocks(vocab); }
};

// Packs (logit, id) into one number: larger for larger logits, and among equal logits for lower ids.
uint64_t key_of(float x, int32_t token) {
  uint32_t const bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 and 0 are the same logit
  uint32_t const ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return uint64_t(ordered) << 32 | uint32_t(~token);
}
int32_t token_of(uint64_t key) {
  return int32_t(~uint32_t(key));
}

// Gathers the first `count` tokens in key order, unsorted, into scratch.keys. Returns their number, which is
// below `count` only if fewer tokens are above -inf.
int64_t gather_first(Row const& row, int64_t count) {
  uint64_t* const keys = row.scratch.keys;
  float bound = -kInfinity;
  if (count <= row.blocks()) {
    float* const maxima = reinterpret_cast<float*>(keys);  // unused until the keys are written
    std::copy(row.block_max, row.block_max + row.blocks(), maxima);
    std::nth_element(maxima, maxima + count - 1, maxima + row.blocks(), std::greater<>());
    bound = maxima[count - 1];
  }
  int64_t found = 0;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    if (row.block_max[b] < bound) continue;
    int32_t const end = std::min(int32_t(b + 1) * kSampleBlock, row.vocab);
    for (int32_t t = int32_t(b) * kSampleBlock; t < end; ++t)
      if (row.x[t] >= bound && row.x[t] > -kInfinity) keys[found++] = key_of(row.x[t], t);
  }
  if (found <= count) return found;
  std::nth_element(keys, keys + count - 1, keys + found, std::greater<>());
  return count;
}

void cut_after(Weights& weights, Row const& row, uint64_t last_kept) {
  weights.cut_token = token_of(last_kept);
  weights.cut = row.x[weights.cut_token];
}

// Returns the probability of one token, ignoring cuts. Only the cut of top-p uses it, so its rounding may
// differ from that of the vector passes.
double weight_of(Row const& row, Weights const& weights, uint64_t key) {
  return std::exp((double(row.x[token_of(key)]) - weights.largest) / weights.temperature);
}

// Returns the first of keys [0, count), in key order, at which the mass of all keys not below it reaches
// `target`.
uint64_t key_at_mass(Row const& row, Weights const& weights, int64_t count, double target) {
  uint64_t* const keys = row.scratch.keys;
  int64_t begin = 0, end = count;
  double mass_before = 0;  // mass of keys [0, begin), all of them larger than the rest
  while (end - begin > 1) {
    int64_t const middle = (begin + end) / 2;
    std::nth_element(keys + begin, keys + middle, keys + end, std::greater<>());
    double mass = mass_before;
    for (int64_t i = begin; i < middle; ++i) mass += weight_of(row, weights, keys[i]);
    if (mass >= target) {
      end = middle;
    } else {
      begin = middle;
      mass_before = mass;
    }
  }
  return keys[begin];
}

double total_mass(Row const& row, Weights const& weights) {
  row.passes.masses(row.scratch.mass, row.block_max, row.x, row.vocab, weights);
  double total = 0;
  for (int64_t b = 0; b < row.blocks(); ++b) total += row.scratch.mass[b];
  return total;
}

void filter(Weights& weights, Row const& row, SampleRow const& request) {
  int64_t candidates = -1;  // not gathered yet
  if (request.top_k > 0 && request.top_k < row.vocab) {
    candidates = gather_first(row, request.top_k);
    cut_after(weights, row, *std::min_element(row.scratch.keys, row.scratch.keys + candidates));
  }
  if (request.top_p < 1) {
    double const target = double(request.top_p) * total_mass(row, weights);
    if (candidates < 0) {
      candidates = gather_first(row, kLikelyKept);
      double mass = 0;
      for (int64_t i = 0; i < candidates; ++i) mass += weight_of(row, weights, row.scratch.keys[i]);
      if (mass < target) candidates = gather_first(row, row.vocab);
    }
    cut_after(weights, row, key_at_mass(row, weights, candidates, target));
  }
  weights.least = request.min_p;  // the most likely token has weight 1
}

// Returns the first kept token, by rising id, at which the cumulative mass exceeds u times the total.
int32_t draw(Row const& row, Weights const& weights, double u) {
  double left = u * total_mass(row, weights);
  int64_t block = -1;
  for (int64_t b = 0; b < row.blocks(); ++b) {
    double const mass = row.scratch.mass[b];
    if (mass == 0) continue;
    block = b;
    if (left < mass) break;
    left -= mass;
  }
  float weight[kSampleBlock];
  row.passes.block_weights(weight, row.x, row.vocab, block, weights);
  int32_t token = -1;
  for (int32_t i = 0; i < kSampleBlock; ++i) {
    if (weight[i] == 0) continue;
    token = int32_t(block) * kSampleBlock + i;
    if (left < double(weight[i])) break;
    left -= double(weight[i]);
  }
  return token;  // rounding may end a walk without a break: then this is the last token with mass
}

// Returns the most likely token, the lowest id among equals.
int32_t argmax(Row const& row, float largest) {
  int64_t b = 0;
  while (row.block_max[b] != largest) ++b;
  int32_t token = int32_t(b) * kSampleBlock;
  while (row.x[token] != largest) ++token;
  return token;
}

float largest_of(Row const& row) {
  return *std::max_element(row.block_max, row.block_max + row.blocks());
}

// Applies penalties, biases and the bitmask to a copy of the logits.
void change(float* x, int32_t vocab, SampleRow const& row) {
  for (int32_t i = 0; i < row.seen_count; ++i) {
    float& logit = x[row.seen[2 * i]];
    int32_t const count = row.seen[2 * i + 1];
    logit = logit > 0 ? logit / row.repetition : logit * row.repetition;
    logit -= row.frequency * float(count);
    if (count > 0) logit -= row.presence;
  }
  for (int32_t i = 0; i < row.bias_count; ++i)
    x[row.bias[2 * i]] += std::bit_cast<float>(row.bias[2 * i + 1]);
  if (!row.mask) return;
  for (int32_t first = 0; first < vocab; first += 32) {
    uint32_t const allowed = row.mask[first / 32];
    if (allowed == 0xffffffffu) continue;
    int32_t const count = std::min(32, vocab - first);
    for (int32_t i = 0; i < count; ++i)
      if (!(allowed >> i & 1)) x[first + i] = -kInfinity;
  }
}

// Writes logprobs of the raw logits: of result.token, and of the `count` most likely tokens.
void report_logprobs(SampleResult& result, Row const& raw, int32_t count, int32_t* top) {
  float const largest = largest_of(raw);
  Weights const all{largest, 1, -kInfinity, 0, 0};
  double const log_sum = double(largest) + std::log(total_mass(raw, all));
  auto const logprob = [&](int32_t token) { return float(double(raw.x[token]) - log_sum); };
  result.logprob = logprob(result.token);
  if (count == 0) return;
  result.top_count = int32_t(gather_first(raw, count));
  uint64_t* const keys = raw.scratch.keys;
  std::sort(keys, keys + result.top_count, std::greater<>());
  for (int32_t i = 0; i < result.top_count; ++i) {
    top[2 * i] = token_of(keys[i]);
    top[2 * i + 1] = std::bit_cast<int32_t>(logprob(token_of(keys[i])));
  }
}

}  // namespace

size_t sample_scratch_bytes(int32_t vocab) {
  return SampleScratch::bytes(vocab);
}

SampleResult sample_with(SamplePasses const& passes, SampleRow const& request, float const* logits,
                         int32_t vocab, char* scratch_bytes, int32_t* top) {
  constexpr int32_t kNotFinite = 1, kNothingAllowed = 2;
  SampleResult result{0, -1, 0, 0};
  SampleScratch const scratch(scratch_bytes, vocab);
  if (passes.scan(scratch.raw_max, logits, vocab) != 0) return {kNotFinite, -1, 0, 0};
  Row const raw{passes, logits, scratch.raw_max, vocab, scratch};
  Row row = raw;
  if (request.seen_count > 0 || request.bias_count > 0 || request.mask) {
    std::memcpy(scratch.changed, logits, size_t(vocab) * sizeof(float));
    change(scratch.changed, vocab, request);
    if (passes.scan(scratch.changed_max, scratch.changed, vocab) & kScanNanOrInfinity)
      return {kNotFinite, -1, 0, 0};
    row.x = scratch.changed;
    row.block_max = scratch.changed_max;
  }
  float const largest = largest_of(row);
  if (largest == -kInfinity) return {kNothingAllowed, -1, 0, 0};
  if (request.temperature == 0) {
    result.token = argmax(row, largest);
  } else {
    Weights weights{largest, request.temperature, -kInfinity, 0, 0};
    filter(weights, row, request);
    result.token = draw(row, weights, philox_uniform(request.seed_low, request.seed_high, request.position));
  }
  if (request.top_logprobs >= 0) report_logprobs(result, raw, request.top_logprobs, top);
  return result;
}

}  // namespace bunting
