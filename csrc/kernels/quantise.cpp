// quantise.cpp: rows of activations as groups of 32 int8 that share a scale, to multiply with grouped
// weights.
//
//   x  [T, ldx] f32 or bf16, columns K .. round_up(K, 32)-1 zero
//   to [T, ldto] InputGroup (kernels.h), groups 0 .. round_up(K, 64)/32-1 written
//
//   scale = max |x| / 127      q = round_to_even(x * (127 / max |x|))      minus_sum = -(sum of q)
// A group of numbers below 1e-30 is zero. One with a number that is not finite has the scale NaN, so that the
// whole row of the product becomes NaN and nothing else.
//
// Work:     token rows [begin, end); every group by itself, twice through registers.
// Roofline: memory bound, T*K*(2 or 4 + 1.25) bytes.
// Checked:  bit for bit against reference::quantise.
#include "kernels/group.h"

namespace bunting::BUNTING_ISA {
namespace {

constexpr float kLeast = 1e-30f;  // 127 / kLeast is finite

BUNTING_INLINE f32x16 load_row(float const* p) {
  return load(p);
}
BUNTING_INLINE f32x16 load_row(bf16 const* p) {
  return load_bf16(p);
}

template <class Number>
BUNTING_INLINE void quantise_group(InputGroup& to, Number const* x) {
  f32x16 const first = load_row(x), second = load_row(x + 16);
  float const largest = largest_magnitude(first, second);
  uint32_t bits;
  std::memcpy(&bits, &largest, 4);
  if (bits >= kInfinity || largest < kLeast) {
    to = {};
    if (bits >= kInfinity) to.scale = __builtin_nanf("");
    return;
  }
  f32x16 const to_integers = set1(127.0f / largest);
  f32x16 const q = round(first * to_integers), q16 = round(second * to_integers);
  store_int8(to.q, q);
  store_int8(to.q + 16, q16);
  to.scale = largest / 127.0f;
  to.minus_sum = -int32_t(sum(q + q16));
}

template <class Number>
void quantise_rows(InputGroup* to, int64_t ldto, Number const* x, int64_t ldx, int64_t k, int64_t begin,
                   int64_t end) {
  int64_t const groups = (k + kGroup - 1) / kGroup, padded = round_up(k, 2 * kGroup) / kGroup;
  for (int64_t t = begin; t < end; ++t) {
    InputGroup* const row = to + t * ldto;
    for (int64_t i = 0; i < groups; ++i) quantise_group(row[i], x + t * ldx + i * kGroup);
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
