// gate.cpp: y[t, f] = a(gu[t, f]) * gu[t, F + f], one row per token, with an activation a:
//
//   silu       g / (1 + e^-g)
//   gelu_tanh  g/2 (1 + tanh u) = g / (1 + e^-2u), u = sqrt(2/pi) (g + 0.044715 g^3)     (arXiv:1606.08415)
//
//   gelu       g/2 (1 + erf(g / sqrt(2)))
//
//   relu_squared  max(g, 0)^2
//
//   clamped_swiglu is a function of both: g / (1 + e^-1.702g) (u + 1), g = min(gate, 7), u = clamp(up, -7, 7)
//
//   gu [T, ldgu] f32: F gates, then F ups
//   y  [T, ld]   f32 or bf16, columns F .. ld-1 unchanged; or q8: InputGroup, round_up(F, 64) / 32 written
//
// activate: y[t, f] = a(u[t, f]), u [T, ldu] f32; also of
//
//   xielu      p x^2 + b x, or n (e^min(x, eps) - 1 - x) + b x unless x > 0           (arXiv:2411.13010)
//
// Work:     token rows [begin, end).
// Roofline: T*F*(8 + 4 or 2) bytes, in L2 if the rows follow their GEMM; 25 operations per 16 values.
// Checked:  against reference::gate; e^x is accurate to 2 ulp, so 1e-6 relative in f32 for silu, and 1e-6 of
//           the gate for gelu_tanh, whose exponent is larger. Groups bit for bit against those of the f32
//           output.
#include "cpu/kernels/group.h"

namespace bunting::BUNTING_ISA {
namespace {

BUNTING_INLINE f32x16 silu(f32x16 g) {
  return g / (set1(1.0f) + exp(zero() - g));
}

BUNTING_INLINE f32x16 gelu_tanh(f32x16 g) {
  f32x16 const cubic = fma(g * g * g, set1(0.044715f), g);
  return g / (set1(1.0f) + exp(cubic * set1(-1.5957691216057308f)));
}

// Returns x/2 (1 + erf(x / sqrt(2))) with erf as 1 - p(t) e^-y^2, t = 1 / (1 + 0.3275911 y), within 1.5e-7
// (Abramowitz and Stegun, 7.1.26).
BUNTING_INLINE f32x16 gelu(f32x16 x) {
  f32x16 const one = set1(1.0f), y = max(x, zero() - x) * set1(0.70710678118654752f);
  f32x16 const t = one / fma(y, set1(0.3275911f), one);
  f32x16 p = fma(t, set1(1.061405429f), set1(-1.453152027f));
  p = fma(p, t, set1(1.421413741f));
  p = fma(p, t, set1(-0.284496736f));
  p = fma(p, t, set1(0.254829592f));
  // The rest is the sum 1 + erf for a negative x, without a difference of nearly equal numbers.
  f32x16 const rest = p * t * exp(zero() - y * y), half = x * set1(0.5f);
  return max(x, zero()) - max(half, zero() - half) * rest;
}

BUNTING_INLINE f32x16 relu_squared(f32x16 x) {
  f32x16 const positive = max(zero(), x);  // x, if it is no number
  return positive * positive;
}

BUNTING_INLINE f32x16 clamped_swiglu(f32x16 gate, f32x16 up) {
  f32x16 const low = set1(-7.0f), g = zero() - max(low, zero() - gate);
  f32x16 const u = max(low, zero() - max(low, zero() - up));
  return g / (set1(1.0f) + exp(g * set1(-1.702f))) * (u + set1(1.0f));
}

// Returns `a` where x > limit, and `b` elsewhere.
BUNTING_INLINE f32x16 above(f32x16 x, float limit, f32x16 a, f32x16 b) {
  for (int i = 0; i < kRegisters; ++i) b.r[i] = x.r[i] > limit ? a.r[i] : b.r[i];
  return b;
}

// Near 0, where e^m - 1 would cancel, e^m - 1 - x is m - x plus a series of m^2.
BUNTING_INLINE f32x16 xielu(f32x16 x, Xielu const& of) {
  f32x16 const m = min(x, set1(of.epsilon));
  f32x16 series = fma(m, set1(1.0f / 40320), set1(1.0f / 5040));
  for (float const term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f})
    series = fma(series, m, set1(term));
  f32x16 const rest = above(m, -0.5f, fma(series, m * m, m - x), exp(m) - set1(1.0f) - x);
  return fma(x, set1(of.beta), above(x, 0, x * x * set1(of.p), rest * set1(of.n)));
}

// Applies activation(gate, up) to each element of the rows; without ups, activation(gate, 1).
template <bool HasUps, class Activation>
BUNTING_INLINE void gate_rows(Operand const& y, float const* gu, int64_t ldgu, int64_t f, int64_t begin,
                              int64_t end, Activation const& activation) {
  for (int64_t t = begin; t < end; ++t) {
    float const* gate = gu + t * ldgu;
    float const* up = gate + f;
    auto const activated = [&](int64_t i) __attribute__((always_inline)) {
      return activation(load_first(gate + i, f - i), HasUps ? load_first(up + i, f - i) : set1(1.0f));
    };
    if (is_grouped(y.dtype)) {
      quantise_row(y, t, f, activated);
    } else if (y.dtype == Dtype::f32) {
      float* const to = reinterpret_cast<float*>(y.row(t));
      for (int64_t i = 0; i < f; i += 16) store_first(to + i, activated(i), f - i);
    } else {
      bf16* const to = reinterpret_cast<bf16*>(y.row(t));
      for (int64_t i = 0; i < f; i += 16) store_bf16_first(to + i, activated(i), f - i);
    }
  }
}

template <bool HasUps>
void apply(Operand const& y, float const* gu, int64_t ldgu, int64_t f, Activation activation,
           Xielu const& numbers, int64_t begin, int64_t end) {
  auto const rows = [&](auto const& of) { gate_rows<HasUps>(y, gu, ldgu, f, begin, end, of); };
  if (activation == Activation::gelu_tanh)
    rows([](f32x16 g, f32x16 u) __attribute__((always_inline)) { return gelu_tanh(g) * u; });
  else if (activation == Activation::gelu)
    rows([](f32x16 g, f32x16 u) __attribute__((always_inline)) { return gelu(g) * u; });
  else if (activation == Activation::relu_squared)
    rows([](f32x16 g, f32x16 u) __attribute__((always_inline)) { return relu_squared(g) * u; });
  else if (activation == Activation::clamped_swiglu)
    rows([](f32x16 g, f32x16 u) __attribute__((always_inline)) { return clamped_swiglu(g, u); });
  else if (!HasUps && activation == Activation::xielu)
    rows([numbers](f32x16 g, f32x16) __attribute__((always_inline)) { return xielu(g, numbers); });
  else
    rows([](f32x16 g, f32x16 u) __attribute__((always_inline)) { return silu(g) * u; });
}

}  // namespace

void gate(Operand const& y, float const* gu, int64_t ldgu, int64_t f, Activation activation, int64_t begin,
          int64_t end) {
  apply<true>(y, gu, ldgu, f, activation, {}, begin, end);
}

void activate(Operand const& y, float const* u, int64_t ldu, int64_t f, Activation activation,
              Xielu const& numbers, int64_t begin, int64_t end) {
  apply<false>(y, u, ldu, f, activation, numbers, begin, end);
}

}  // namespace bunting::BUNTING_ISA
