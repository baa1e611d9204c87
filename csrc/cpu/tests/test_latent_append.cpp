// Tests of latent_append against plain loops in double: queries, and the keys in their pages.
#include <tuple>

#include "tests/kv_test.h"

namespace bunting::test {
namespace {

struct Shape {
  int32_t query_heads, nope, latent, rotated;
  Dtype dtype;
  bool is_scaled = false;
};

// Returns the largest difference in units of the allowed error, as test_rope_append.cpp does.
double excess(Dtype dtype, float got, double want) {
  double const allowed = 8e-6 + (dtype == Dtype::bf16 ? std::fabs(want) * 0x1p-8 : 0);
  double const difference = std::fabs(double(got) - want);
  return std::isnan(difference) ? INFINITY : difference / allowed;
}

void check(Shape const& shape, int32_t tokens, int32_t start) {
  Random random{uint64_t(shape.latent * 31 + shape.nope * 7 + tokens)};
  auto const values = [&](int64_t count, float low, float high) {
    std::vector<float> x(static_cast<size_t>(count));
    for (float& value : x) value = random.uniform(low, high);
    return x;
  };
  int32_t const d = shape.latent + shape.rotated, width = shape.nope + shape.rotated,
                heads = shape.query_heads;
  int64_t const ldq = int64_t(heads) * width, ldkv = d + 16, ldabsorbed = int64_t(heads) * d,
                column = round_up(shape.nope, kKAlign), ldnope = heads * column + 32;
  std::vector<float> const q = values(tokens * ldq, -2, 2), input = values(tokens * ldkv, -2, 2),
                           norm = values(shape.latent, 0.5f, 2), scale = values(start + tokens, 0.5f, 2),
                           cos = values(tokens * shape.rotated, -1, 1),
                           sin = values(tokens * shape.rotated, -1, 1);
  int32_t const page_count = (start + tokens + kPageTokens - 1) / kPageTokens;
  auto const ids = shuffled_pages(random, 1, page_count);
  std::vector<int32_t> positions, token_pages;
  for (int32_t t = 0; t < tokens; ++t) {
    positions.push_back(start + t);
    token_pages.push_back(ids[size_t((start + t) / kPageTokens)]);
  }
  for (Kernels const* kernels : levels()) {
    Pages pages(shape.dtype, 1, d, page_count + 1, shape.latent);
    std::vector<float> kv = input, absorbed(size_t(tokens * ldabsorbed), NAN);
    Aligned<char> nope(size_t(tokens * ldnope) * dtype_bytes(shape.dtype));
    LatentAppend const a{.q = q.data(),
                         .ldq = ldq,
                         .kv = kv.data(),
                         .ldkv = ldkv,
                         .query_heads = heads,
                         .nope_size = shape.nope,
                         .norm = norm.data(),
                         .norm_epsilon = 1e-6f,
                         .rotated = shape.rotated,
                         .cos = cos.data(),
                         .sin = sin.data(),
                         .query_scale = shape.is_scaled ? scale.data() : nullptr,
                         .positions = positions.data(),
                         .token_pages = token_pages.data(),
                         .kv_layer = pages.kv,
                         .nope = {nope.data(), ldnope, shape.dtype},
                         .absorbed = absorbed.data(),
                         .ldabsorbed = ldabsorbed};
    std::vector<double> queries(size_t(tokens * ldq)), keys(size_t(tokens * d));
    reference::latent_append(a, 0, tokens, queries.data(), keys.data());
    kernels->latent_append(a, tokens / 3, tokens);
    kernels->latent_append(a, 0, tokens / 3);
    double worst = 0;
    int64_t unwritten = 0;
    for (int32_t t = 0; t < tokens; ++t) {
      for (int32_t head = 0; head < heads; ++head) {
        double const* const want = queries.data() + t * ldq + head * width;
        for (int32_t i = 0; i < column; ++i)
          worst = std::max(
              worst, excess(shape.dtype,
                            reference::get(shape.dtype, nope.data(), size_t(t * ldnope + head * column + i)),
                            i < shape.nope ? want[i] : 0));
        float const* const got = absorbed.data() + t * ldabsorbed + head * d;
        for (int32_t i = 0; i < d; ++i) {
          if (i < shape.latent)
            unwritten += std::isnan(got[i]);
          else
            worst = std::max(worst, excess(Dtype::f32, got[i], want[shape.nope + i - shape.latent]));
        }
      }
      for (int32_t i = 0; i < d; ++i)
        worst = std::max(worst, excess(shape.dtype,
                                       reference::key(pages.kv, token_pages[size_t(t)], 0,
                                                      positions[size_t(t)] % kPageTokens, i),
                                       keys[size_t(t * d + i)]));
    }
    CHECK(worst <= 1, "%s %s heads %d of %d and %d, latent %d, T=%d from %d: off by %g of what is allowed",
          kernels->name, name_of(shape.dtype), heads, shape.nope, shape.rotated, shape.latent, tokens, start,
          worst);
    CHECK(unwritten == int64_t(tokens) * heads * shape.latent, "%s wrote to the latents' place",
          kernels->name);
    int64_t const elements = int64_t(pages.kv.page_bytes / dtype_bytes(shape.dtype)) * (page_count + 1);
    int64_t written = 0;
    for (int64_t i = 0; i < elements; ++i)
      written += !std::isnan(reference::get(shape.dtype, pages.kv.pages, size_t(i)));
    CHECK(written == int64_t(tokens) * d, "%s wrote %lld numbers to pages", kernels->name,
          (long long)written);
  }
}

}  // namespace

TEST(latent_append_matches_reference) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f32})
    for (bool is_scaled : {false, true})
      for (auto const& [nope, latent, rotated] :
           {std::tuple{16, 32, 16}, {48, 64, 32}, {128, 512, 64}, {192, 512, 64}, {64, 256, 64}})
        for (auto const& [tokens, start] : {std::pair{0, 0}, {1, 15}, {33, 9}})
          check({3, nope, latent, rotated, dtype, is_scaled}, tokens, start);
}

}  // namespace bunting::test
