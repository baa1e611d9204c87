// Tests of keys and values in e4m3: append, copy, attention.
#include "cuda/tests/device_test.h"

namespace bunting::test {
namespace {

constexpr int32_t kLayers = 2, kPages = 4, kHeads = 2, kPageTokens = 16;

// Pages of e4m3 in bytes, and the offsets of their parts.
struct Layout {
  int32_t d;
  int64_t part() const { return int64_t(kPageTokens) * d; }
  int64_t layer() const { return kHeads * (2 * part() + kPageTokens * 4); }
  int64_t page() const { return kLayers * layer(); }
  int64_t row(int32_t page_id, int32_t layer_id, bool values, int32_t head, int32_t slot) const {
    return page_id * page() + layer_id * layer() + (values ? kHeads * part() : 0) + head * part() + slot * d;
  }
  int64_t multiplier(int32_t page_id, int32_t layer_id, bool values, int32_t head, int32_t slot) const {
    return page_id * page() + layer_id * layer() + 2 * kHeads * part() + (head * kPageTokens + slot) * 4 +
           (values ? 2 : 0);
  }
  cuda::KvPages kv(uint8_t* pages, int32_t layer_id) const {
    return {reinterpret_cast<uint16_t*>(pages + layer_id * layer()),
            page() / 2,
            kHeads * part() / 2,
            kHeads,
            d,
            kPageTokens,
            true,
            kHeads * part()};
  }
};

// Returns a number of a page: e4m3 times 2^-120 times its multiplier.
float value_of(std::vector<uint8_t> const& pages, int64_t at, int64_t multiplier_at) {
  uint32_t const code = pages[size_t(at)];
  int const exponent = int(code >> 3 & 15), fraction = int(code & 7);
  float const size =
      exponent ? std::ldexp(float(8 + fraction), exponent - 10) : std::ldexp(float(fraction), -9);
  uint16_t multiplier;
  std::memcpy(&multiplier, &pages[size_t(multiplier_at)], sizeof multiplier);
  return (code & 0x80 ? -size : size) * 0x1p-120f * reference::widen(multiplier);
}

// Attention over pages of e4m3 with random codes, multipliers and queries.
class Attended {
 public:
  // Computes tokens at positions [start, start + count) of one sequence.
  Attended(int32_t d, int32_t start, int32_t count)
      : layout_{d}, start_(start), count_(count), group_(kQueryHeads / kHeads) {
    Random random{53};
    int32_t const pages = (kContext + kPageTokens - 1) / kPageTokens;
    bytes_.resize(size_t(pages * layout_.page()));
    for (uint8_t& byte : bytes_) byte = uint8_t(random.below(0x7f) | random.below(2) << 7);
    for (int32_t page = 0; page < pages; ++page)
      for (int32_t slot = 0; slot < kPageTokens; ++slot)
        for (int32_t head = 0; head < kHeads; ++head)
          for (bool values : {false, true}) {
            // Numbers are at most 448 / 64.
            uint16_t const multiplier = uint16_t((127 + 120 - 6 - random.below(3)) << 7);
            std::memcpy(&bytes_[size_t(layout_.multiplier(page, 1, values, head, slot))], &multiplier, 2);
          }
    for (int32_t i = 0; i < kContext * kQueryHeads * d; ++i)
      q_.push_back(reference::narrow(random.uniform(-1, 1)));
    run(pages);
  }

  // [count, Hq, D]
  std::vector<uint16_t> const& out() const { return out_; }

  // Returns the largest error of a row, relative to the row's norm.
  double error() const {
    double worst = 0;
    for (int32_t t = 0; t < count_; ++t)
      for (int32_t head = 0; head < kQueryHeads; ++head) worst = std::max(worst, error_of(t, head));
    return worst;
  }

 private:
  static constexpr int32_t kContext = 400, kQueryHeads = 4;

  float value(int32_t position, bool values, int32_t head, int32_t i) const {
    int32_t const page = position / kPageTokens, slot = position % kPageTokens;
    return value_of(bytes_, layout_.row(page, 1, values, head, slot) + i,
                    layout_.multiplier(page, 1, values, head, slot));
  }

  double error_of(int32_t t, int32_t head) const {
    int32_t const d = layout_.d, position = start_ + t, kv_head = head / group_;
    std::vector<double> weights;
    double most = -1e30, total = 0;
    for (int32_t p = 0; p <= position; ++p) {
      double score = 0;
      for (int32_t i = 0; i < d; ++i)
        score += double(reference::widen(q_[size_t((position * kQueryHeads + head) * d + i)])) *
                 double(value(p, false, kv_head, i));
      weights.push_back(score * kScale);
      most = std::max(most, weights.back());
    }
    for (double& weight : weights) total += weight = std::exp(weight - most);
    double squares = 0, error = 0;
    for (int32_t i = 0; i < d; ++i) {
      double want = 0;
      for (int32_t p = 0; p <= position; ++p)
        want += weights[size_t(p)] / total * double(value(p, true, kv_head, i));
      double const off = double(reference::widen(out_[size_t((t * kQueryHeads + head) * d + i)])) - want;
      squares += want * want;
      error += off * off;
    }
    return std::sqrt(error / squares);
  }

  void run(int32_t pages) {
    int32_t const d = layout_.d;
    std::vector<cuda::AttentionChunk> const chunks = {{0, count_, start_, 0}};
    cuda::AttentionPlan plan;
    cuda::plan_attention({kQueryHeads, kHeads, 0, 3, d}, chunks, {}, plan);
    std::vector<int32_t> ids, positions;
    for (int32_t page = 0; page < pages; ++page) ids.push_back(page);
    for (int32_t t = 0; t < count_; ++t) positions.push_back(start_ + t);
    size_t const first = size_t(start_ * kQueryHeads * d), size = size_t(count_ * kQueryHeads * d);
    DeviceArray<uint8_t> const kv(bytes_);
    DeviceArray<uint16_t> const q(
        std::vector<uint16_t>(q_.begin() + int64_t(first), q_.begin() + int64_t(first + size))),
        out(size);
    DeviceArray<cuda::AttentionItem> const items(plan.items);
    DeviceArray<int32_t> const item_begin(plan.item_begin), merge_begin(plan.merge_begin),
        merge_rows(plan.merge_rows), page_ids(ids), device_positions(positions),
        arrived(std::vector<int32_t>(size_t(count_ * kHeads)));
    DeviceArray<float> const partial_out(size_t(plan.partial_rows * d)),
        partial_log(size_t(plan.partial_rows)), running(size_t(3 * cuda::kManyRows * d));
    cuda::Attention const attention{q.data(),
                                    out.data(),
                                    layout_.kv(kv.data(), 1),
                                    kQueryHeads,
                                    0,
                                    float(kScale),
                                    3,
                                    items.data(),
                                    item_begin.data(),
                                    merge_begin.data(),
                                    merge_rows.data(),
                                    page_ids.data(),
                                    device_positions.data(),
                                    partial_out.data(),
                                    partial_log.data(),
                                    running.data(),
                                    arrived.data()};
    RUNS(cuda::attention(stream, attention));
    out_ = out.get();
  }

  static constexpr double kScale = 0.05;
  Layout layout_;
  int32_t start_, count_, group_;
  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> q_, out_;
};

}  // namespace

TEST(cuda_kv_fp8_append_keeps_three_bits_and_the_largest) {
  Random random{51};
  std::vector<int32_t> const positions = {3, 4, 5}, slots = {2 * 16 + 3, 2 * 16 + 4, 15};
  for (int32_t d : {64, 96, 128}) {
    Layout const layout{d};
    int32_t const width = 3 * kHeads * d;  // as many query heads as KV heads
    std::vector<float> qkv(positions.size() * size_t(width));
    for (float& x : qkv) x = random.uniform(-1, 1) * std::exp2(random.uniform(-12, 4));
    qkv[size_t(width + kHeads * d)] = INFINITY;  // keys of token 1, head 0
    for (int32_t i = 0; i < d; ++i)
      qkv[size_t(2 * width + 2 * kHeads * d + i)] = 0;  // values of token 2, head 0
    qkv[size_t(2 * kHeads * d + d)] =
        448.0f * 64;  // values of token 0, head 1: 448 times a power of two, so exact
    std::vector<float> const cos(size_t(8 * d / 2), 1.0f), sin(cos.size());  // no rotation
    DeviceArray<float> const device_qkv(qkv), device_cos(cos), device_sin(sin);
    DeviceArray<int32_t> const device_positions(positions), device_slots(slots);
    DeviceArray<uint16_t> const q(positions.size() * size_t(kHeads * d));
    DeviceArray<uint8_t> const pages(std::vector<uint8_t>(size_t(kPages * layout.page()), 0xab));
    RUNS(cuda::rope_append(stream,
                           {device_qkv.data(), q.data(), kHeads, nullptr, nullptr, 1e-6f, device_cos.data(),
                            device_sin.data(), nullptr, device_positions.data(), device_slots.data(),
                            layout.kv(pages.data(), 1), int32_t(positions.size()), d == 128 ? 64 : d}));
    std::vector<uint8_t> const got = pages.get();
    size_t written = 0;
    for (uint8_t byte : got) written += byte != 0xab;
    CHECK(written <= positions.size() * size_t(2 * kHeads * (d + 2)), "%zu bytes are written", written);
    for (size_t t = 0; t < positions.size(); ++t)
      for (bool values : {false, true})
        for (int32_t head = 0; head < kHeads; ++head) {
          float const* const want = &qkv[t * size_t(width) + size_t(((values ? 2 : 1) * kHeads + head) * d)];
          int32_t const page = slots[t] / 16, slot = slots[t] % 16;
          int64_t const row = layout.row(page, 1, values, head, slot),
                        multiplier = layout.multiplier(page, 1, values, head, slot);
          float largest = 0;
          for (int32_t i = 0; i < d; ++i) largest = std::max(largest, std::fabs(want[i]));
          for (int32_t i = 0; i < d; ++i) {
            float const x = value_of(got, row + i, multiplier);
            if (std::isinf(largest))
              CHECK(std::isnan(x), "%g where a number was not finite", double(x));
            else
              CHECK(std::fabs(x - want[i]) <= std::fabs(want[i]) * 0x1p-4f + largest * 0x1p-17f,
                    "D=%d token %zu values %d head %d at %d: %g of %g", d, t, values, head, i, double(x),
                    double(want[i]));
          }
        }
    CHECK(value_of(got, layout.row(2, 1, true, 1, 3), layout.multiplier(2, 1, true, 1, 3)) == 448.0f * 64,
          "the largest");
  }
}

TEST(cuda_kv_fp8_copies_slots_with_their_multipliers) {
  Random random{52};
  Layout const layout{64};
  std::vector<uint8_t> bytes(size_t(kPages * layout.page()));
  for (uint8_t& byte : bytes) byte = uint8_t(random.below(256));
  DeviceArray<uint8_t> const pages(bytes);
  DeviceArray<cuda::PageCopy> const copies(std::vector<cuda::PageCopy>{{0, 2, 5}, {3, 1, 16}});
  RUNS(cuda::copy_pages(stream, {reinterpret_cast<uint16_t*>(pages.data()), copies.data(), 2,
                                 layout.page() / 2, layout.page() / 2, 64, kPageTokens, kHeads}));
  std::vector<uint8_t> want = bytes;
  for (auto [from, to, tokens] : {std::tuple(0, 2, 5), std::tuple(3, 1, 16)})
    for (int32_t layer = 0; layer < kLayers; ++layer)
      for (int32_t head = 0; head < kHeads; ++head)
        for (int32_t slot = 0; slot < tokens; ++slot)
          for (bool values : {false, true}) {
            std::copy_n(&bytes[size_t(layout.row(from, layer, values, head, slot))], 64,
                        &want[size_t(layout.row(to, layer, values, head, slot))]);
            std::copy_n(&bytes[size_t(layout.multiplier(from, layer, values, head, slot))], 2,
                        &want[size_t(layout.multiplier(to, layer, values, head, slot))]);
          }
  CHECK(pages.get() == want, "other bytes");
}

TEST(cuda_kv_fp8_attention_matches_sums_in_double) {
  constexpr double kErrorMax = 4e-3;  // rounding of probabilities and results to bf16
  for (int32_t d : {64, 96, 128}) {
    Attended const decode(d, 387, 1), chunk(d, 350, 40);
    CHECK(decode.error() <= kErrorMax, "D=%d a decode: %g", d, decode.error());
    CHECK(chunk.error() <= kErrorMax, "D=%d a chunk: %g", d, chunk.error());
    size_t const row = decode.out().size();
    CHECK(std::equal(decode.out().begin(), decode.out().end(), chunk.out().begin() + int64_t(37 * row)),
          "D=%d: a decode and the same token in a chunk have other bits", d);
  }
}

}  // namespace bunting::test
