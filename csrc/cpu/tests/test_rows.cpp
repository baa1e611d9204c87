// rmsnorm and swiglu against plain loops in double.
#include <algorithm>
#include <cmath>

#include "cpu/tests/dense_test.h"

namespace bunting::test {
namespace {

// Half a unit of bf16 beside a few roundings of f32.
double allowed(Dtype out, double want) {
  return std::fabs(want) * (out == Dtype::bf16 ? 0x1p-8 : 0x1p-20) + 1e-37;
}

// Checks [tokens, width] values, and that columns from width to ld are zeros or, if not, were left alone.
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

// What rows of `width` numbers become for grouped weights of a type.
struct Groups {
  Groups(int64_t tokens, int64_t width, Dtype weights)
      : ld(round_up(width, 2 * kGroup) / kGroup),
        bytes(tokens * ld * int64_t(sizeof(InputGroup))),
        out{bytes.data.get(), ld, weights} {}
  int64_t ld;
  Bytes bytes;
  Operand out;
};

// Checks [tokens, width] groups against those of the same numbers in f32, `ld` of them in a row.
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

TEST(rmsnorm_matches_reference) {
  for (int64_t tokens : {0, 1, 5}) {
    for (int64_t h : {1, 15, 16, 17, 64, 100, 2048}) {
      Random random{uint64_t(h)};
      int64_t const ldx = h + 7, ldy = round_up(h, kKAlign) + 32;
      Bytes x = random_rows(random, Dtype::f32, tokens, h, ldx), w = random_rows(random, Dtype::f32, 1, h, h);
      std::vector<double> want(size_t(tokens * h));
      reference::rmsnorm(want.data(), h, x.f32(), ldx, w.f32(), h, 1e-5f, tokens);
      for (Kernels const* kernels : dense_levels()) {
        for (Dtype out : {Dtype::f32, Dtype::bf16}) {
          Bytes y(tokens * ldy * bytes_of(out));
          Operand const rows{y.data.get(), ldy, out};
          kernels->rmsnorm(rows, x.f32(), ldx, w.f32(), h, 1e-5f, tokens / 2, tokens);
          kernels->rmsnorm(rows, x.f32(), ldx, w.f32(), h, 1e-5f, 0, tokens / 2);
          check_rows("rmsnorm", *kernels, out, y, want, tokens, h, ldy, true);
          if (out != Dtype::f32) continue;
          for (Dtype weights : kGroupedTypes) {
            Groups const groups(tokens, h, weights);
            kernels->rmsnorm(groups.out, x.f32(), ldx, w.f32(), h, 1e-5f, 0, tokens);
            check_groups("rmsnorm", *kernels, groups, y, tokens, h, ldy);
          }
        }
      }
    }
  }
}

TEST(rmsnorm_of_zeros_is_zero) {
  for (Kernels const* kernels : dense_levels()) {
    std::vector<float> const x(40, 0.0f), w(40, 2.0f);
    std::vector<float> y(40, NAN);
    kernels->rmsnorm({y.data(), 40, Dtype::f32}, x.data(), 40, w.data(), 40, 1e-6f, 0, 1);
    for (float value : y) CHECK(value == 0, "%s: %g", kernels->name, value);
  }
}

TEST(swiglu_matches_reference) {
  for (int64_t tokens : {0, 1, 5}) {
    for (int64_t f : {1, 15, 16, 17, 100, 1000}) {
      Random random{uint64_t(f)};
      int64_t const ldgu = 2 * f + 3, ldy = round_up(f, kKAlign);
      Bytes gu = random_rows(random, Dtype::f32, tokens, 2 * f, ldgu);
      // Gates over the whole range in which e^-g is finite.
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < f; ++i) gu.f32()[t * ldgu + i] *= i % 3 == 0 ? 80.0f : 4.0f;
      std::vector<double> want(size_t(tokens * f));
      reference::swiglu(want.data(), f, gu.f32(), ldgu, f, tokens);
      for (Kernels const* kernels : dense_levels()) {
        for (Dtype out : {Dtype::f32, Dtype::bf16}) {
          Bytes y(tokens * ldy * bytes_of(out));
          Operand const rows{y.data.get(), ldy, out};
          kernels->swiglu(rows, gu.f32(), ldgu, f, tokens / 2, tokens);
          kernels->swiglu(rows, gu.f32(), ldgu, f, 0, tokens / 2);
          check_rows("swiglu", *kernels, out, y, want, tokens, f, ldy, false);
          if (out != Dtype::f32) continue;
          for (Dtype weights : kGroupedTypes) {
            Groups const groups(tokens, f, weights);
            kernels->swiglu(groups.out, gu.f32(), ldgu, f, 0, tokens);
            check_groups("swiglu", *kernels, groups, y, tokens, f, ldy);
          }
        }
      }
    }
  }
}

// Gates beyond the range of e^-g: silu is 0 or the gate itself; and NaN is not hidden.
TEST(swiglu_at_the_ends) {
  struct {
    float gate, want;
  } const cases[] = {{-3e38f, 0}, {-1000, 0},   {-90, 0},       {0, 0},
                     {90, 90},    {1000, 1000}, {3e38f, 3e38f}, {NAN, NAN}};
  for (Kernels const* kernels : dense_levels()) {
    for (auto const& c : cases) {
      float const gu[2] = {c.gate, 1};
      float y = 0.5f;
      kernels->swiglu({&y, 1, Dtype::f32}, gu, 2, 1, 0, 1);
      bool const right =
          std::isnan(c.want) ? std::isnan(y) : std::fabs(y - c.want) <= 1e-6f * std::fabs(c.want) + 1e-5f;
      CHECK(right, "%s: silu(%g) = %g", kernels->name, c.gate, y);
    }
  }
}

}  // namespace bunting::test
