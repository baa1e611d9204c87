// Tests of the kernels of latent layers against plain loops in double.
#include "cuda/tests/device_test.h"
#include "reference/attention.h"

namespace bunting::test {

TEST(cuda_latent_append_matches_the_reference) {
  Random random{11};
  constexpr int32_t kTokens = 5, kPages = 4, kLayers = 2;
  struct Sizes {
    int32_t heads, nope, latent, rotated;
    bool is_scaled;
  };
  for (auto const [heads, nope, latent, rotated, is_scaled] : {Sizes{3, 16, 32, 16, false},
                                                               {5, 48, 64, 32, true},
                                                               {2, 128, 512, 64, false},
                                                               {1, 192, 256, 64, true}}) {
    int32_t const d = latent + rotated, width = nope + rotated;
    std::vector<float> const queries = random_floats(random, size_t(kTokens * heads * width), 2),
                             key = random_floats(random, size_t(kTokens * d), 2),
                             norm = random_floats(random, size_t(latent)),
                             cos = random_floats(random, size_t(kTokens * rotated / 2)),
                             sin = random_floats(random, cos.size()), scale = random_floats(random, 40, 2);
    std::vector<int32_t> const positions = {7, 8, 39, 0, 16},
                               slots = {3 * 16 + 7, 3 * 16 + 8, 15, cuda::kNoSlot, 16};
    std::vector<float> key_copy = key;
    LatentAppend const wanted{.q = queries.data(),
                              .ldq = int64_t(heads) * width,
                              .kv = key_copy.data(),
                              .ldkv = d,
                              .query_heads = heads,
                              .nope_size = nope,
                              .norm = norm.data(),
                              .norm_epsilon = 1e-6f,
                              .rotated = rotated,
                              .cos = cos.data(),
                              .sin = sin.data(),
                              .query_scale = is_scaled ? scale.data() : nullptr,
                              .positions = positions.data(),
                              .token_pages = nullptr,
                              .kv_layer = {.kv_heads = 1, .head_size = d, .latent = latent},
                              .nope = {},
                              .absorbed = nullptr,
                              .ldabsorbed = 0};
    std::vector<double> q(queries.size()), k(key.size());
    reference::latent_append(wanted, 0, kTokens, q.data(), k.data());

    int64_t const part = 16 * d, page = kLayers * part;
    DeviceArray<uint16_t> const pages(size_t(kPages * page)), device_nope(size_t(kTokens * heads * nope)),
        device_q(size_t(kTokens * heads * d));
    DeviceArray<float> const device_queries(queries), device_key(key), device_norm(norm), device_cos(cos),
        device_sin(sin), device_scale(scale);
    DeviceArray<int32_t> const device_positions(positions), device_slots(slots);
    cuda::KvPages const kv{pages.data() + part, page, part, 1, d, 16};  // layer 1
    RUNS(cuda::latent_append(stream, {.queries = device_queries.data(),
                                      .key = device_key.data(),
                                      .nope = device_nope.data(),
                                      .q = device_q.data(),
                                      .query_heads = heads,
                                      .nope_size = nope,
                                      .latent = latent,
                                      .norm = device_norm.data(),
                                      .norm_epsilon = 1e-6f,
                                      .rotated = rotated,
                                      .cos = device_cos.data(),
                                      .sin = device_sin.data(),
                                      .query_scale = is_scaled ? device_scale.data() : nullptr,
                                      .positions = device_positions.data(),
                                      .slots = device_slots.data(),
                                      .kv = kv,
                                      .tokens = kTokens}));
    std::vector<uint16_t> const got_nope = device_nope.get(), got_q = device_q.get(), got = pages.get();
    for (int32_t row = 0; row < kTokens * heads; ++row) {
      double const* const want = q.data() + row * width;
      for (int32_t i = 0; i < nope; ++i)
        CHECK(is_rounded(got_nope[size_t(row * nope + i)], want[i]), "nope of row %d at %d", row, i);
      for (int32_t i = 0; i < d; ++i) {
        uint16_t const x = got_q[size_t(row * d + i)];
        CHECK(i < latent ? x == 0xffff : is_rounded(x, want[nope + i - latent]), "q of row %d at %d", row, i);
      }
    }
    size_t written = 0;
    for (uint16_t const value : got) written += value != 0xffff;
    CHECK(written == size_t((kTokens - 1) * d), "%zu numbers are in pages", written);
    for (int32_t t = 0; t < kTokens; ++t)
      for (int32_t i = 0; i < d && slots[size_t(t)] != cuda::kNoSlot; ++i) {
        int64_t const at = slots[size_t(t)] / 16 * page + part + slots[size_t(t)] % 16 * d + i;
        CHECK(is_rounded(got[size_t(at)], k[size_t(t * d + i)]), "key of token %d at %d", t, i);
      }
  }
}

TEST(cuda_head_product_matches_sums_in_double) {
  Random random{12};
  struct Sizes {
    int32_t tokens, heads, n, k;
  };
  for (auto const [tokens, heads, n, k] :
       {Sizes{1, 2, 16, 16}, {5, 3, 32, 48}, {17, 2, 80, 64}, {33, 1, 512, 16}}) {
    int64_t const x_head = k + 16, x_token = heads * x_head + 32, y_head = n + 8, y_token = heads * y_head;
    std::vector<uint16_t> const x = random_halves(random, size_t(tokens * x_token)),
                                w = random_halves(random, size_t(heads * n * k));
    DeviceArray<uint16_t> const device_x(x), device_w(w), device_y(size_t(tokens * y_token));
    RUNS(cuda::head_product(stream, {device_x.data(), device_w.data(), device_y.data(), x_token, x_head,
                                     y_token, y_head, tokens, heads, n, k}));
    std::vector<uint16_t> const y = device_y.get();
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t i = 0; i < y_head; ++i) {
          uint16_t const got = y[size_t(t * y_token + head * y_head + i)];
          if (i >= n) {
            CHECK(got == 0xffff, "column %d of %d is written", int(i), n);
            continue;
          }
          double sum = 0, magnitudes = 0;
          for (int64_t j = 0; j < k; ++j) {
            double const term = double(reference::widen(x[size_t(t * x_token + head * x_head + j)])) *
                                double(reference::widen(w[size_t((head * n + i) * k + j)]));
            sum += term, magnitudes += std::fabs(term);
          }
          CHECK(is_rounded(got, sum, magnitudes * kSumError), "token %d head %d column %d of %d", int(t),
                int(head), int(i), n);
        }
  }
}

namespace {

// A step of two sequences' tokens over pages of latents, of which those that no token sees are NaN.
struct LatentStep {
  int32_t heads, latent, d;
  std::vector<int32_t> positions, pages_at, slots, pages;
  std::vector<uint16_t> q, numbers;

  LatentStep(Random& random, int32_t heads, int32_t latent, int32_t rotated,
             std::vector<std::pair<int32_t, int32_t>> const& chunks)  // start, count
      : heads(heads), latent(latent), d(latent + rotated) {
    int32_t next = 0;
    for (auto const& [start, count] : chunks) {
      int32_t const first = int32_t(pages.size()), page_count = (start + count + 15) / 16;
      for (int32_t i = 0; i < page_count; ++i) pages.push_back(page_count - 1 - i + next);
      next += page_count;
      for (int32_t t = 0; t < count; ++t) {
        positions.push_back(start + t);
        pages_at.push_back(first);
        slots.push_back(0);
      }
      numbers.resize(size_t(next) * 16 * size_t(d), 0xffff);
      for (int32_t position = 0; position < start + count; ++position)
        for (int32_t i = 0; i < d; ++i)
          numbers[at(first, position, i)] = reference::narrow(random.uniform(-1, 1));
    }
    q = random_halves(random, positions.size() * size_t(heads * d), 2);
  }

  size_t at(int32_t first_page, int32_t position, int32_t i) const {
    return size_t((pages[size_t(first_page + position / 16)] * 16 + position % 16) * d + i);
  }
  float scale() const { return 1 / std::sqrt(float(d)); }

  std::vector<uint16_t> run(std::string& fault) const {
    DeviceArray<uint16_t> const device_q(q), device_numbers(numbers),
        out(positions.size() * size_t(heads * latent));
    DeviceArray<int32_t> const device_pages(pages), device_at(pages_at), device_positions(positions),
        device_slots(slots);
    fault = fault_of([&](cuda::Stream& stream) {
      cuda::latent_attention(stream, {.q = device_q.data(),
                                      .out = out.data(),
                                      .kv = {device_numbers.data(), 16 * d, 16 * d, 1, d, 16},
                                      .query_heads = heads,
                                      .latent = latent,
                                      .scale = scale(),
                                      .pages = device_pages.data(),
                                      .pages_at = device_at.data(),
                                      .positions = device_positions.data(),
                                      .slots = device_slots.data(),
                                      .tokens = int32_t(positions.size())});
    });
    return out.get();
  }

  std::vector<double> expected() const {
    std::vector<double> out;
    for (size_t t = 0; t < positions.size(); ++t)
      for (int32_t head = 0; head < heads; ++head) {
        std::vector<double> p;
        double largest = -INFINITY, total = 0;
        for (int32_t position = 0; position <= positions[t]; ++position) {
          double score = 0;
          for (int32_t i = 0; i < d; ++i)
            score += double(reference::widen(q[(t * size_t(heads) + size_t(head)) * size_t(d) + size_t(i)])) *
                     double(reference::widen(numbers[at(pages_at[t], position, i)]));
          p.push_back(score * double(scale()));
          largest = std::max(largest, p.back());
        }
        for (double& x : p) total += x = std::exp(x - largest);
        for (int32_t i = 0; i < latent; ++i) {
          double sum = 0;
          for (int32_t position = 0; position <= positions[t]; ++position)
            sum += p[size_t(position)] * double(reference::widen(numbers[at(pages_at[t], position, i)]));
          out.push_back(sum / total);
        }
      }
    return out;
  }
};

}  // namespace

TEST(cuda_latent_attention_matches_the_reference) {
  Random random{13};
  struct Sizes {
    int32_t heads, latent, rotated;
  };
  for (auto const [heads, latent, rotated] : {Sizes{4, 32, 16}, {16, 64, 32}, {20, 512, 64}}) {
    LatentStep const step(random, heads, latent, rotated, {{0, 3}, {62, 4}, {130, 1}});
    std::string fault;
    std::vector<uint16_t> const got = step.run(fault);
    REQUIRE(fault.empty(), "%s", fault.c_str());
    std::vector<double> const want = step.expected();
    // Probabilities are rounded to bf16.
    for (size_t i = 0; i < want.size(); ++i)
      CHECK(is_rounded(got[i], want[i], 0x1p-8), "%d heads of %d and %d: %zu is %g, wanted %g", heads, latent,
            rotated, i, double(reference::widen(got[i])), want[i]);
  }
}

TEST(cuda_latent_attention_skips_padding_and_needs_every_wait) {
  Random random{14};
  LatentStep step(random, 16, 64, 16, {{128, 2}});
  std::string fault;
  std::vector<uint16_t> const whole = step.run(fault);
  REQUIRE(fault.empty(), "%s", fault.c_str());
  step.slots[1] = cuda::kNoSlot;
  std::vector<uint16_t> const first = step.run(fault);
  size_t const row = size_t(step.heads * step.latent);
  CHECK(std::equal(first.begin(), first.begin() + ptrdiff_t(row), whole.begin()), "the first token differs");
  CHECK(std::all_of(first.begin() + ptrdiff_t(row), first.end(), [](uint16_t x) { return x == 0xffff; }),
        "a padding token is written");
  DeviceArray<uint16_t> const q(step.q), numbers(step.numbers), out(whole.size());
  DeviceArray<int32_t> const pages(step.pages), pages_at(step.pages_at), positions(step.positions),
      slots(std::vector<int32_t>(2));
  every_wait_is_needed(
      [&](cuda::Stream& stream) {
        cuda::latent_attention(stream, {.q = q.data(),
                                        .out = out.data(),
                                        .kv = {numbers.data(), 16 * step.d, 16 * step.d, 1, step.d, 16},
                                        .query_heads = step.heads,
                                        .latent = step.latent,
                                        .scale = step.scale(),
                                        .pages = pages.data(),
                                        .pages_at = pages_at.data(),
                                        .positions = positions.data(),
                                        .slots = slots.data(),
                                        .tokens = 2});
      },
      [&] { return out.get() == whole; });
}

}  // namespace bunting::test
