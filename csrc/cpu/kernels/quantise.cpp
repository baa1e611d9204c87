// quantise.cpp: rounds rows of activations to int8 in groups that share a scale, for products with grouped
// weights, and back.
//
//   x  [T, ldx] f32 or bf16, columns K .. round_up(K, 16)-1 zero
//   to [T, ld] InputGroup (kernels.h), groups 0 .. round_up(K, 64)/32-1 written
//
// group.h makes the groups. Norms and gates use it too, for their own results.
//
// Work:     token rows [begin, end); the numbers that share a scale pass twice through registers.
// Roofline: memory bound, T*K*(2 or 4 + 1.25) bytes.
// Checked:  bit for bit against reference::quantise; the way back against the groups' values.
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

void dequantise(Operand const& to, InputGroup const* x, int64_t ldx, int64_t k, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    InputGroup const* const groups = x + t * ldx;
    float* const numbers = reinterpret_cast<float*>(to.row(t));
    bf16* const halves = reinterpret_cast<bf16*>(to.row(t));
    bool const is_f32 = to.dtype == Dtype::f32;
    for (int64_t i = 0; i < k; i += 16) {
      InputGroup const& group = groups[i / kGroup];
      f32x16 const values = load_int8(group.q + i % kGroup) * set1(group.scale);
      if (is_f32)
        store_first(numbers + i, values, k - i);
      else
        store_bf16_first(halves + i, values, k - i);
    }
    for (int64_t i = k; i < to.ld; ++i) is_f32 ? void(numbers[i] = 0) : void(halves[i] = 0);
    for (int64_t i = 0; i < k; i += kGroup) {
      InputGroup const& group = groups[i / kGroup];
      if (group.outlier == 0) continue;
      if (is_f32)
        numbers[i + group.outlier_at] = group.outlier;
      else
        halves[i + group.outlier_at] = to_bf16(group.outlier);
    }
  }
}

void quantise(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t begin,
              int64_t end) {
  if (dtype == Dtype::f32)
    quantise_rows(to, static_cast<float const*>(x), ldx, k, begin, end);
  else
    quantise_rows(to, static_cast<bf16 const*>(x), ldx, k, begin, end);
}

}  // namespace bunting::BUNTING_ISA
