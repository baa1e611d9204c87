// Sampling against a sort of everything in double: the draw of a known u, so that no statistics are needed.
#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "cuda/tests/device_test.h"
#include "include/engine.h"
#include "kernels/philox.h"
#include "reference/sample.h"

namespace bunting::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kTopMax = 20;
constexpr int32_t kResultWords = BUNTING_RESULT_ROW_WORDS + 2 * kTopMax;

// One row, with filters and penalties off.
struct Request {
  SampleRow row{};
  std::vector<int32_t> bias, seen;
  std::vector<uint32_t> mask;
  std::vector<float> logits;

  explicit Request(std::vector<float> values) : logits(std::move(values)) {
    row.temperature = row.top_p = row.repetition = 1;
    row.seed_low = 1234;
    row.top_logprobs = -1;
  }
  void add(std::vector<int32_t>& pairs, int32_t token, int32_t word) {
    pairs.push_back(token);
    pairs.push_back(word);
  }
  reference::Odds odds() {
    row.bias = bias.data();
    row.bias_count = int32_t(bias.size() / 2);
    row.seen = seen.data();
    row.seen_count = int32_t(seen.size() / 2);
    row.mask = mask.empty() ? nullptr : mask.data();
    return reference::sample(row, logits.data(), int32_t(logits.size()));
  }
};

struct Drawn {
  int32_t status, token;
  float logprob;
  int32_t count;
  std::vector<std::pair<int32_t, float>> top;
  bool operator==(Drawn const&) const = default;
};

// Draws all rows in one launch; they have the same vocabulary.
class Batch {
 public:
  explicit Batch(std::vector<Request> const& requests)
      : count_(int32_t(requests.size())), vocab_(int32_t(requests[0].logits.size())) {
    std::vector<float> logits;
    std::vector<uint32_t> rows, words;
    std::vector<int32_t> pairs;
    for (Request const& request : requests) {
      SampleRow const& row = request.row;
      auto const bits = [](float x) { return std::bit_cast<uint32_t>(x); };
      auto const append = [&](std::vector<int32_t> const& list) {
        uint32_t const at = uint32_t(pairs.size() / 2);
        pairs.insert(pairs.end(), list.begin(), list.end());
        return at;
      };
      logits.insert(logits.end(), request.logits.begin(), request.logits.end());
      uint32_t const bias_at = append(request.bias), seen_at = append(request.seen);
      uint32_t const mask_at = request.mask.empty() ? uint32_t(-1) : uint32_t(words.size());
      words.insert(words.end(), request.mask.begin(), request.mask.end());
      std::vector<uint32_t> const all = {bits(row.temperature),
                                         bits(row.top_p),
                                         bits(row.min_p),
                                         bits(row.repetition),
                                         bits(row.presence),
                                         bits(row.frequency),
                                         uint32_t(row.top_k),
                                         row.seed_low,
                                         row.seed_high,
                                         row.position,
                                         bias_at,
                                         uint32_t(request.bias.size() / 2),
                                         seen_at,
                                         uint32_t(request.seen.size() / 2),
                                         mask_at,
                                         uint32_t(row.top_logprobs)};
      rows.insert(rows.end(), all.begin(), all.end());
      rows.resize(rows.size() + BUNTING_ROW_WORDS - all.size());
    }
    logits_.emplace(logits);
    changed_.emplace(logits.size());
    rows_.emplace(rows);
    pairs_.emplace(pairs);
    words_.emplace(words);
    results_.emplace(size_t(count_) * kResultWords);
  }

  void queue(cuda::Stream& stream) const {
    stream.fill(results_->data(), 0xff, results_->size() * 4);
    cuda::sample(stream, {logits_->data(), changed_->data(), rows_->data(), pairs_->data(), words_->data(),
                          results_->data(), kResultWords, count_, vocab_});
  }

  std::vector<Drawn> drawn() const {
    std::vector<uint32_t> const words = results_->get();
    std::vector<Drawn> all;
    for (int32_t r = 0; r < count_; ++r) {
      uint32_t const* const row = words.data() + size_t(r) * kResultWords;
      Drawn d{int32_t(row[0]), int32_t(row[1]), std::bit_cast<float>(row[2]), int32_t(row[3]), {}};
      for (int32_t i = 0; i < std::clamp(d.count, 0, kTopMax); ++i)
        d.top.emplace_back(int32_t(row[BUNTING_RESULT_ROW_WORDS + 2 * i]),
                           std::bit_cast<float>(row[BUNTING_RESULT_ROW_WORDS + 2 * i + 1]));
      all.push_back(d);
    }
    return all;
  }

 private:
  int32_t count_, vocab_;
  std::optional<DeviceArray<float>> logits_, changed_;
  std::optional<DeviceArray<uint32_t>> rows_, words_, results_;
  std::optional<DeviceArray<int32_t>> pairs_;
};

// Peaked like a language model's, with runs of equal values.
std::vector<float> random_logits(Random& random, int32_t vocab) {
  std::vector<float> x(static_cast<size_t>(vocab));
  for (float& value : x) {
    float const u = random.uniform(0, 1);
    value = random.below(4) == 0 ? std::round(u * 8) : -3 + 12 * u * u * u;
  }
  return x;
}

Request random_request(Random& random, int32_t vocab) {
  Request request(random_logits(random, vocab));
  SampleRow& row = request.row;
  auto const some = [&](auto off, auto... others) {
    decltype(off) const values[] = {off, decltype(off)(others)...};
    return values[random.below(int(std::size(values)))];
  };
  row.temperature = some(1.0f, 0.0f, 0.3f, 0.8f, 1.7f, 20.0f);
  row.top_k = std::max(0, some(0, 1, 2, 5, 40, 63, 64, 65, vocab - 1, vocab, vocab + 1));
  row.top_p = some(1.0f, 1e-9f, 0.1f, 0.5f, 0.9f, 0.999f);
  row.min_p = some(0.0f, 0.0f, 0.05f, 0.5f, 1.0f);
  row.position = uint32_t(random.next());
  row.seed_low = uint32_t(random.next());
  row.seed_high = uint32_t(random.next());
  row.top_logprobs = random.below(4) == 0 ? -1 : random.below(kTopMax + 1);
  int32_t const step = std::max(1, vocab / 20);  // tokens of a list are distinct
  if (random.below(2)) {
    row.repetition = some(1.0f, 1.3f, 0.7f);
    row.presence = some(0.0f, 1.5f, -0.5f);
    row.frequency = some(0.0f, 0.25f, -0.1f);
    for (int32_t t = random.below(step); t < vocab; t += step) request.add(request.seen, t, random.below(4));
  }
  if (random.below(3) == 0)
    for (int32_t t = random.below(step); t < vocab; t += 4 * step)
      request.add(request.bias, t, std::bit_cast<int32_t>(some(2.0f, -2.0f, -kInf)));
  if (random.below(3) == 0) {
    request.mask.resize(size_t(vocab + 31) / 32);
    for (uint32_t& word : request.mask) word = some(0xffffffffu, 0u, uint32_t(random.next()));
  }
  return request;
}

void check(Request& request, Drawn const& drawn) {
  int32_t const vocab = int32_t(request.logits.size());
  SampleRow const& row = request.row;
  reference::Odds const odds = request.odds();
  REQUIRE(drawn.status == odds.status, "V=%d: status %d, wanted %d", vocab, drawn.status, odds.status);
  if (odds.status != 0) return;
  REQUIRE(drawn.token >= 0 && drawn.token < vocab, "V=%d: token %d", vocab, drawn.token);
  double before = 0;
  for (int32_t t = 0; t < drawn.token; ++t) before += odds.probability[size_t(t)];
  double const share = odds.probability[size_t(drawn.token)];
  double const u = row.temperature == 0 ? 0.5 : philox_uniform(row.seed_low, row.seed_high, row.position);
  // A draw within 1e-5 of the border of two tokens may go either way.
  CHECK(share > 0 && u >= before - 1e-5 && u <= before + share + 1e-5,
        "V=%d T=%g top_k=%d top_p=%g min_p=%g: u=%g gives token %d, whose share is [%g, %g)", vocab,
        double(row.temperature), row.top_k, double(row.top_p), double(row.min_p), u, drawn.token, before,
        before + share);
  if (row.top_logprobs < 0) return;
  auto const near = [](float got, double want) {
    return std::fabs(double(got) - want) <= 1e-5 + std::fabs(want) * 1e-6;
  };
  CHECK(near(drawn.logprob, odds.raw_logprob[size_t(drawn.token)]), "V=%d: logprob %g, wanted %g", vocab,
        double(drawn.logprob), odds.raw_logprob[size_t(drawn.token)]);
  REQUIRE(drawn.count == std::min(row.top_logprobs, vocab), "V=%d: %d alternatives of %d", vocab, drawn.count,
          row.top_logprobs);
  for (size_t i = 0; i < drawn.top.size(); ++i) {
    int32_t const want = odds.likeliest[i];
    CHECK(drawn.top[i].first == want && near(drawn.top[i].second, odds.raw_logprob[size_t(want)]),
          "V=%d: alternative %zu is token %d, wanted %d", vocab, i, drawn.top[i].first, want);
  }
}

void check_all(std::vector<Request>& requests) {
  Batch const batch(requests);
  RUNS(batch.queue(stream));
  std::vector<Drawn> const drawn = batch.drawn();
  for (size_t r = 0; r < requests.size(); ++r) check(requests[r], drawn[r]);
}

}  // namespace

TEST(cuda_sample_matches_a_sort_of_everything) {
  Random random{42};
  for (int32_t vocab : {1, 2, 31, 64, 2100, 3001}) {
    std::vector<Request> requests;
    for (int i = 0; i < 24; ++i) requests.push_back(random_request(random, vocab));
    check_all(requests);
  }
}

TEST(cuda_sample_reports_rows_that_cannot_be_drawn) {
  std::vector<Request> requests;
  for (float bad : {float(NAN), -float(NAN), kInf, -kInf})
    for (size_t at : {size_t(0), size_t(99)}) {
      requests.emplace_back(std::vector<float>(100, 0.25f));
      requests.back().logits[at] = bad;
    }
  requests.emplace_back(std::vector<float>(100, 0.25f));
  requests.back().mask.assign(4, 0);
  requests.emplace_back(std::vector<float>(100, 0.25f));
  requests.back().mask = {0, 0, 1, 0};
  check_all(requests);
}

TEST(cuda_sample_does_not_depend_on_timing) {
  Random random{43};
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(random_request(random, 777));
  Batch const batch(requests);
  RUNS(batch.queue(stream));
  std::vector<Drawn> const first = batch.drawn();
  for (uint64_t seed = 2; seed < 4; ++seed) {
    std::string const fault = fault_of([&](cuda::Stream& stream) { batch.queue(stream); }, seed);
    CHECK(fault.empty() && batch.drawn() == first, "seed %d: other tokens %s", int(seed), fault.c_str());
  }
}

TEST(cuda_sample_waits_nowhere_in_vain) {
  Random random{44};
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request(random_logits(random, 777));
    SampleRow& row = request.row;
    row.temperature = i % 4 < 2 ? 0 : 1;
    row.top_k = i % 2 ? 40 : 0;
    row.top_p = i % 3 ? 0.9f : 1.0f;
    row.min_p = 0.01f;
    row.top_logprobs = 3;
    row.repetition = 1.3f;
    row.seed_low = uint32_t(i);
    // The same tokens seen and biased, by other threads; some rows go on with that, others with a mask.
    for (int32_t t = 0; t < 777; t += 2) request.add(request.seen, t, 1);
    for (int32_t t = 776; t >= 0; t -= 2)
      request.add(request.bias, t, std::bit_cast<int32_t>(t % 4 ? 4.0f : -1.5f));
    if (i < 6) request.mask.assign(25, 0x5b6d3335u);
    requests.push_back(std::move(request));
  }
  Batch const batch(requests);
  RUNS(batch.queue(stream));
  std::vector<Drawn> const right = batch.drawn();
  every_wait_is_needed([&](cuda::Stream& stream) { batch.queue(stream); },
                       [&] { return batch.drawn() == right; });
}

}  // namespace bunting::test
