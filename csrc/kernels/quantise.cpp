// quantise.cpp: rows of activations as groups of 32 int8 that share a scale, to multiply with grouped
// weights.
//
//   x  [T, ldx] f32 or bf16, columns K .. round_up(K, 32)-1 zero
//   to [T, ldto] InputGroup (kernels.h), groups 0 .. round_up(K, 64)/32-1 written
//
// A group as group.h makes it, which norms and SwiGLU do with their own results.
//
// Work:     token rows [begin, end); every group by itself, twice through registers.
// Roofline: memory bound, T*K*(2 or 4 + 1.25) bytes.
// Checked:  bit for bit against reference::quantise.
#include "kernels/group.h"

namespace bunting::BUNTING_ISA {
namespace {

BUNTING_INLINE f32x16 load_row(float const* p) {
  return load(p);
}
BUNTING_INLINE f32x16 load_row(bf16 const* p) {
  return load_bf16(p);
}

template <class Number>
void quantise_rows(InputGroup* to, int64_t ldto, Number const* x, int64_t ldx, int64_t k, int64_t begin,
                   int64_t end) {
  int64_t const groups = (k + kGroup - 1) / kGroup, padded = round_up(k, 2 * kGroup) / kGroup;
  for (int64_t t = begin; t < end; ++t) {
    InputGroup* const row = to + t * ldto;
    for (int64_t i = 0; i < groups; ++i) {
      Number const* const from = x + t * ldx + i * kGroup;
      quantise_group(row[i], load_row(from), load_row(from + 16));
    }
    for (int64_t i = groups; i < padded; ++i) row[i] = {};
  }
}

}  // namespace

void quantise(InputGroup* to, int64_t ldto, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t begin,
              int64_t end) {
  if (dtype == Dtype::f32)
    quantise_rows(to, ldto, static_cast<float const*>(x), ldx, k, begin, end);
  else
    quantise_rows(to, ldto, static_cast<bf16 const*>(x), ldx, k, begin, end);
}

}  // namespace bunting::BUNTING_ISA
