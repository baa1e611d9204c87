#include <cmath>
#include <vector>

#include "reference/attention.h"
#include "reference/kv_value.h"

namespace bunting::reference {
namespace {

// Returns `count` numbers of x after an RMS norm over each run of `weights` numbers; the weights repeat for
// each run.
template <class Number>
std::vector<double> normed(Number const* x, float const* weight, int64_t count, int64_t weights,
                           double epsilon) {
  std::vector<double> out(x, x + count);
  for (int64_t first = 0; first < count; first += weights) {
    double squares = 0;
    for (int64_t i = first; i < first + weights; ++i) squares += out[size_t(i)] * out[size_t(i)];
    double const scale = 1 / std::sqrt(squares / double(weights) + epsilon);
    for (int64_t i = first; i < first + weights; ++i)
      out[size_t(i)] *= scale * (weight ? double(weight[i - first]) : 1);
  }
  return out;
}

void rotate(double* x, float const* cos, float const* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    double const a = x[i], b = x[i + half];
    x[i] = a * double(cos[i]) - b * double(sin[i]);
    x[i + half] = b * double(cos[i]) + a * double(sin[i]);
  }
}

}  // namespace

void rope_append(RopeAppend const& a, int64_t begin, int64_t end, double* q, double* k, double* v) {
  int64_t const d = a.kv.head_size, q_width = a.query_heads * d, kv_width = a.kv.kv_heads * d,
                half = a.rotated / 2;
  auto const transform = [&](double* out, float const* x, float const* norm, int64_t width, int64_t t) {
    std::vector<double> row(x, x + width);
    auto const normalise = [&] {
      if (!norm && !a.has_unit_norms) return;
      row = normed(row.data(), norm, width, a.has_wide_norms ? width : d, a.norm_epsilon);
    };
    if (!a.norms_after) normalise();
    for (int64_t i = 0; i < width && half > 0; i += d)
      rotate(row.data() + i, a.cos + t * half, a.sin + t * half, half);
    if (a.norms_after) normalise();
    for (int64_t i = 0; i < width; ++i) out[i] = row[size_t(i)];
  };
  for (int64_t t = begin; t < end; ++t) {
    float const* const row = a.qkv + t * a.ldqkv;
    transform(q + t * q_width, row, a.q_norm, q_width, t);
    for (int64_t i = 0; i < q_width && a.query_scale; ++i)
      q[t * q_width + i] *= double(a.query_scale[a.positions[t]]);
    transform(k + t * kv_width, row + q_width, a.k_norm, kv_width, t);
    float const* const values = row + q_width + (a.values_are_keys ? 0 : kv_width);
    std::vector<double> normed_values(values, values + kv_width);
    if (a.has_value_norm) normed_values = normed(values, nullptr, kv_width, d, a.norm_epsilon);
    for (int64_t i = 0; i < kv_width; ++i) v[t * kv_width + i] = normed_values[size_t(i)];
    if (a.kv.dtype != Dtype::q4) continue;
    for (int64_t i = 0; i < q_width; i += d) rotate_evenly(q + t * q_width + i, d);
    for (int64_t i = 0; i < kv_width; i += d) {
      rotate_evenly(k + t * kv_width + i, d);
      rotate_evenly(v + t * kv_width + i, d);
    }
  }
}

void latent_append(LatentAppend const& a, int64_t begin, int64_t end, double* q, double* k) {
  int64_t const width = a.nope_size + a.rotated, d = a.kv_layer.head_size, latent = a.kv_layer.latent,
                half = a.rotated / 2;
  for (int64_t t = begin; t < end; ++t) {
    float const *const cos = a.cos + t * half, *const sin = a.sin + t * half;
    for (int64_t head = 0; head < a.query_heads; ++head) {
      double* const out = q + (t * a.query_heads + head) * width;
      for (int64_t i = 0; i < width; ++i) out[i] = double(a.q[t * a.ldq + head * width + i]);
      rotate(out + a.nope_size, cos, sin, half);
      for (int64_t i = 0; i < width && a.query_scale; ++i) out[i] *= double(a.query_scale[a.positions[t]]);
    }
    float const* const from = a.kv + t * a.ldkv;
    std::vector<double> const normed_latent = normed(from, a.norm, latent, latent, a.norm_epsilon);
    double* const key = k + t * d;
    for (int64_t i = 0; i < d; ++i) key[i] = i < latent ? normed_latent[size_t(i)] : double(from[i]);
    rotate(key + latent, cos, sin, half);
  }
}

}  // namespace bunting::reference
