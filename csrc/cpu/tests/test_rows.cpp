// Tests of norm, add_normed, scale_and_cap and gate against plain loops in double.
#include <algorithm>
#include <cmath>

#include "cpu/tests/dense_test.h"

namespace bunting::test {
namespace {

// Error bound: half a unit of bf16, plus a few roundings of f32.
double allowed(Dtype out, double want) {
  return std::fabs(want) * (out == Dtype::bf16 ? 0x1p-8 : 0x1p-20) + 1e-37;
}

// Checks [tokens, width] values. Columns from width to ld must be zero if `zeroed`, otherwise unchanged.
void check_rows(char const* what, Kernels const& kernels, Dtype out, Bytes const& got,
                std::vector<double> const& want, int64_t tokens, int64_t width, int64_t ld, bool zeroed) {
  double worst = 0;
  int64_t wrong = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < ld; ++i) {
      double const value = reference::get(out, got.data.get(), size_t(t * ld + i));
      if (i >= width) {
        wrong += zeroed ? value != 0 : !std::isnan(value);
        continue;
      }
      double const error =
          std::fabs(value - want[size_t(t * width + i)]) / allowed(out, want[size_t(t * width + i)]);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  CHECK(worst <= 1 && wrong == 0, "%s %s to %s T=%d width %d: off by %g of what is allowed, %d wrong behind",
        what, kernels.name, name_of(out), int(tokens), int(width), worst, int(wrong));
}

// Checks values with an error bound relative to the largest value of the row.
void check_near(char const* what, Kernels const& kernels, Dtype out, Bytes const& got,
                std::vector<double> const& want, int64_t tokens, int64_t width, int64_t ld) {
  double worst = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double largest = 0;
    for (int64_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(want[size_t(t * width + i)]));
    for (int64_t i = 0; i < width; ++i) {
      double const value = reference::get(out, got.data.get(), size_t(t * ld + i));
      double const error = std::fabs(value - want[size_t(t * width + i)]) / allowed(out, largest);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  CHECK(worst <= 1, "%s %s to %s T=%d width %d: off by %g of what is allowed", what, kernels.name,
        name_of(out), int(tokens), int(width), worst);
}

// Rows of `width` numbers as groups for grouped weights of a type.
struct Groups {
  Groups(int64_t tokens, int64_t width, Dtype weights)
      : ld(round_up(width, 2 * kGroup) / kGroup),
        bytes(tokens * ld * int64_t(sizeof(InputGroup))),
        out{bytes.data.get(), ld, weights} {}
  int64_t ld;
  Bytes bytes;
  Operand out;
};

// Checks [tokens, width] groups against those of the same numbers in f32, with `ld` numbers per row.
void check_groups(char const* what, Kernels const& kernels, Groups const& got, Bytes& numbers, int64_t tokens,
                  int64_t width, int64_t ld) {
  int64_t const padded = got.ld * kGroup;
  Bytes rows(tokens * padded * 4);
  Groups want(tokens, width, got.out.dtype);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < padded; ++i)
      rows.f32()[t * padded + i] = i < width ? numbers.f32()[t * ld + i] : 0.0f;
  kernels.quantise(want.out, rows.data.get(), Dtype::f32, padded, width, 0, tokens);
  CHECK(std::memcmp(got.bytes.data.get(), want.bytes.data.get(), want.bytes.size) == 0,
        "%s %s for %s T=%d width %d", what, kernels.name, name_of(got.out.dtype), int(tokens), int(width));
}

constexpr Dtype kGroupedTypes[] = {Dtype::q8, Dtype::q8_128, Dtype::q4};

}  // namespace

TEST(norm_matches_reference) {
  for (int64_t tokens : {0, 1, 5}) {
    for (int64_t h : {1, 15, 16, 17, 64, 100, 2048}) {
      for (NormKind kind : {NormKind::rms, NormKind::layer, NormKind::none}) {
        if (kind == NormKind::layer && h == 1) continue;  // 0 / sqrt(epsilon): all rounding
        Random random{uint64_t(h)};
        int64_t const ldx = h + 7, ldy = round_up(h, kKAlign) + 32;
        Bytes x = random_rows(random, Dtype::f32, tokens, h, ldx),
              w = random_rows(random, Dtype::f32, 1, h, h), bias = random_rows(random, Dtype::f32, 1, h, h);
        Norm const n{kind, w.f32(), 1e-5f, kind == NormKind::layer && h % 2 == 0 ? bias.f32() : nullptr};
        std::vector<double> want(size_t(tokens * h));
        reference::norm(want.data(), h, x.f32(), ldx, n, h, tokens);
        for (Kernels const* kernels : dense_levels()) {
          for (Dtype out : {Dtype::f32, Dtype::bf16}) {
            Bytes y(tokens * ldy * bytes_of(out));
            Operand const rows{y.data.get(), ldy, out};
            kernels->norm(rows, x.f32(), ldx, n, h, tokens / 2, tokens);
            kernels->norm(rows, x.f32(), ldx, n, h, 0, tokens / 2);
            // Numbers near the mean are differences of larger numbers.
            if (kind == NormKind::layer) {
              check_near("norm", *kernels, out, y, want, tokens, h, ldy);
              continue;
            }
            check_rows("norm", *kernels, out, y, want, tokens, h, ldy, true);
            if (out != Dtype::f32) continue;
            for (Dtype weights : kGroupedTypes) {
              Groups const groups(tokens, h, weights);
              kernels->norm(groups.out, x.f32(), ldx, n, h, 0, tokens);
              check_groups("norm", *kernels, groups, y, tokens, h, ldy);
            }
          }
        }
      }
    }
  }
}

TEST(norm_of_zeros_is_zero) {
  for (Kernels const* kernels : dense_levels()) {
    std::vector<float> const x(40, 0.0f), w(40, 2.0f);
    std::vector<float> y(40, NAN);
    kernels->norm({y.data(), 40, Dtype::f32}, x.data(), 40, {NormKind::rms, w.data(), 1e-6f}, 40, 0, 1);
    for (float value : y) CHECK(value == 0, "%s: %g", kernels->name, value);
  }
}

TEST(add_normed_matches_reference) {
  for (int64_t h : {2, 16, 40, 300}) {
    for (NormKind kind : {NormKind::rms, NormKind::layer, NormKind::none}) {
      constexpr int64_t kTokens = 3;
      Random random{uint64_t(h)};
      Bytes x = random_rows(random, Dtype::f32, kTokens, h, h),
            d = random_rows(random, Dtype::f32, kTokens, h, h), w = random_rows(random, Dtype::f32, 1, h, h),
            bias = random_rows(random, Dtype::f32, 1, h, h);
      Norm const n{kind, w.f32(), 1e-5f, kind == NormKind::layer && h > 16 ? bias.f32() : nullptr};
      std::vector<double> want(size_t(kTokens * h));
      reference::add_normed(want.data(), x.f32(), d.f32(), n, 0.25f, h, kTokens);
      for (Kernels const* kernels : dense_levels()) {
        Bytes y(kTokens * h * 4);
        std::memcpy(y.data.get(), x.data.get(), y.size);
        kernels->add_normed(y.f32(), h, d.f32(), h, n, 0.25f, h, 1, kTokens);
        kernels->add_normed(y.f32(), h, d.f32(), h, n, 0.25f, h, 0, 1);
        check_near("add_normed", *kernels, Dtype::f32, y, want, kTokens, h, h);
      }
    }
  }
}

TEST(scale_and_cap_matches_its_formula) {
  for (Kernels const* kernels : dense_levels()) {
    for (float const cap : {0.0f, 5.0f, 30.0f}) {
      std::vector<float> x;
      for (int i = -50; i <= 50; ++i) x.push_back(float(i) * 1.7f);
      x.push_back(3e38f), x.push_back(-3e38f);
      std::vector<float> got = x;
      kernels->scale_and_cap(got.data(), int64_t(x.size()), int64_t(x.size()), 0.5f, cap, 0, 1);
      for (size_t i = 0; i < x.size(); ++i) {
        double const scaled = double(x[i]) * 0.5,
                     want = cap > 0 ? double(cap) * std::tanh(scaled / double(cap)) : scaled;
        CHECK(std::fabs(double(got[i]) - want) <= (cap > 0 ? double(cap) * 0x1p-21 : 0),
              "%s: %g becomes %g, wanted %g", kernels->name, double(x[i]), double(got[i]), want);
      }
    }
  }
}

TEST(gate_matches_reference) {
  for (int64_t tokens : {0, 1, 5}) {
    for (int64_t f : {1, 15, 16, 17, 100, 1000}) {
      for (Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::clamped_swiglu,
                                    Activation::gelu, Activation::relu_squared}) {
        Random random{uint64_t(f)};
        int64_t const ldgu = 2 * f + 3, ldy = round_up(f, kKAlign);
        Bytes gu = random_rows(random, Dtype::f32, tokens, 2 * f, ldgu);
        // Gates cover the whole range in which e^-g is finite. GELU's exponent is cubic and amplifies
        // rounding, so its range is smaller.
        float const wide = activation == Activation::gelu_tanh || activation == Activation::gelu ? 2.0f
                           : activation == Activation::silu                                      ? 80.0f
                                                                                                 : 40.0f;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < f; ++i) gu.f32()[t * ldgu + i] *= i % 3 == 0 ? wide : 4.0f;
        std::vector<double> want(size_t(tokens * f));
        reference::gate(want.data(), f, gu.f32(), ldgu, f, activation, tokens);
        for (Kernels const* kernels : dense_levels()) {
          for (Dtype out : {Dtype::f32, Dtype::bf16}) {
            Bytes y(tokens * ldy * bytes_of(out));
            Operand const rows{y.data.get(), ldy, out};
            kernels->gate(rows, gu.f32(), ldgu, f, activation, tokens / 2, tokens);
            kernels->gate(rows, gu.f32(), ldgu, f, activation, 0, tokens / 2);
            if (activation == Activation::silu)
              check_rows("gate", *kernels, out, y, want, tokens, f, ldy, false);
            else
              check_near("gate", *kernels, out, y, want, tokens, f, ldy);
            if (out != Dtype::f32) continue;
            for (Dtype weights : kGroupedTypes) {
              Groups const groups(tokens, f, weights);
              kernels->gate(groups.out, gu.f32(), ldgu, f, activation, 0, tokens);
              check_groups("gate", *kernels, groups, y, tokens, f, ldy);
            }
          }
        }
      }
    }
  }
}

TEST(activate_is_a_gate_whose_ups_are_one) {
  for (Activation activation :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu_squared}) {
    for (int64_t f : {1, 16, 100}) {
      constexpr int64_t kTokens = 3;
      Random random{uint64_t(f)};
      int64_t const ldy = round_up(f, kKAlign);
      Bytes u = random_rows(random, Dtype::f32, kTokens, f, f), gu(kTokens * 2 * f * 4);
      for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t i = 0; i < f; ++i)
          gu.f32()[t * 2 * f + i] = u.f32()[t * f + i], gu.f32()[t * 2 * f + f + i] = 1;
      for (Kernels const* kernels : dense_levels()) {
        Bytes got(kTokens * ldy * 4), want(kTokens * ldy * 4);
        kernels->activate({got.data.get(), ldy, Dtype::f32}, u.f32(), f, f, activation, {}, 0, kTokens);
        kernels->gate({want.data.get(), ldy, Dtype::f32}, gu.f32(), 2 * f, f, activation, 0, kTokens);
        for (int64_t t = 0; t < kTokens; ++t)
          CHECK(std::memcmp(got.f32() + t * ldy, want.f32() + t * ldy, size_t(f) * 4) == 0, "%s: f=%d",
                kernels->name, int(f));
      }
    }
  }
}

// Numbers of both signs, near 0, at the ends of the series, and far away.
TEST(activate_by_xielu_matches_reference) {
  Xielu const cases[] = {{1.2f, 0.9f, 0.5f, -1e-6f}, {0.3f, 2.5f, 0.25f, -0.01f}, {0.8f, 0.5f, 0, -1e-6f}};
  for (Xielu const& numbers : cases)
    for (int64_t f : {1, 16, 100}) {
      constexpr int64_t kTokens = 5;
      constexpr float kSizes[kTokens] = {30, 1, 0.5f, 1e-3f, 1e-7f};
      Random random{uint64_t(f)};
      int64_t const ldy = round_up(f, kKAlign);
      Bytes u(kTokens * f * 4);
      std::vector<double> want(size_t(kTokens * f));
      for (int64_t i = 0; i < kTokens * f; ++i) {
        float const x = random.uniform(-kSizes[i / f], kSizes[i / f]);
        u.f32()[i] = x;
        want[size_t(i)] = reference::xielu(double(x), numbers);
      }
      for (Kernels const* kernels : dense_levels()) {
        Bytes y(kTokens * ldy * 4);
        kernels->activate({y.data.get(), ldy, Dtype::f32}, u.f32(), f, f, Activation::xielu, numbers, 0,
                          kTokens);
        for (int64_t i = 0; i < kTokens * f; ++i) {
          double const got = double(y.f32()[i / f * ldy + i % f]), x = double(u.f32()[i]);
          CHECK(std::fabs(got - want[size_t(i)]) <= 1e-6 * std::fabs(want[size_t(i)]) + 1e-6 * std::fabs(x),
                "%s: xielu of %g = %g, wanted %g", kernels->name, x, got, want[size_t(i)]);
        }
      }
    }
}

// Gates beyond the range of e^-g: the activation is 0 or the gate itself, and NaN stays NaN.
TEST(gate_at_the_ends) {
  struct {
    float gate, want;
  } const cases[] = {{-3e38f, 0}, {-1000, 0},   {-90, 0},       {0, 0},
                     {90, 90},    {1000, 1000}, {3e38f, 3e38f}, {NAN, NAN}};
  for (Kernels const* kernels : dense_levels()) {
    for (Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu}) {
      for (auto const& c : cases) {
        float const gu[2] = {c.gate, 1};
        float y = 0.5f;
        kernels->gate({&y, 1, Dtype::f32}, gu, 2, 1, activation, 0, 1);
        bool const right =
            std::isnan(c.want) ? std::isnan(y) : std::fabs(y - c.want) <= 1e-6f * std::fabs(c.want) + 1e-5f;
        CHECK(right, "%s: activation %d of %g = %g", kernels->name, int(activation), c.gate, y);
      }
    }
  }
}

}  // namespace bunting::test
