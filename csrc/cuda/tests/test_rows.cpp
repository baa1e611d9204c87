// Tests of embed, add_norm, gather, gate, cap and copy_pages against the reference loops.
#include "cuda/tests/device_test.h"
#include "include/engine.h"
#include "reference/dense.h"

namespace bunting::test {

TEST(cuda_embed_copies_rows) {
  Random random{1};
  for (int hidden : {8, 64, 1032}) {
    int const vocab = 11;
    std::vector<uint16_t> const table = random_halves(random, size_t(vocab * hidden));
    std::vector<int32_t> const ids = {3, 0, 10, 3, 7};
    DeviceArray<uint16_t> const device_table(table);
    DeviceArray<int32_t> const device_ids(ids);
    DeviceArray<float> const x(ids.size() * size_t(hidden));
    RUNS(
        cuda::embed(stream, {x.data(), device_table.data(), device_ids.data(), int32_t(ids.size()), hidden}));
    std::vector<float> const got = x.get();
    for (size_t i = 0; i < got.size(); ++i) {
      uint16_t const want = table[size_t(ids[i / size_t(hidden)] * hidden) + i % size_t(hidden)];
      CHECK(got[i] == reference::widen(want), "H=%d element %zu: %g", hidden, i, double(got[i]));
    }
  }
}

namespace {

// The weights of norms have biases behind them.
struct Rows {
  int32_t tokens, hidden;
  std::vector<float> x, delta, weight, delta_weight;

  Rows(Random& random, int32_t t, int32_t h)
      : tokens(t),
        hidden(h),
        x(random_floats(random, size_t(t * h), 3)),
        delta(random_floats(random, size_t(t * h))),
        weight(random_floats(random, size_t(2 * h), 2)),
        delta_weight(random_floats(random, size_t(2 * h), 2)) {}
};

// Inputs of a norm: x alone, x with delta, or x with a delta that has its own norm.
enum class Added { nothing, plainly, normed };

struct NormCase {
  NormKind kind;
  Added added;
  bool has_weight;
  bool has_biases = false;
};
constexpr NormCase kNormCases[] = {
    {NormKind::rms, Added::nothing, true},         {NormKind::rms, Added::plainly, true},
    {NormKind::rms, Added::normed, true},          {NormKind::rms, Added::normed, false},
    {NormKind::layer, Added::plainly, true},       {NormKind::layer, Added::normed, true},
    {NormKind::layer, Added::nothing, true, true}, {NormKind::layer, Added::normed, true, true}};
constexpr float kEpsilon = 1e-5f, kDeltaScale = 0.375f;

}  // namespace

TEST(cuda_add_norm_matches_the_reference) {
  Random random{2};
  for (int hidden : {4, 60, 1028, 4096})
    for (NormCase const& c : kNormCases) {
      Rows const n(random, 3, hidden);
      std::vector<double> sums(n.x.begin(), n.x.end());
      auto const bias = [&](std::vector<float> const& weights) {
        return c.has_biases ? weights.data() + hidden : nullptr;
      };
      Norm const of_delta{c.added == Added::normed ? c.kind : NormKind::none, n.delta_weight.data(), kEpsilon,
                          bias(n.delta_weight)};
      if (c.added != Added::nothing)
        reference::add_normed(sums.data(), n.x.data(), n.delta.data(), of_delta, kDeltaScale, hidden, 3);
      DeviceArray<float> const x(n.x), delta(n.delta), weight(n.weight), delta_weight(n.delta_weight),
          exact(n.x.size());
      DeviceArray<uint16_t> const y(n.x.size());
      RUNS(cuda::add_norm(stream, {x.data(), c.added == Added::nothing ? nullptr : delta.data(),
                                   c.has_weight ? weight.data() : nullptr, y.data(), kEpsilon, 3, hidden,
                                   kDeltaScale, c.added == Added::normed ? delta_weight.data() : nullptr,
                                   int32_t(c.kind), exact.data(), 1, c.has_biases}));
      std::vector<float> const summed = x.get(), got_exact = exact.get();
      std::vector<double> want(sums.size());
      reference::norm(want.data(), hidden, summed.data(), hidden,
                      {c.has_weight ? c.kind : NormKind::none, n.weight.data(), kEpsilon, bias(n.weight)},
                      hidden, 3);
      std::vector<uint16_t> const got = y.get();
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(std::fabs(double(summed[i]) - sums[i]) <= 1e-5, "H=%d kind %d added %d sum %zu: %g, wanted %g",
              hidden, int(c.kind), int(c.added), i, double(summed[i]), sums[i]);
        CHECK(std::fabs(double(got_exact[i]) - want[i]) <= 2e-5 && is_rounded(got[i], want[i], 2e-5),
              "H=%d kind %d added %d element %zu: %g, wanted %g", hidden, int(c.kind), int(c.added), i,
              double(reference::widen(got[i])), want[i]);
      }
    }
}

TEST(cuda_add_norm_only_adds_where_nothing_is_to_be_normed) {
  Random random{14};
  Rows const n(random, 2, 64);
  DeviceArray<float> const x(n.x), delta(n.delta);
  RUNS(cuda::add_norm(stream, {x.data(), delta.data(), nullptr, nullptr, kEpsilon, 2, 64}));
  std::vector<float> want = n.x;
  for (size_t i = 0; i < want.size(); ++i) want[i] += n.delta[i];
  CHECK(x.get() == want, "other sums");
}

TEST(cuda_add_norm_scales_sums_and_keeps_what_is_exact_alone) {
  Random random{16};
  Rows const n(random, 2, 64);
  DeviceArray<float> const x(n.x), delta(n.delta), exact(n.x.size());
  RUNS(cuda::add_norm(stream, {.x = x.data(),
                               .delta = delta.data(),
                               .weight = nullptr,
                               .y = nullptr,
                               .epsilon = kEpsilon,
                               .tokens = 2,
                               .hidden = 64,
                               .exact = exact.data(),
                               .sum_scale = 0.5f}));
  std::vector<float> want = n.x;
  for (size_t i = 0; i < want.size(); ++i) want[i] = (want[i] + n.delta[i]) * 0.5f;
  CHECK(x.get() == want && exact.get() == want, "other sums");
}

TEST(cuda_add_norm_rows_do_not_depend_on_company) {
  Random random{3};
  Rows const n(random, 6, 512);
  DeviceArray<float> const x(n.x), weight(n.weight);
  DeviceArray<uint16_t> const all(n.x.size()), some(2 * 512);
  RUNS(cuda::add_norm(stream, {x.data(), nullptr, weight.data(), all.data(), kEpsilon, 6, 512}));
  RUNS(cuda::add_norm(stream, {x.data() + 3 * 512, nullptr, weight.data(), some.data(), kEpsilon, 2, 512}));
  std::vector<uint16_t> const want = all.get(), got = some.get();
  CHECK(std::equal(got.begin(), got.end(), want.begin() + 3 * 512), "two of six rows differ");
}

TEST(cuda_gather_copies_rows) {
  Random random{13};
  for (int width : {8, 72, 4096}) {
    std::vector<uint16_t> const from = random_halves(random, size_t(6 * width));
    std::vector<int32_t> const rows = {5, 0, 2};
    DeviceArray<uint16_t> const device(from), to(rows.size() * size_t(width));
    DeviceArray<int32_t> const device_rows(rows);
    RUNS(cuda::gather(stream, {device.data(), to.data(), device_rows.data(), 3, 2 * width}));
    std::vector<uint16_t> const got = to.get();
    for (size_t r = 0; r < rows.size(); ++r)
      CHECK(std::equal(got.begin() + int64_t(r) * width, got.begin() + int64_t(r + 1) * width,
                       from.begin() + rows[r] * width),
            "row %zu of %d elements", r, width);
  }
}

TEST(cuda_add_norm_waits_nowhere_in_vain) {
  Random random{4};
  Rows const n(random, 2, 1024);
  std::vector<double> sums(n.x.size()), want(n.x.size());
  reference::add_normed(sums.data(), n.x.data(), n.delta.data(),
                        {NormKind::layer, n.delta_weight.data(), kEpsilon}, 1, 1024, 2);
  std::vector<float> const summed(sums.begin(), sums.end());
  reference::norm(want.data(), 1024, summed.data(), 1024, {NormKind::layer, n.weight.data(), kEpsilon}, 1024,
                  2);
  DeviceArray<float> const from(n.x), x(n.x.size()), delta(n.delta), weight(n.weight),
      delta_weight(n.delta_weight);
  DeviceArray<uint16_t> const y(n.x.size());
  every_wait_is_needed(
      [&](cuda::Stream& stream) {
        stream.copy(x.data(), from.data(), n.x.size() * sizeof(float));
        stream.fill(y.data(), 0xff, n.x.size() * 2);
        cuda::add_norm(stream, {x.data(), delta.data(), weight.data(), y.data(), kEpsilon, 2, 1024, 1,
                                delta_weight.data(), BUNTING_NORM_LAYER});
      },
      [&] { return is_rounded(y.get()[5], want[5], 2e-5); });
}

TEST(cuda_gate_matches_the_reference) {
  Random random{5};
  for (Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::clamped_swiglu})
    for (int width : {4, 100, 1500}) {
      int const tokens = 3;
      std::vector<float> const gate_up = random_floats(random, size_t(tokens * 2 * width), 9);
      std::vector<double> want(size_t(tokens * width));
      reference::gate(want.data(), width, gate_up.data(), 2 * width, width, activation, tokens);
      DeviceArray<float> const in(gate_up);
      DeviceArray<uint16_t> const y(want.size());
      RUNS(cuda::gate(stream, cuda::gate_of(in.data(), y.data(), tokens, width, int32_t(activation))));
      std::vector<uint16_t> const got = y.get();
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(is_rounded(got[i], want[i], 2e-5), "activation %d F=%d element %zu: %g, wanted %g",
              int(activation), width, i, double(reference::widen(got[i])), want[i]);
    }
}

// Activations of a plain MLP: without ups.
TEST(cuda_gate_without_ups_activates) {
  Random random{6};
  Xielu const numbers{1.2f, 0.9f, 0.5f, -1e-6f};
  for (Activation activation : {Activation::gelu_tanh, Activation::xielu, Activation::relu_squared})
    for (int width : {4, 100, 1500}) {
      int const tokens = 3;
      std::vector<float> const rows = random_floats(random, size_t(tokens * width), 9);
      DeviceArray<float> const in(rows);
      DeviceArray<uint16_t> const y(rows.size());
      RUNS(cuda::gate(stream, {.gate = in.data(),
                               .up = nullptr,
                               .gate_stride = width,
                               .up_stride = 0,
                               .y = y.data(),
                               .tokens = tokens,
                               .feed_forward = width,
                               .activation = int32_t(activation),
                               .xielu = numbers}));
      std::vector<uint16_t> const got = y.get();
      for (size_t i = 0; i < got.size(); ++i) {
        float const gate_up[] = {rows[i], 1};
        double want = reference::xielu(double(rows[i]), numbers);
        if (activation != Activation::xielu) reference::gate(&want, 1, gate_up, 2, 1, activation, 1);
        CHECK(is_rounded(got[i], want, 2e-5), "activation %d F=%d of %g: %g, wanted %g", int(activation),
              width, double(rows[i]), double(reference::widen(got[i])), want);
      }
    }
}

// Rows as in per-layer inputs: a part of wider rows, in another order.
TEST(cuda_gate_takes_rows_of_others) {
  Random random{17};
  constexpr int kTokens = 3, kWidth = 8, kUpWidth = 40, kUpAt = 16;
  std::vector<float> const gates = random_floats(random, kTokens * kWidth, 3),
                           ups = random_floats(random, 5 * kUpWidth, 3);
  std::vector<int32_t> const rows = {4, 0, 2};
  std::vector<float> gate_up;
  for (size_t t = 0; t < kTokens; ++t) {
    gate_up.insert(gate_up.end(), gates.begin() + long(t) * kWidth, gates.begin() + long(t + 1) * kWidth);
    auto const up = ups.begin() + rows[t] * kUpWidth + kUpAt;
    gate_up.insert(gate_up.end(), up, up + kWidth);
  }
  std::vector<double> want(kTokens * kWidth);
  reference::gate(want.data(), kWidth, gate_up.data(), 2 * kWidth, kWidth, Activation::gelu_tanh, kTokens);
  DeviceArray<float> const gate(gates), up(ups);
  DeviceArray<int32_t> const up_rows(rows);
  DeviceArray<uint16_t> const y(want.size());
  RUNS(cuda::gate(stream, {gate.data(), up.data() + kUpAt, kWidth, kUpWidth, y.data(), kTokens, kWidth,
                           int32_t(Activation::gelu_tanh), up_rows.data()}));
  std::vector<uint16_t> const got = y.get();
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(is_rounded(got[i], want[i], 2e-5), "element %zu: %g, wanted %g", i,
          double(reference::widen(got[i])), want[i]);
}

TEST(cuda_cap_matches_the_reference) {
  Random random{15};
  std::vector<float> values = random_floats(random, 1500, 120);
  values[0] = 1e30f, values[1] = -1e30f, values[2] = 0;
  DeviceArray<float> const x(values);
  RUNS(cuda::cap(stream, {x.data(), int64_t(values.size()), 30}));
  std::vector<float> const got = x.get();
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(std::fabs(double(got[i]) - 30 * std::tanh(double(values[i]) / 30)) <= 3e-5, "%g becomes %g",
          double(values[i]), double(got[i]));
}

TEST(cuda_copy_pages_copies_the_wanted_slots_and_nothing_else) {
  Random random{6};
  int const head_size = 64, page_tokens = 16, parts = 2 * 2 * 3, pages = 7;  // 2 layers of 3 heads
  int const part = page_tokens * head_size, page = parts * part;
  std::vector<uint16_t> want = random_halves(random, size_t(pages * page));
  std::vector<cuda::PageCopy> const copies = {{0, 3, 16}, {5, 1, 1}, {0, 6, 7}};
  DeviceArray<uint16_t> const device(want);
  DeviceArray<cuda::PageCopy> const device_copies(copies);
  RUNS(
      cuda::copy_pages(stream, {device.data(), device_copies.data(), 3, page, page, head_size, page_tokens}));
  for (cuda::PageCopy const& copy : copies)
    for (int p = 0; p < parts; ++p)
      std::copy_n(want.begin() + copy.from * page + p * part, copy.tokens * head_size,
                  want.begin() + copy.to * page + p * part);
  CHECK(device.get() == want, "pages differ");
}

}  // namespace bunting::test
