// Tests of gemm against plain loops in double, and of a row alone against the same row in a batch, bit for
// bit.
#include <algorithm>
#include <cmath>

#include "cpu/kernels/integer_layout.h"
#include "cpu/parallel_gemm.h"
#include "cpu/tests/dense_test.h"

namespace bunting::test {
namespace {

struct Case {
  Dtype type;
  int64_t tokens, n, k;
  bool bias = false, accumulate = false;
};

// Error bound. Rounding errors of a sum of K terms in f32 behave like a random walk: on average 2^-24 *
// sqrt(K) of the terms' sum. Four times that never occurs by chance.
double allowed(int64_t k, double scale) {
  return 4 * 0x1p-24 * std::sqrt(double(k) + 16) * scale + 1e-30;
}

void check_case(Case c) {
  c.k = width_for(c.type, c.k);
  Random random{uint64_t(c.tokens * 1000003 + c.n * 1009 + c.k)};
  Weights weights(random, c.type, c.n, c.k);
  int64_t const ldy = c.n + 3;
  Inputs const x = random_inputs(random, weights.matrix, c.tokens, 64);
  Bytes bias = random_rows(random, Dtype::f32, 1, c.n, c.n);
  // Without accumulation the output may have held anything before, such as NaN.
  Bytes const before =
      c.accumulate ? random_rows(random, Dtype::f32, c.tokens, c.n, ldy) : Bytes(c.tokens * ldy * 4);
  Gemm g{.x = x.row(0),
         .ldx = x.ldx,
         .w = &weights.matrix,
         .bias = c.bias ? bias.f32() : nullptr,
         .ldy = ldy,
         .tokens = c.tokens,
         .accumulate = c.accumulate};
  Bytes y(c.tokens * ldy * 4);
  g.y = y.f32();
  auto const reset = [&] { std::memcpy(y.data.get(), before.data.get(), y.size); };
  std::vector<double> want(size_t(c.tokens * c.n)), scale(want.size());
  reset();
  reference::gemm(g, want.data(), scale.data());
  int64_t const panels = weights.matrix.panels();
  for (Kernels const* kernels : dense_levels()) {
    reset();
    kernels->gemm(g, 0, panels / 3);
    kernels->gemm(g, panels / 3, panels);
    double worst = 0;
    int64_t outside = 0;
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t n = 0; n < ldy; ++n) {
        if (n >= c.n) {
          outside += std::memcmp(y.f32() + t * ldy + n, before.data.get() + (t * ldy + n) * 4, 4) != 0;
          continue;
        }
        size_t const i = size_t(t * c.n + n);
        double const error = std::fabs(y.f32()[t * ldy + n] - want[i]) / allowed(c.k, scale[i]);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    }
    CHECK(worst <= 1 && outside == 0,
          "%s %s T=%d N=%d K=%d bias %d accumulate %d: off by %g of what is allowed, %d "
          "outside",
          kernels->name, name_of(c.type), int(c.tokens), int(c.n), int(c.k), c.bias, c.accumulate, worst,
          int(outside));
  }
}

}  // namespace

TEST(gemm_matches_reference) {
  for (Dtype const type : kWeightTypes) {
    for (int64_t tokens : {0, 1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 32, 33, 50})
      for (int64_t n : {1, 15, 16, 17, 80})
        for (int64_t k : {1, 31, 32, 33, 96}) check_case({type, tokens, n, k});
  }
}

// These shapes are deeper than one block of k at every level, and wider than a chunk of panels.
TEST(gemm_matches_reference_across_blocks) {
  for (Dtype const type : kWeightTypes) {
    for (int64_t tokens : {1, 7, 18}) check_case({type, tokens, 40, 9000});
    check_case({type, 1, 40, 20000});
    check_case({type, 40, 1030, 160});
    check_case({type, 19, 600, 1056});
  }
}

TEST(gemm_adds_bias_and_residual) {
  for (Dtype const type : kWeightTypes) {
    for (int64_t tokens : {1, 6, 20}) {
      for (int64_t k : {0, 40, 2100}) {
        check_case({type, tokens, 50, k, true, false});
        check_case({type, tokens, 50, k, false, true});
        check_case({type, tokens, 50, k, true, true});
        if (k == 0) check_case({type, tokens, 50, k});
      }
    }
  }
}

// Invariant of kernels.h: neither the rows beside it, nor the slice of panels, nor the thread changes a bit
// of a row.
TEST(gemm_rows_do_not_depend_on_company) {
  constexpr int64_t kTokens = 41, kN = 104;
  ThreadPool pool(3);
  for (Dtype const type : kWeightTypes) {
    for (int64_t const depth : {64, 1088, 9000}) {
      for (bool accumulate : {false, true}) {
        int64_t const k = width_for(type, depth);
        Random random{uint64_t(k)};
        Weights const weights(random, type, kN, k);
        int64_t const panels = weights.matrix.panels();
        Inputs const x = random_inputs(random, weights.matrix, kTokens);
        Bytes const before = random_rows(random, Dtype::f32, kTokens, kN, kN);
        Bytes bias = random_rows(random, Dtype::f32, 1, kN, kN);
        for (Kernels const* kernels : dense_levels()) {
          // The emulated tiles are slow, and two depths cover the third.
          if (depth == 9000 && kernels == &amx_emulated::kernels) continue;
          Bytes alone(kTokens * kN * 4), together(kTokens * kN * 4);
          auto const rows = [&](Bytes& y, int64_t first, int64_t count) {
            std::memcpy(y.data.get() + first * kN * 4, before.data.get() + first * kN * 4,
                        size_t(count * kN * 4));
            return Gemm{.x = x.row(first),
                        .ldx = x.ldx,
                        .w = &weights.matrix,
                        .bias = bias.f32(),
                        .y = y.f32() + first * kN,
                        .ldy = kN,
                        .tokens = count,
                        .accumulate = accumulate};
          };
          for (int64_t t = 0; t < kTokens; ++t) kernels->gemm(rows(alone, t, 1), 0, panels);
          for (int64_t count : {2, 7, 8, 13, 16, 37, 41}) {
            for (int64_t t = 0; t < kTokens; t += count) {
              Gemm const g = rows(together, t, std::min(count, kTokens - t));
              if (count % 2 == 0)
                kernels->gemm(g, 0, panels);
              else
                pool.run(panels, count / 5 + 1,
                         [&](int64_t begin, int64_t end) { kernels->gemm(g, begin, end); });
            }
            CHECK(std::memcmp(alone.data.get(), together.data.get(), alone.size) == 0,
                  "%s %s K=%d accumulate %d: rows in groups of %d differ from rows alone", kernels->name,
                  name_of(type), int(k), accumulate, int(count));
          }
        }
      }
    }
  }
}

// Integers and scales are at the ends of their ranges, with inputs of 127. The exact and the floating-point
// parts of a kernel must agree even there, and sums of 16 bits must hold them.
TEST(gemm_of_the_largest_integers_does_not_depend_on_company) {
  constexpr int64_t kTokens = 41, kN = 40, kK = 2 * kSuper;
  for (Dtype const type : kGroupedFormats) {
    PackedMatrix w{.dtype = type, .n = kN, .k = kK};
    Bytes weights(int64_t(w.bytes()));
    w.data = weights.data.get();
    std::memset(w.data, 0, w.bytes());
    bool const is_signed = weight_format(type).scales == Scales::super;
    bool const are_nibbles = weight_format(type).scales == Scales::super_nibbles;
    bool const are_exponents = weight_format(type).scales == Scales::exponent;
    int const most = are_exponents ? 121 : weight_format(type).scale_most;
    int const largest = is_signed ? most - 1 : are_nibbles ? most | most << 4 : most;
    for (int64_t n = 0; n < kN; ++n) {
      int8_t q[kGroup];
      int const integers[] = {0, (1 << integer_bits(type)) - 1, (1 << integer_bits(type)) / 2 - 1};
      std::fill_n(q, kGroup, int8_t(integers[n % 3] - integer_zero(type)));
      GroupScales scales{.halves = {0x2400, 0x2400}, .bytes = {}};
      std::fill(std::begin(scales.bytes), std::end(scales.bytes),
                uint8_t(n % 4 < 2 && is_signed ? -largest - 1 : largest));
      for (int64_t k = 0; k < kK; k += kGroup) {
        if (k % (is_super(type) ? kSuper : weight_group(type)) == 0) write_scales(w, n, k, scales);
        write_integers(w, n, k, q);
      }
    }
    Bytes rows(kTokens * kK * 4);
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t k = 0; k < kK; ++k)
        rows.f32()[t * kK + k] = t % 3 == 0 || (t % 3 == 1 && k % 2) ? 1.0f : -1.0f;
    Inputs const x = inputs_from(w, rows, kK, kTokens);
    Bytes alone(kTokens * kN * 4), together(kTokens * kN * 4);
    auto const gemm = [&](Bytes& y, int64_t first, int64_t count) {
      return Gemm{
          .x = x.row(first), .ldx = x.ldx, .w = &w, .y = y.f32() + first * kN, .ldy = kN, .tokens = count};
    };
    std::vector<double> want(size_t(kTokens * kN)), scale(want.size());
    reference::gemm(gemm(alone, 0, kTokens), want.data(), scale.data());
    for (Kernels const* kernels : dense_levels()) {
      for (int64_t t = 0; t < kTokens; ++t) kernels->gemm(gemm(alone, t, 1), 0, w.panels());
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(std::fabs(alone.f32()[i] - want[i]) <= allowed(kK, scale[i]), "%s %s: %g, not %g",
              kernels->name, name_of(type), double(alone.f32()[i]), want[i]);
      for (int64_t count : {6, 13, 30, 41}) {
        for (int64_t t = 0; t < kTokens; t += count)
          kernels->gemm(gemm(together, t, std::min(count, kTokens - t)), 0, w.panels());
        CHECK(std::memcmp(alone.data.get(), together.data.get(), alone.size) == 0,
              "%s %s: rows in groups of %d differ from rows alone", kernels->name, name_of(type), int(count));
      }
    }
  }
}

#if defined(__aarch64__)
// SDOT, USDOT and USMMLA give the bits of products of 16 bits, whose kernels add the same integers.
TEST(gemm_by_dot_products_of_arm_has_the_bits_of_others) {
  constexpr int64_t kN = 40;
  Kernels const& plain = portable::kernels;
  Kernels const& dots = *kernels_for(BUNTING_ISA_PORTABLE);
  CHECK((&dots != &plain) == (has_dotprod() || has_i8mm()), "the kernels are those of the processor");
  for (Dtype const type : kGroupedFormats) {
    for (int64_t const depth : {64, 1088}) {
      int64_t const k = width_for(type, depth);
      Random random{uint64_t(k)};
      Weights const weights(random, type, kN, k);
      for (int64_t tokens : {1, 2, 3, 4, 5, 9, 18}) {
        Inputs const x = random_inputs(random, weights.matrix, tokens);
        Bytes want(tokens * kN * 4), got(tokens * kN * 4);
        Gemm g{
            .x = x.row(0), .ldx = x.ldx, .w = &weights.matrix, .y = want.f32(), .ldy = kN, .tokens = tokens};
        plain.gemm(g, 0, weights.matrix.panels());
        g.y = got.f32();
        dots.gemm(g, 0, weights.matrix.panels());
        CHECK(std::memcmp(want.data.get(), got.data.get(), want.size) == 0, "%s T=%d K=%d", name_of(type),
              int(tokens), int(k));
      }
    }
  }
}
#endif

// Pieces cover everything exactly once. None is thinner than a micro-kernel needs, unless the matrix is.
TEST(parallel_gemm_cuts_into_pieces) {
  for (int64_t pieces : {1, 3, 8, 256}) {
    for (int64_t panels : {1, 7, 64, 9496}) {
      for (int64_t tokens : {1, 8, 32, 33, 100, 512}) {
        GemmCut const cut = cut_gemm(panels, tokens, pieces);
        int64_t const columns = (panels + cut.panels - 1) / cut.panels,
                      rows = (tokens + cut.rows - 1) / cut.rows;
        CHECK(cut.panels >= 1 && cut.rows >= 1, "%d x %d", int(cut.panels), int(cut.rows));
        CHECK(tokens > 32 || rows == 1, "%d tokens are cut into %d", int(tokens), int(rows));
        CHECK(tokens <= 32 || (cut.panels >= 8 && cut.rows >= 32), "pieces of %d panels, %d rows",
              int(cut.panels), int(cut.rows));
        int64_t const possible = tokens <= 32 ? panels : ((panels + 7) / 8) * ((tokens + 31) / 32);
        CHECK(columns * rows * 2 >= std::min(possible, pieces), "%d panels, %d tokens, %d pieces: only %d",
              int(panels), int(tokens), int(pieces), int(columns * rows));
      }
    }
  }
}

TEST(parallel_gemm_equals_one_thread) {
  ThreadPool one(1), many(5);
  for (Dtype const type : kWeightTypes) {
    for (int64_t tokens : {0, 1, 33, 100}) {
      for (int64_t n : {5, 600}) {
        Random random{uint64_t(n + tokens)};
        Weights const weights(random, type, n, 96);
        Inputs const x = random_inputs(random, weights.matrix, tokens);
        for (Kernels const* kernels : dense_levels()) {
          Bytes alone(tokens * n * 4), together(tokens * n * 4);
          Gemm g{.x = x.row(0),
                 .ldx = x.ldx,
                 .w = &weights.matrix,
                 .y = alone.f32(),
                 .ldy = n,
                 .tokens = tokens};
          parallel_gemm(one, *kernels, g, 1);
          g.y = together.f32();
          parallel_gemm(many, *kernels, g, 20);
          CHECK(std::memcmp(alone.data.get(), together.data.get(), alone.size) == 0, "%s %s T=%d N=%d",
                kernels->name, name_of(type), int(tokens), int(n));
        }
      }
    }
  }
}

TEST(parallel_gated_equals_gemm_then_gate) {
  ThreadPool one(1), many(3);
  for (Dtype const type : kWeightTypes) {
    Dtype const plain = type == Dtype::f32 ? Dtype::f32 : Dtype::bf16;
    for (int64_t tokens : {0, 1, 32, 33, 300}) {
      for (int64_t f : {16, 48, 320}) {
        Random random{uint64_t(f + tokens)};
        Weights const weights(random, type, 2 * f, 64);
        Inputs const x = random_inputs(random, weights.matrix, tokens);
        for (Kernels const* kernels : dense_levels()) {
          if (kernels == &amx_emulated::kernels && tokens > 100) continue;  // slow
          Bytes gates(tokens * 2 * f * 4), scratch(3 * kGateScratch * 4);
          parallel_gemm(one, *kernels,
                        {.x = x.row(0),
                         .ldx = x.ldx,
                         .w = &weights.matrix,
                         .y = gates.f32(),
                         .ldy = 2 * f,
                         .tokens = tokens},
                        1);
          for (Dtype out : {plain, Dtype::q8, Dtype::q8_128, Dtype::q4, Dtype::q5_k, Dtype::q6_k}) {
            int64_t const ldo = is_grouped(out) ? round_up(f, 2 * kGroup) / kGroup + 1 : f + 32;
            int64_t const bytes = tokens * ldo * input_bytes(out);
            Bytes want(bytes), got(bytes);
            kernels->gate({want.data.get(), ldo, out}, gates.f32(), 2 * f, f, Activation::silu, 0, tokens);
            for (int64_t pieces : {1, 7}) {
              parallel_gated(many, *kernels,
                             {.x = x.row(0),
                              .ldx = x.ldx,
                              .w = &weights.matrix,
                              .out = {got.data.get(), ldo, out},
                              .tokens = tokens,
                              .scratch = scratch.f32()},
                             pieces);
              CHECK(std::memcmp(want.data.get(), got.data.get(), want.size) == 0,
                    "%s %s to %s T=%d F=%d, %d pieces", kernels->name, name_of(type), name_of(out),
                    int(tokens), int(f), int(pieces));
            }
          }
        }
      }
    }
  }
}

// A NaN in a row must not reach other rows, so that a broken sequence affects no other.
TEST(gemm_keeps_not_a_number_in_its_row) {
  for (Dtype const type : kWeightTypes) {
    Random random{5};
    Weights const weights(random, type, 48, 64);
    int64_t const k = weights.matrix.k;
    Bytes rows = random_rows(random, Dtype::f32, 19, k, k);
    rows.f32()[7 * k + 3] = INFINITY;
    rows.f32()[7 * k + 4] = -INFINITY;
    Inputs const x = inputs_from(weights.matrix, rows, k, 19);
    for (Kernels const* kernels : dense_levels()) {
      Bytes y(19 * 48 * 4);
      kernels->gemm(
          {.x = x.row(0), .ldx = x.ldx, .w = &weights.matrix, .y = y.f32(), .ldy = 48, .tokens = 19}, 0, 3);
      for (int64_t i = 0; i < 19 * 48; ++i)
        CHECK(std::isfinite(y.f32()[i]) == (i / 48 != 7), "%s %s row %d", kernels->name, name_of(type),
              int(i / 48));
    }
  }
}

}  // namespace bunting::test
