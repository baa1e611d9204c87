// sample.cu - draws one token per row of logits; engine.h defines the order of operations.
//
//   logits  [rows, V] f32     results  [rows, result_words]
//
// Probabilities relative to the most likely token are integers in units of 2^-40. Integer sums do not depend
// on their order. So the result does not depend on the order of atomic additions or on the distribution of
// the work over threads. Tokens with a probability below 2^-40 are never drawn.
//
// No step sorts the vocabulary. top-k and top-p are cuts: the last token kept in the order "falling logit,
// then rising id". The cut's logit is found digit by digit from histograms of counts (top-k) or probabilities
// (top-p). The first digit is the distance from the largest logit, which spreads the tokens over the bins.
// The next digits are the bits of the logit within one such bin.
//
// Work:     one block of 512 threads per row, which allows enough registers and enough 16-byte loads in
//           flight.
// Roofline: memory, 4*V bytes per pass, from L2: 2 passes for greedy, 4 for plain sampling, 5 more per cut.
// Checked:  against reference::sample (sorts everything, double); chi-square of the draws; equal bits for any
//           order of threads.
#include "boundary/philox.h"
#include "cuda/kernels/device.h"
#include "cuda/kernels/kernels.h"
#include "include/engine.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

using Mass = unsigned long long;  // a count, or a probability in units of 2^-40

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr float kOne = 1099511627776.0f;  // 2^40
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr float kInfinity = __builtin_inff(), kLargestFloat = 0x1.fffffep127f;
constexpr int kBins = 2048;
constexpr float kBinsPerLogit = 64;  // resolution of the first histogram

// Shared memory layout, in bytes.
constexpr uint32_t kScratchAt = kBins * sizeof(Mass);
constexpr uint32_t kAnswerAt = kScratchAt + kWarps * sizeof(Mass);
constexpr size_t kSharedBytes = kAnswerAt + 2 * sizeof(Mass);
GPU_DEVICE Shared<Mass> bins() {
  return {0};
}
GPU_DEVICE Shared<Mass> scratch() {
  return {kScratchAt};
}
GPU_DEVICE Shared<Mass> answer() {
  return {kAnswerAt};
}

GPU_DEVICE Mass shuffle_mass(Mass x, int source) {
  uint32_t const low = shuffle(uint32_t(x), source), high = shuffle(uint32_t(x >> 32), source);
  return Mass(high) << 32 | low;
}

// Reduces x over the threads of the block with `combine`; every thread gets the result.
template <class Combine>
GPU_DEVICE Mass reduce(Mass x, Combine combine) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x = combine(x, shuffle_mass(x, lane() ^ mask));
  block_sync();  // waits until the scratch of an earlier call is unused
  if (lane() == 0) scratch().set(warp(), x);
  block_sync();
  x = scratch().get(lane() % kWarps);
  for (int mask = kWarps / 2; mask > 0; mask /= 2) x = combine(x, shuffle_mass(x, lane() ^ mask));
  return x;
}
GPU_DEVICE Mass largest_of(Mass x) {
  return reduce(x, [](Mass a, Mass b) { return a > b ? a : b; });
}
GPU_DEVICE Mass sum_of(Mass x) {
  return reduce(x, [](Mass a, Mass b) { return a + b; });
}

// Maps x to bits that are larger for larger numbers; -0 equals 0.
GPU_DEVICE uint32_t ordered(float x) {
  x += 0.0f;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
// Packs (logit, id) into one number: larger for larger logits and, among equal logits, for lower ids.
GPU_DEVICE Mass key_of(float x, int token) {
  return Mass(ordered(x)) << 32 | uint32_t(~token);
}
GPU_DEVICE int token_of(Mass key) {
  return int(~uint32_t(key));
}

// Calls f(token, logit) for all tokens of a row, each in one thread.
template <class F>
GPU_DEVICE void for_each_token(float const* x, int vocab, F f) {
  bool const aligned = vocab % 4 == 0;
  for (int t = 4 * thread_index(); t < vocab; t += 4 * kThreads) {
    Float4 four{};
    if (aligned) {
      four = load(reinterpret_cast<Float4 const*>(x + t));
    } else {
      for (int i = 0; i < 4 && t + i < vocab; ++i) four.at[i] = load(x + t + i);
    }
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      if (t + i < vocab) f(t + i, four.at[i]);
  }
}

// Kept tokens of a row. A token is kept if it is not after the cut and its probability is at least `least`.
struct Weights {
  float const* x;
  int vocab;
  float largest, scale;  // scale: from logits to powers of two
  float cut;
  int cut_token;
  float least;

  GPU_DEVICE Mass of(int token, float logit) const {
    if (!(logit > cut || (logit == cut && token <= cut_token))) return 0;
    float const share = exp2_fast((logit - largest) * scale);
    return share < least ? 0 : Mass(share * kOne);
  }
};

GPU_DEVICE Mass total_mass(Weights const& weights) {
  Mass sum = 0;
  for_each_token(weights.x, weights.vocab, [&](int t, float logit) { sum += weights.of(t, logit); });
  return sum_of(sum);
}

// Returns the first token, by rising id, at which the sum of weight(token, logit) exceeds `target`, which
// must be less than the total. Each warp has a run of ids.
template <class Weight>
GPU_DEVICE int token_at(float const* x, int vocab, Weight weight, Mass target) {
  int const run = (vocab + kThreads - 1) / kThreads * kWarp, begin = warp() * run;
  Mass sum = 0;
  for (int t = begin + lane(); t < begin + run && t < vocab; t += kWarp) sum += weight(t, load(x + t));
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_mass(sum, lane() ^ mask);
  block_sync();  // waits until scratch and answer of an earlier call are unused
  if (lane() == 0) scratch().set(warp(), sum);
  block_sync();
  Mass before = 0;
  for (int w = 0; w < warp(); ++w) before += scratch().get(w);
  if (before <= target && target < before + sum) {
    for (int first = begin; before <= target; first += kWarp) {
      int const t = first + lane();
      Mass const own = t < vocab ? weight(t, load(x + t)) : 0;
      Mass up_to = own;  // sum over this lane and those below
      for (int distance = 1; distance < kWarp; distance *= 2) {
        Mass const below = shuffle_mass(up_to, lane() < distance ? lane() : lane() - distance);
        if (lane() >= distance) up_to += below;
      }
      bool const here = before + up_to - own <= target && target < before + up_to;
      if (here) answer().set(0, Mass(t));
      before += shuffle_mass(up_to, kWarp - 1);
    }
  }
  block_sync();
  return int(answer().get(0));
}

// Returns the highest bin at which the sum of the bins from the top reaches `target`; -1 if the total is
// smaller. Subtracts the bins above it from `target`. Every thread calls it after a barrier.
GPU_DEVICE int bin_at(Mass& target) {
  constexpr int kOfLane = kBins / kWarp;
  if (warp() == 0) {
    int const top = kBins - 1 - lane() * kOfLane;  // lane 0 has the highest bins
    Mass own = 0;
    for (int i = 0; i < kOfLane; ++i) own += bins().get(top - i);
    Mass up_to = own;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      Mass const above = shuffle_mass(up_to, lane() < distance ? lane() : lane() - distance);
      if (lane() >= distance) up_to += above;
    }
    if (lane() == kWarp - 1 && up_to < target) answer().set(0, ~Mass(0));
    Mass left = target - (up_to - own);
    if (up_to - own < target && target <= up_to) {
      int bin = top;
      for (Mass here = bins().get(bin); here < left; here = bins().get(--bin)) left -= here;
      answer().set(0, Mass(bin));
      answer().set(1, left);
    }
  }
  block_sync();
  Mass const bin = answer().get(0);
  if (bin == ~Mass(0)) return -1;
  target = answer().get(1);
  return int(bin);
}

// Cuts after the first token, in the order "falling logit, then rising id", at which the sum of weight(token,
// logit) reaches `target`. Tokens at -infinity do not count. If no token reaches it, nothing is cut.
template <class Weight>
GPU_DEVICE void cut_at(Weights& weights, Weight weight, Mass target) {
  auto const distance_bin = [&](float logit) {
    float const bin = (weights.largest - logit) * kBinsPerLogit;
    return kBins - 1 - (bin < float(kBins - 1) ? int(bin) : kBins - 1);
  };
  // Fills a histogram over the tokens selected so far. Readers of the bins of an earlier histogram have
  // passed a barrier since.
  auto const choose = [&](auto belongs, auto bin_of) {
    for (int i = thread_index(); i < kBins; i += kThreads) bins().set(i, 0);
    block_sync();
    for_each_token(weights.x, weights.vocab, [&](int t, float logit) {
      Mass const mass = logit == -kInfinity || !belongs(logit) ? 0 : weight(t, logit);
      if (mass > 0) bins().add(bin_of(logit), mass);
    });
    block_sync();
    return bin_at(target);
  };
  int const near = choose([](float) { return true; }, distance_bin);
  if (near < 0) return;
  auto const is_near = [&](float logit) { return distance_bin(logit) == near; };
  uint32_t const high = uint32_t(choose(is_near, [](float logit) { return int(ordered(logit) >> 21); }));
  auto const is_high = [&](float logit) { return is_near(logit) && ordered(logit) >> 21 == high; };
  uint32_t const middle =
      high << 11 | uint32_t(choose(is_high, [](float logit) { return int(ordered(logit) >> 10 & 2047); }));
  auto const is_middle = [&](float logit) { return is_near(logit) && ordered(logit) >> 10 == middle; };
  uint32_t const bits =
      middle << 10 | uint32_t(choose(is_middle, [](float logit) { return int(ordered(logit) & 1023); }));

  // Finds, among the tokens with this logit, the one at which their sum reaches the remaining target.
  auto const if_equal = [&](int t, float logit) { return ordered(logit) == bits ? weight(t, logit) : 0; };
  weights.cut_token = token_at(weights.x, weights.vocab, if_equal, target - 1);
  weights.cut = load(weights.x + weights.cut_token);
}

// Sampling parameters of a row, by word.
struct Request {
  uint32_t const* words;
  GPU_DEVICE uint32_t word(int at) const { return load(words + at); }
  GPU_DEVICE int number(int at) const { return int(word(at)); }
  GPU_DEVICE float real(int at) const {
    uint32_t const bits = word(at);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
  }
};

GPU_DEVICE float float_of(int32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
GPU_DEVICE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Applies penalties, biases and the bitmask to a copy of the logits; each operation rounds to f32.
GPU_DEVICE void change(Sample const& s, Request const& request, float const* logits, float* x) {
  int const mask = request.number(BUNTING_ROW_MASK_AT);
  for_each_token(logits, s.vocab, [&](int t, float logit) { store(x + t, logit); });
  block_sync();
  int32_t const* const seen = s.pairs + 2 * request.number(BUNTING_ROW_SEEN_AT);
  float const repetition = request.real(BUNTING_ROW_REPETITION),
              presence = request.real(BUNTING_ROW_PRESENCE), frequency = request.real(BUNTING_ROW_FREQUENCY);
  for (int i = thread_index(); i < request.number(BUNTING_ROW_SEEN_COUNT); i += kThreads) {
    int const token = load(seen + 2 * i), count = load(seen + 2 * i + 1);
    float logit = load(x + token);
    logit = logit > 0 ? logit / repetition : multiply_rounded(logit, repetition);
    logit -= multiply_rounded(frequency, float(count));
    if (count > 0) logit -= presence;
    store(x + token, logit);
  }
  block_sync();
  int32_t const* const biases = s.pairs + 2 * request.number(BUNTING_ROW_BIAS_AT);
  for (int i = thread_index(); i < request.number(BUNTING_ROW_BIAS_COUNT); i += kThreads) {
    int const token = load(biases + 2 * i);
    store(x + token, load(x + token) + float_of(load(biases + 2 * i + 1)));
  }
  block_sync();
  if (mask < 0) return;
  for (int t = thread_index(); t < s.vocab; t += kThreads)
    if (!(load(s.words + mask + t / 32) >> t % 32 & 1)) store(x + t, -kInfinity);
  block_sync();
}

enum Status { kDrawn = 0, kNotFinite = 1, kNothingAllowed = 2 };

// Returns the key of the most likely token. Returns 0 if a logit is NaN or +infinity, or -infinity unless
// `may_ban`.
GPU_DEVICE Mass likeliest(float const* x, int vocab, bool may_ban) {
  Mass best = 0;
  bool bad = false;
  for_each_token(x, vocab, [&](int t, float logit) {
    bad = bad || !(logit < kInfinity) || (!may_ban && logit == -kInfinity);
    Mass const key = key_of(logit, t);
    best = key > best ? key : best;
  });
  bool const any_bad = largest_of(bad) > 0;
  best = largest_of(best);
  return any_bad ? 0 : best;
}

// Writes logprobs of the raw logits: of `token` and of the `count` most likely tokens.
GPU_DEVICE void report(Sample const& s, float const* logits, Mass first, int token, int count,
                       uint32_t* result) {
  float const largest = load(logits + token_of(first));
  Weights const all{logits, s.vocab, largest, kLog2E, -kInfinity, -1, 0};
  float const log_total = kLn2 * log2_fast(float(total_mass(all)) / kOne);
  auto const logprob = [&](int t) { return bits_of(load(logits + t) - largest - log_total); };
  if (count > s.vocab) count = s.vocab;
  Mass key = first;
  for (int i = 0; i < count; ++i) {
    if (thread_index() == 0) {
      store(result + BUNTING_RESULT_ROW_WORDS + 2 * i, uint32_t(token_of(key)));
      store(result + BUNTING_RESULT_ROW_WORDS + 2 * i + 1, logprob(token_of(key)));
    }
    Mass next = 0;
    if (i + 1 == count) break;
    for_each_token(logits, s.vocab, [&](int t, float logit) {
      Mass const other = key_of(logit, t);
      if (other < key && other > next) next = other;
    });
    key = largest_of(next);
  }
  if (thread_index() == 0) {
    store(result + 2, logprob(token));
    store(result + 3, uint32_t(count));
  }
}

GPU_DEVICE int draw(Request const& request, Weights weights) {
  int const top_k = request.number(BUNTING_ROW_TOP_K);
  float const top_p = request.real(BUNTING_ROW_TOP_P);
  if (top_k > 0 && top_k < weights.vocab) cut_at(weights, [](int, float) { return Mass(1); }, Mass(top_k));
  if (top_p < 1) {
    Weights const before = weights;
    Mass const wanted = Mass(double(top_p) * double(total_mass(before)));
    cut_at(weights, [&](int t, float logit) { return before.of(t, logit); }, wanted > 0 ? wanted : 1);
  }
  weights.least = request.real(BUNTING_ROW_MIN_P);
  Mass const total = total_mass(weights);
  double const u = philox_uniform(request.word(BUNTING_ROW_SEED_LOW), request.word(BUNTING_ROW_SEED_HIGH),
                                  request.word(BUNTING_ROW_POSITION));
  Mass const target = Mass(u * double(total));
  return token_at(
      weights.x, weights.vocab, [&](int t, float logit) { return weights.of(t, logit); },
      target < total ? target : total - 1);
}

GPU_KERNEL(kThreads, 1) sample_kernel(Sample const s) {
  int64_t const row = block_index();
  Request const request{s.rows + row * BUNTING_ROW_WORDS};
  float const* const logits = s.logits + row * s.vocab;
  uint32_t* const result = s.results + row * s.result_words;
  auto const finish = [&](Status status, int token) {
    if (thread_index() != 0) return;
    store(result, uint32_t(status));
    store(result + 1, uint32_t(token));
  };
  if (thread_index() == 0) {
    store(result + 2, 0u);
    store(result + 3, 0u);
  }

  Mass const first = likeliest(logits, s.vocab, false);
  if (first == 0) return finish(kNotFinite, -1);
  float const* x = logits;
  Mass best = first;
  if (request.number(BUNTING_ROW_SEEN_COUNT) > 0 || request.number(BUNTING_ROW_BIAS_COUNT) > 0 ||
      request.number(BUNTING_ROW_MASK_AT) >= 0) {
    float* const changed = s.changed + row * s.vocab;
    change(s, request, logits, changed);
    x = changed;
    best = likeliest(x, s.vocab, true);
    if (best == 0) return finish(kNotFinite, -1);
  }
  int token = token_of(best);
  float const largest = load(x + token);
  if (largest == -kInfinity) return finish(kNothingAllowed, -1);
  float const temperature = request.real(BUNTING_ROW_TEMPERATURE);
  // A distance of 0 for the most likely token, times an infinite scale, would be NaN.
  float const scale = fminf(kLog2E / temperature, kLargestFloat);
  if (temperature > 0) token = draw(request, {x, s.vocab, largest, scale, -kInfinity, -1, 0});
  int const alternatives = request.number(BUNTING_ROW_TOP_LOGPROBS);
  if (alternatives >= 0) report(s, logits, first, token, alternatives, result);
  finish(kDrawn, token);
}

}  // namespace

void sample(Stream& stream, Sample const& s) {
  if (s.row_count > 0) stream.launch("sample", sample_kernel, {s.row_count, kThreads, kSharedBytes}, s);
}

}  // namespace bunting::cuda
