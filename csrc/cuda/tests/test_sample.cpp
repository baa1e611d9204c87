// Tests of sampling against a full sort in double: u is known, so the test compares single draws without
// statistics.
#include <algorithm>
#include <bit>

#include "cuda/tests/device_test.h"
#include "include/engine.h"
#include "tests/sample_test.h"

namespace bunting::test {
namespace {

constexpr int32_t kTopMax = 20;
constexpr int32_t kResultWords = BUNTING_RESULT_ROW_WORDS + 2 * kTopMax;

struct Request : SampleRequest {
  std::vector<float> logits;
  explicit Request(std::vector<float> values, SampleRequest request = {})
      : SampleRequest(std::move(request)), logits(std::move(values)) {}
};

// Draws all rows in one launch; they must have the same vocabulary.
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

  std::vector<DrawnRow> drawn() const {
    std::vector<uint32_t> const words = results_->get();
    std::vector<DrawnRow> all;
    for (int32_t r = 0; r < count_; ++r) {
      uint32_t const* const row = words.data() + size_t(r) * kResultWords;
      DrawnRow d{int32_t(row[0]), int32_t(row[1]), std::bit_cast<float>(row[2]), {}};
      for (int32_t i = 0; i < std::clamp(int32_t(row[3]), 0, kTopMax); ++i)
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

Request random_row(Random& random, int32_t vocab) {
  std::vector<float> logits = random_logits(random, vocab);
  Request request(std::move(logits), random_request(random, vocab));
  request.row.top_logprobs = random.below(4) == 0 ? -1 : random.below(kTopMax + 1);
  return request;
}

void check_all(std::vector<Request>& requests) {
  Batch const batch(requests);
  RUNS(batch.queue(stream));
  std::vector<DrawnRow> const drawn = batch.drawn();
  for (size_t r = 0; r < requests.size(); ++r) check_drawn(requests[r], requests[r].logits, drawn[r]);
}

}  // namespace

TEST(cuda_sample_matches_a_sort_of_everything) {
  Random random{42};
  for (int32_t vocab : {1, 2, 31, 64, 2100, 3001}) {
    std::vector<Request> requests;
    for (int i = 0; i < 24; ++i) requests.push_back(random_row(random, vocab));
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
  for (int i = 0; i < 8; ++i) requests.push_back(random_row(random, 777));
  Batch const batch(requests);
  RUNS(batch.queue(stream));
  std::vector<DrawnRow> const first = batch.drawn();
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
    // Different threads handle the same seen and biased tokens; some rows also have a mask.
    for (int32_t t = 0; t < 777; t += 2) request.add_seen(t, 1);
    for (int32_t t = 776; t >= 0; t -= 2) request.add_bias(t, t % 4 ? 4.0f : -1.5f);
    if (i < 6) request.mask.assign(25, 0x5b6d3335u);
    requests.push_back(std::move(request));
  }
  Batch const batch(requests);
  RUNS(batch.queue(stream));
  std::vector<DrawnRow> const right = batch.drawn();
  every_wait_is_needed([&](cuda::Stream& stream) { batch.queue(stream); },
                       [&] { return batch.drawn() == right; });
}

}  // namespace bunting::test
