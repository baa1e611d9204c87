// quantise.cpp: rounds rows of activations to int8 in groups that share a scale, for products with grouped
// weights.
//
//   x  [T, ldx] f32 or bf16, columns K .. round_up(K, 16)-1 zero
//   to [T, ld] InputGroup (kernels.h), groups 0 .. round_up(K, 64)/32-1 written
//
// group.h makes the groups. Norms and gates use it too, for their own results.
//
// Work:     token rows [begin, end); the numbers that share a scale pass twice through registers.
// Roofline: memory bound, T*K*(2 or 4 + 1.25) bytes.
// Checked:  bit for bit against reference::quantise.
#include "cpu/kernels/group.h"

namespace bunting::BUNTING_ISA {
namespace {

BUNTING_INLINE f32x16 load_row(float const* p) {
  return load(p);
}
BUNTING_INLINE f32x16 load_row(bf16 const* p) {
  return load_bf16(p);
}

template <class Number>
void quantise_rows(Operand const& to, Number const* x, int64_t ldx, int64_t k, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    Number const* const from = x + t * ldx;
    quantise_row(to, t, k, [&](int64_t i) __attribute__((always_inline)) { return load_row(from + i); });
  }
}

}  // namespace

void quantise(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t begin,
              int64_t end) {
  if (dtype == Dtype::f32)
    quantise_rows(to, static_cast<float const*>(x), ldx, k, begin, end);
  else
    quantise_rows(to, static_cast<bf16 const*>(x), ldx, k, begin, end);
}

}  // namespace bunting::BUNTING_ISA
