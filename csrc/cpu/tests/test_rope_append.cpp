// Tests of rope_append against plain loops in double, element by element of the pages.
#include "tests/kv_test.h"

namespace bunting::test {
namespace {

struct Shape {
  int32_t query_heads, kv_heads, head_size;
  bool norm;
  Dtype dtype;
  int32_t rotated = -1;  // numbers of each head; -1: all
  bool is_wide = false;
  bool values_are_keys = false, has_value_norm = false;
  bool norms_after = false, has_unit_norms = false;
};

// Returns the largest difference to `want` in units of the allowed error. That is 2e-6 of the largest value
// of a head, plus half a unit if the page rounds. The largest value is at most 4 in these inputs, norm
// included. A unit is one of bf16, or a 127th or two 15ths of the head's largest value.
double excess(Dtype dtype, float got, double want, double largest = 0) {
  double const half = dtype == Dtype::bf16 ? std::fabs(want) * 0x1p-8
                      : dtype == Dtype::q8 ? largest / 254
                      : dtype == Dtype::q4 ? largest / 15
                                           : 0;
  double const allowed = 8e-6 + half;
  double const difference = std::fabs(double(got) - want);
  return std::isnan(difference) ? INFINITY : difference / allowed;
}

void check(Shape const& shape, int32_t tokens, int32_t start) {
  int32_t const d = shape.head_size, hq = shape.query_heads, hk = shape.kv_heads;
  Random random{uint64_t(d * 31 + tokens * 7 + start)};
  int64_t const width = int64_t(hq + 2 * hk) * d, ldqkv = width + 16;
  auto const values = [&](size_t count, float low, float high) {
    std::vector<float> x(count);
    for (float& value : x) value = random.uniform(low, high);
    return x;
  };
  std::vector<float> const input = values(size_t(tokens) * size_t(ldqkv) + 1, -2, 2);
  std::vector<float> const q_norm = values(size_t(hq * d), 0.5f, 2), k_norm = values(size_t(hk * d), 0.5f, 2);
  int32_t const rotated = shape.rotated < 0 ? d : shape.rotated;
  std::vector<float> const cos = values(size_t(start + tokens) * size_t(d / 2) + 1, -1, 1);
  std::vector<float> const sin = values(size_t(start + tokens) * size_t(d / 2) + 1, -1, 1);
  int32_t const page_count = (start + tokens + kPageTokens - 1) / kPageTokens;
  auto const ids = shuffled_pages(random, 1, page_count);
  std::vector<int32_t> positions, token_pages;
  for (int32_t t = 0; t < tokens; ++t) {
    positions.push_back(start + t);
    token_pages.push_back(ids[size_t((start + t) / kPageTokens)]);
  }

  for (Kernels const* kernels : levels()) {
    Pages pages(shape.dtype, hk, d, page_count + 1);
    std::vector<float> qkv = input;
    RopeAppend a;
    a.qkv = qkv.data();
    a.ldqkv = ldqkv;
    a.query_heads = hq;
    a.q_norm = shape.norm ? q_norm.data() : nullptr;
    a.k_norm = shape.norm ? k_norm.data() : nullptr;
    a.norm_epsilon = 1e-6f;
    a.has_wide_norms = shape.norm && shape.is_wide;
    a.norms_after = shape.norms_after;
    a.has_unit_norms = shape.has_unit_norms;
    a.values_are_keys = shape.values_are_keys;
    a.has_value_norm = shape.has_value_norm;
    a.rotated = rotated;
    a.cos = rotated > 0 ? cos.data() : nullptr;
    a.sin = rotated > 0 ? sin.data() : nullptr;
    a.query_scale = shape.is_wide ? cos.data() : nullptr;  // any number per position
    a.positions = positions.data();
    a.token_pages = token_pages.data();
    a.kv = pages.kv;
    std::vector<double> q(size_t(tokens * hq * d)), k(size_t(tokens * hk * d)), v(k.size());
    reference::rope_append(a, 0, tokens, q.data(), k.data(), v.data());
    int64_t const middle = tokens / 3;
    kernels->rope_append(a, middle, tokens);
    kernels->rope_append(a, 0, middle);

    double worst = 0;
    int64_t unwritten = 0;
    for (int32_t t = 0; t < tokens; ++t) {
      for (int32_t i = 0; i < hq * d; ++i)
        worst = std::max(worst, excess(Dtype::f32, qkv[size_t(t * ldqkv + i)], q[size_t(t * hq * d + i)]));
      for (int32_t i = 0; i < hk * d; ++i) {
        int32_t const slot = positions[size_t(t)] % kPageTokens, page = token_pages[size_t(t)];
        size_t const from = size_t(t * hk * d + i);
        auto const largest = [&](std::vector<double> const& x) {
          double most = 0;
          for (size_t j = from - size_t(i % d); j < from - size_t(i % d) + size_t(d); ++j)
            most = std::max(most, std::fabs(x[j]));
          return most;
        };
        worst = std::max(
            worst, excess(shape.dtype, reference::key(a.kv, page, i / d, slot, i % d), k[from], largest(k)));
        worst = std::max(worst, excess(shape.dtype, reference::value(a.kv, page, i / d, slot, i % d), v[from],
                                       largest(v)));
      }
    }
    CHECK(worst <= 1, "%s %s heads %d/%d D=%d R=%d norm %d T=%d start %d: off by %g of what is allowed",
          kernels->name, name_of(shape.dtype), hq, hk, d, rotated, shape.norm, tokens, start, worst);
    if (has_kv_scales(shape.dtype)) continue;  // no byte value marks an unwritten slot
    int64_t const elements = int64_t(a.kv.page_bytes / dtype_bytes(shape.dtype)) * (page_count + 1);
    for (int64_t i = 0; i < elements; ++i)
      unwritten += std::isnan(reference::get(shape.dtype, a.kv.pages, size_t(i)));
    int64_t const written = elements - unwritten;
    CHECK(written == int64_t(tokens) * hk * d * 2, "%s wrote %lld elements of %lld", kernels->name,
          (long long)written, (long long)tokens * hk * d * 2);
  }
}

}  // namespace

TEST(rope_append_matches_reference) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (int32_t d : {16, 48, 64, 80, 128, 256})
      for (bool norm : {false, true})
        for (int32_t tokens : {0, 1, 17}) check({6, 2, d, norm, dtype}, tokens, 0);
}

TEST(rope_append_rotates_a_part_of_each_head_or_nothing) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (int32_t rotated : {0, 2, 12, 24, 32, 62}) check({3, 1, 64, true, dtype, rotated}, 5, 20);
}

TEST(rope_append_norms_all_heads_together) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (int32_t d : {16, 48, 128}) check({4, 2, d, true, dtype, d, true}, 5, 20);
}

TEST(rope_append_norms_heads_after_their_rotation_or_without_weights) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (int32_t rotated : {0, 32, 64}) {
      check({6, 2, 64, true, dtype, rotated, false, false, false, true}, 5, 20);
      check({6, 2, 64, false, dtype, rotated, false, false, false, false, true}, 5, 20);
    }
}

TEST(rope_append_norms_values_and_takes_keys_for_them) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (bool are_keys : {false, true})
      for (bool norm : {false, true}) check({6, 2, 64, norm, dtype, 32, false, are_keys, true}, 17, 20);
}

TEST(rope_append_without_pages_changes_q_alone) {
  int32_t const width = 4 * 32, position = 3, page = 0;
  Random random{5};
  std::vector<float> input(size_t(width) + 1);
  for (float& x : input) x = random.uniform(-1, 1);
  for (Kernels const* kernels : levels()) {
    std::vector<float> with = input, without = input;
    Pages pages(Dtype::f32, 1, 32, 1);
    RopeAppend a{.qkv = with.data(),
                 .ldqkv = width,
                 .query_heads = 2,
                 .q_norm = input.data(),
                 .k_norm = input.data(),
                 .norm_epsilon = 1e-6f,
                 .positions = &position,
                 .token_pages = &page,
                 .kv = pages.kv};
    kernels->rope_append(a, 0, 1);
    a.qkv = without.data();
    a.kv.pages = nullptr;
    kernels->rope_append(a, 0, 1);
    CHECK(std::equal(with.begin(), with.begin() + 64, without.begin()), "%s: q differs", kernels->name);
    CHECK(std::equal(without.begin() + 64, without.end(), input.begin() + 64), "%s: k or v is changed",
          kernels->name);
  }
}

TEST(rope_append_writes_every_slot_of_a_page) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32, Dtype::q8, Dtype::q4})
    for (int32_t start : {1, 15, 16, 17, 100})
      for (int32_t tokens : {1, 15, 16, 33}) check({3, 1, 32, true, dtype}, tokens, start);
}

}  // namespace bunting::test
