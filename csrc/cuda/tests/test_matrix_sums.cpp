// Tests of the sums inside emulated matrix instructions against golden bits, and of their rules one by one.
#include <bit>
#include <cmath>
#include <limits>

#include "cuda/tests/matrix_sums_golden.h"
#include "emulator/matrix_sums.h"
#include "reference/kv_value.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

using emulator::kAmpereSums;
using emulator::kHopperSums;

struct HopperAgain {
  ~HopperAgain() { emulator::use_matrix_sums(kHopperSums); }
};

uint32_t bits_of(emulator::MatrixSums const& sums, GoldenSum const& g) {
  HopperAgain const at_last;
  emulator::use_matrix_sums(sums);
  emulator::Operand a, b;
  for (int k = 0; k < 16; ++k) a.set(k, g.a[k]), b.set(k, g.b[k]);
  return std::bit_cast<uint32_t>(emulator::add_products(a, b, std::bit_cast<float>(g.c)));
}

// Returns c + a[0] + a[1] + ..., each times one.
float sum_of(emulator::MatrixSums const& sums, std::initializer_list<float> terms, float c) {
  GoldenSum g{"", {}, {}, std::bit_cast<uint32_t>(c), 0, 0};
  int k = 0;
  for (float const term : terms) g.a[k] = reference::narrow(term), g.b[k++] = reference::narrow(1);
  return std::bit_cast<float>(bits_of(sums, g));
}

}  // namespace

TEST(emulator_matrix_sums_are_those_of_tensor_cores) {
  int differing = 0;
  for (GoldenSum const& g : kGoldenSums) {
    CHECK(bits_of(kAmpereSums, g) == g.ampere, "%s, Ampere: %08x, not %08x", g.kind, bits_of(kAmpereSums, g),
          g.ampere);
    CHECK(bits_of(kHopperSums, g) == g.hopper, "%s, Hopper: %08x, not %08x", g.kind, bits_of(kHopperSums, g),
          g.hopper);
    differing += g.ampere != g.hopper;
  }
  CHECK(differing >= 10, "only %d sums tell the two apart", differing);
}

TEST(emulator_matrix_sums_truncate_below_the_largest_term) {
  // Hopper keeps 25 bits below the largest exponent, Ampere 24; both then truncate to 23.
  float const kept = std::ldexp(1.0f, -24), lost = std::ldexp(1.0f, -26);
  CHECK(sum_of(kHopperSums, {1, kept, kept}, 0) == 1 + std::ldexp(1.0f, -23),
        "halves of the last bit do not add up");
  CHECK(sum_of(kHopperSums, {1, lost, lost, lost, lost, lost, lost, lost, lost}, 0) == 1, "lost bits add up");
  float const quarter = std::ldexp(1.0f, -25);
  CHECK(sum_of(kHopperSums, {1, quarter, quarter, quarter, quarter}, 0) == 1 + std::ldexp(1.0f, -23),
        "on Hopper");
  CHECK(sum_of(kAmpereSums, {1, quarter, quarter, quarter, quarter}, 0) == 1, "on Ampere");
  CHECK(sum_of(kHopperSums, {-1, -kept}, 0) == -1, "a sum is not truncated towards zero");
}

TEST(emulator_matrix_sums_know_what_is_no_number) {
  float const infinite = std::numeric_limits<float>::infinity();
  CHECK(sum_of(kHopperSums, {infinite, 1}, 0) == infinite, "infinity is lost");
  CHECK(std::bit_cast<uint32_t>(sum_of(kHopperSums, {infinite, -infinite}, 0)) == 0x7fffffff, "a number");
  CHECK(std::isinf(sum_of(kAmpereSums, {3e38f, 3e38f}, 0)), "no overflow");
}

}  // namespace bunting::test
