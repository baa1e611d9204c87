#include "reference/dense.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "reference/kv_value.h"

namespace bunting::reference {
namespace {

double f16_value(uint16_t x) {
  int const exponent = x >> 10 & 31, mantissa = x & 1023;
  double const magnitude = exponent == 31  ? (mantissa ? std::numeric_limits<double>::quiet_NaN() : INFINITY)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return x & 0x8000 ? -magnitude : magnitude;
}

size_t packed_index(PackedMatrix const& w, int64_t n, int64_t k) {
  int64_t const panel = n / kPanel * kPanel * w.kp(), column = n % kPanel;
  return size_t(w.dtype == Dtype::f32 ? panel + k * kPanel + column
                                      : panel + k / 2 * 2 * kPanel + column * 2 + k % 2);
}

double x_value(Gemm const& g, int64_t t, int64_t k) {
  return get(g.w->dtype, static_cast<char const*>(g.x), size_t(t * g.ldx + k));
}

}  // namespace

double source_value(void const* src, Dtype dtype, int64_t index) {
  char const* bytes = static_cast<char const*>(src) + index * (dtype == Dtype::f32 ? 4 : 2);
  if (dtype == Dtype::f32) {
    float value;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  return dtype == Dtype::f16 ? f16_value(half) : double(widen(half));
}

double weight(PackedMatrix const& w, int64_t n, int64_t k) {
  return get(w.dtype, static_cast<char const*>(w.data), packed_index(w, n, k));
}

void pack(PackedMatrix const& w, void const* src, Dtype src_dtype) {
  for (int64_t n = 0; n < w.panels() * kPanel; ++n) {
    for (int64_t k = 0; k < w.kp(); ++k) {
      double const value = n < w.n && k < w.k ? source_value(src, src_dtype, n * w.k + k) : 0;
      put(w.dtype, static_cast<char*>(w.data), packed_index(w, n, k), float(value));
    }
  }
}

void gemm(Gemm const& g, double* y, double* scale) {
  for (int64_t t = 0; t < g.tokens; ++t) {
    for (int64_t n = 0; n < g.w->n; ++n) {
      double sum = (g.accumulate ? g.y[t * g.ldy + n] : 0) + (g.bias ? g.bias[n] : 0),
             absolute = std::fabs(sum);
      for (int64_t k = 0; k < g.w->k; ++k) {
        double const term = x_value(g, t, k) * weight(*g.w, n, k);
        sum += term;
        absolute += std::fabs(term);
      }
      y[t * g.w->n + n] = sum;
      scale[t * g.w->n + n] = absolute;
    }
  }
}

void embed(double* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < table.k; ++h) x[t * ldx + h] = weight(table, ids[t], h);
}

void rmsnorm(double* y, int64_t ldy, float const* x, int64_t ldx, float const* w, int64_t h, float eps,
             int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t i = 0; i < h; ++i) squares += double(x[t * ldx + i]) * x[t * ldx + i];
    double const scale = 1 / std::sqrt(squares / double(h) + eps);
    for (int64_t i = 0; i < h; ++i) y[t * ldy + i] = x[t * ldx + i] * scale * w[i];
  }
}

void swiglu(double* y, int64_t ldy, float const* gu, int64_t ldgu, int64_t f, int64_t tokens) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < f; ++i) {
      double const gate = gu[t * ldgu + i], up = gu[t * ldgu + f + i];
      y[t * ldy + i] = gate / (1 + std::exp(-gate)) * up;
    }
  }
}

}  // namespace bunting::reference
