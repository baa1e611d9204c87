// matrix_sums.h - sums inside matrix instructions, bit by bit as tensor cores add them: every product is
// exact, all terms are aligned to the largest exponent and truncated there, their sum is exact and is
// truncated to f32. The rule and its parameters are those of MMA-Sim (arXiv:2511.10909), which found them by
// experiments on each GPU.
#pragma once

#include <cstdint>

namespace bunting::emulator {

struct MatrixSums {
  int terms;          // products that one sum takes, with the number it adds to; longer products chain sums
  int fraction_bits;  // kept below the largest exponent
  int zero_exponent;  // exponent that a term of zero has in the alignment
};
inline constexpr MatrixSums kAmpereSums{8, 24, -132}, kHopperSums{16, 25, -133};

// Selects the sums of all later matrix instructions; they are Hopper's at first. No grid may run meanwhile.
void use_matrix_sums(MatrixSums const& sums);

// Sixteen bf16 numbers of a row of the first matrix, or of a column of the second: significands with seven
// bits of fraction, and exponents.
struct Operand {
  int16_t significands[16];
  int16_t exponents[16];
  float values[16];
  bool is_finite = true;
  void set(int k, uint16_t bf16);
};
// Returns c + sum of a[k] * b[k].
float add_products(Operand const& a, Operand const& b, float c);

}  // namespace bunting::emulator
