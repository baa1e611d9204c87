#include <cmath>

#include "reference/attention.h"

namespace bunting::reference {
namespace {

void norm_and_rotate(double* out, float const* x, float const* norm, double epsilon, float const* cos,
                     float const* sin, int64_t d) {
  double squares = 0;
  for (int64_t i = 0; i < d; ++i) squares += double(x[i]) * double(x[i]);
  double const scale = norm ? 1 / std::sqrt(squares / double(d) + epsilon) : 1;
  auto const normed = [&](int64_t i) { return double(x[i]) * scale * (norm ? double(norm[i]) : 1); };
  for (int64_t i = 0; i < d / 2; ++i) {
    out[i] = normed(i) * double(cos[i]) - normed(i + d / 2) * double(sin[i]);
    out[i + d / 2] = normed(i + d / 2) * double(cos[i]) + normed(i) * double(sin[i]);
  }
}

}  // namespace

void rope_append(RopeAppend const& a, int64_t begin, int64_t end, double* q, double* k, double* v) {
  int64_t const d = a.kv.head_size, q_width = a.query_heads * d, kv_width = a.kv.kv_heads * d;
  for (int64_t t = begin; t < end; ++t) {
    float const* const row = a.qkv + t * a.ldqkv;
    float const* const cos = a.cos + a.positions[t] * (d / 2);
    float const* const sin = a.sin + a.positions[t] * (d / 2);
    for (int64_t i = 0; i < q_width; i += d)
      norm_and_rotate(q + t * q_width + i, row + i, a.q_norm, a.norm_epsilon, cos, sin, d);
    for (int64_t i = 0; i < kv_width; i += d) {
      norm_and_rotate(k + t * kv_width + i, row + q_width + i, a.k_norm, a.norm_epsilon, cos, sin, d);
      for (int64_t j = i; j < i + d; ++j) v[t * kv_width + j] = row[q_width + kv_width + j];
    }
  }
}

}  // namespace bunting::reference
