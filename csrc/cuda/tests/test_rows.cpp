// embed, rmsnorm, swiglu and copy_pages against the reference loops.
#include "cuda/tests/device_test.h"
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

struct Norm {
  int32_t tokens, hidden;
  std::vector<float> x, delta, weight, summed;

  Norm(Random& random, int32_t t, int32_t h)
      : tokens(t),
        hidden(h),
        x(random_floats(random, size_t(t * h), 3)),
        delta(random_floats(random, size_t(t * h))),
        weight(random_floats(random, size_t(h), 2)),
        summed(x) {
    for (size_t j = 0; j < x.size(); ++j) summed[j] += delta[j];
  }
  // Of x, or of x with delta.
  std::vector<double> wanted(std::vector<float> const& of) const {
    std::vector<double> y(of.size());
    reference::norm(y.data(), hidden, of.data(), hidden, {NormKind::rms, weight.data(), 1e-5f}, hidden,
                    tokens);
    return y;
  }
};

}  // namespace

TEST(cuda_rmsnorm_adds_and_matches_the_reference) {
  Random random{2};
  for (int hidden : {4, 60, 1024, 1028, 4096})
    for (bool added : {false, true}) {
      Norm const n(random, 3, hidden);
      std::vector<float> const& sums = added ? n.summed : n.x;
      std::vector<double> const want = n.wanted(sums);
      DeviceArray<float> const x(n.x), delta(n.delta), weight(n.weight);
      DeviceArray<uint16_t> const y(n.x.size());
      RUNS(cuda::rmsnorm(
          stream, {x.data(), added ? delta.data() : nullptr, weight.data(), y.data(), 1e-5f, 3, hidden}));
      CHECK(x.get() == sums, "H=%d added=%d: other sums", hidden, added);
      std::vector<uint16_t> const got = y.get();
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(is_rounded(got[i], want[i]), "H=%d added=%d element %zu: %g, wanted %g", hidden, added, i,
              double(reference::widen(got[i])), want[i]);
    }
}

TEST(cuda_rmsnorm_rows_do_not_depend_on_company) {
  Random random{3};
  Norm const n(random, 6, 512);
  DeviceArray<float> const x(n.x), weight(n.weight);
  DeviceArray<uint16_t> const all(n.x.size()), some(2 * 512);
  RUNS(cuda::rmsnorm(stream, {x.data(), nullptr, weight.data(), all.data(), 1e-5f, 6, 512}));
  RUNS(cuda::rmsnorm(stream, {x.data() + 3 * 512, nullptr, weight.data(), some.data(), 1e-5f, 2, 512}));
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

TEST(cuda_rmsnorm_waits_nowhere_in_vain) {
  Random random{4};
  Norm const n(random, 2, 1024);
  std::vector<double> const want = n.wanted(n.x);
  DeviceArray<float> const x(n.x), weight(n.weight);
  DeviceArray<uint16_t> const y(n.x.size());
  every_wait_is_needed(
      [&](cuda::Stream& stream) {
        stream.fill(y.data(), 0xff, n.x.size() * 2);
        cuda::rmsnorm(stream, {x.data(), nullptr, weight.data(), y.data(), 1e-5f, 2, 1024});
      },
      [&] { return is_rounded(y.get()[5], want[5]); });
}

TEST(cuda_swiglu_matches_the_reference) {
  Random random{5};
  for (int width : {4, 100, 1024, 1500}) {
    int const tokens = 3;
    std::vector<float> const gate_up = random_floats(random, size_t(tokens * 2 * width), 6);
    std::vector<double> want(size_t(tokens * width));
    reference::gate(want.data(), width, gate_up.data(), 2 * width, width, Activation::silu, tokens);
    DeviceArray<float> const in(gate_up);
    DeviceArray<uint16_t> const y(want.size());
    RUNS(cuda::swiglu(stream, {in.data(), y.data(), tokens, width}));
    std::vector<uint16_t> const got = y.get();
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(is_rounded(got[i], want[i], 1e-5), "F=%d element %zu: %g, wanted %g", width, i,
            double(reference::widen(got[i])), want[i]);
  }
}

TEST(cuda_copy_pages_copies_the_wanted_slots_and_nothing_else) {
  Random random{6};
  int const head_size = 64, page_tokens = 16, parts = 2 * 2 * 3, pages = 7;  // 2 layers of 3 heads
  int const part = page_tokens * head_size, page = parts * part;
  std::vector<uint16_t> want = random_halves(random, size_t(pages * page));
  std::vector<cuda::PageCopy> const copies = {{0, 3, 16}, {5, 1, 1}, {0, 6, 7}};
  DeviceArray<uint16_t> const device(want);
  DeviceArray<cuda::PageCopy> const device_copies(copies);
  RUNS(cuda::copy_pages(stream, {device.data(), device_copies.data(), 3, page, head_size, page_tokens}));
  for (cuda::PageCopy const& copy : copies)
    for (int p = 0; p < parts; ++p)
      std::copy_n(want.begin() + copy.from * page + p * part, copy.tokens * head_size,
                  want.begin() + copy.to * page + p * part);
  CHECK(device.get() == want, "pages differ");
}

}  // namespace bunting::test
