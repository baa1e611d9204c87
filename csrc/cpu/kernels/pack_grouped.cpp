// pack_grouped.cpp - converts weights to the integer formats of PackedMatrix, by rounding or by moving a GGUF
// file's blocks.
//
//   src [N, K] row-major f32, f16 or bf16; or rows of blocks for a matrix of that type. May be unaligned in a
//       mapped file.
//
//   q8  scale = f16(max |w| / 127), q = round(w / scale)
//   q6  the same with 31, and q5_0 with 15
//   q4  tries eleven scales, at which the largest |w| becomes 6 to 9 steps, each replaced by its best
//       multiple, the sum of w q over the sum of q q. Keeps the one with the least squared error; then q =
//       round(w / scale) once more, within -8 .. 7
// All round to nearest even. A group with a number that is not finite gets the scale NaN.
//
// Work:     one panel after another, the numbers of one column that share a scale at a time.
// Roofline: q8 memory; q4 about 16 operations per weight.
// Checked:  bit for bit against reference::pack.
#include <algorithm>

#include "cpu/kernels/group.h"
#include "cpu/kernels/half.h"
#include "cpu/kernels/integer_layout.h"
#include "cpu/kernels/stored_block.h"

namespace bunting::BUNTING_ISA {
namespace {

constexpr uint16_t kNanHalf = 0x7e00;

// Candidate steps of the number of largest magnitude. -8 is the end of the range; slightly more or fewer
// steps often fit the other numbers better.
constexpr float kLargestSteps[] = {-8.0f, -9.0f, -8.5f, -7.5f, -7.0f, -6.5f, -6.0f, 7.5f, 7.0f, 6.5f, 6.0f};

// Rounded numbers of a group.
struct Rounded {
  int8_t q[kGroupMax];
  uint16_t scale;  // f16
};

BUNTING_INLINE f32x16 clamp(f32x16 x, float low, float high) {
  return min(max(x, set1(low)), set1(high));
}

// Returns the best scale of a q4 group; x has the same numbers as `values`.
template <size_t kCount>
BUNTING_INLINE float best_q4_scale(float const* values, f32x16 const (&x)[kCount], float largest) {
  bool const is_negative = std::any_of(values, values + kCount * 16, [=](float v) { return v == -largest; });
  float const extreme = is_negative ? -largest : largest;
  float best_gain = 0, scale = 0;
  for (float const steps : kLargestSteps) {
    f32x16 const to_integers = set1(steps / extreme);
    f32x16 products = zero(), squares = zero();
    for (size_t i = 0; i < kCount; i += 2) {
      f32x16 const q = clamp(round(x[i] * to_integers), -8, 7),
                   q16 = clamp(round(x[i + 1] * to_integers), -8, 7);
      products = products + (x[i] * q + x[i + 1] * q16);
      squares = squares + (q * q + q16 * q16);
    }
    float const product = sum(products), square = sum(squares), gain = product * product / square;
    if (gain > best_gain) best_gain = gain, scale = product / square;
  }
  return scale;
}

// Rounds the numbers of one group.
template <Dtype W>
BUNTING_INLINE void round_group(Rounded& to, float const* values) {
  constexpr int kCount = int(weight_group(W) / 16);
  f32x16 x[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = load(values + i * 16);
  float const largest = largest_magnitude(x);
  to = {};
  if (!is_finite(largest)) to.scale = kNanHalf;
  if (!is_finite(largest) || largest < 1e-30f) return;
  constexpr float kMost = float(integer_zero(W) - 1), kLeast = W == Dtype::q4 ? -8 : -kMost;
  to.scale = f32_to_f16(W == Dtype::q4 ? best_q4_scale(values, x, largest) : largest / kMost);
  float const scale = f16_to_f32(to.scale);
  f32x16 const to_integers = set1(scale > 0 || scale < 0 ? 1.0f / scale : 0.0f);
  for (int i = 0; i < kCount; ++i) store_int8(to.q + i * 16, clamp(round(x[i] * to_integers), kLeast, kMost));
}

template <Dtype S>
BUNTING_INLINE float read(char const* row, int64_t k) {
  uint16_t half;
  if constexpr (S == Dtype::f32) {
    float value;
    std::memcpy(&value, row + k * 4, 4);
    return value;
  }
  std::memcpy(&half, row + k * 2, 2);
  return S == Dtype::f16 ? f16_to_f32(half) : to_f32(half);
}

template <Dtype W, Dtype S>
void pack_panels(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  constexpr int64_t kTogether = weight_group(W);
  int64_t const row_bytes = w.k * (S == Dtype::f32 ? 4 : 2);
  for (int64_t n = begin * kPanel; n < end * kPanel; ++n) {
    char const* const row = src + n * row_bytes;
    // The last block has two scales, even if it has no numbers for the second.
    for (int64_t first = 0; first < round_up(w.kp(), 2 * kTogether); first += kTogether) {
      int64_t const valid = n < w.n ? std::clamp<int64_t>(w.k - first, 0, kTogether) : 0;
      Rounded rounded{};
      if (valid > 0) {
        float values[kTogether] = {};
        for (int64_t i = 0; i < valid; ++i) values[i] = read<S>(row, first + i);
        round_group<W>(rounded, values);
      }
      write_scales(w, n, first, {.halves = {rounded.scale}, .bytes = {}});
      for (int64_t i = 0; i < kTogether && first + i < w.kp(); i += kGroup)
        write_integers(w, n, first + i, rounded.q + i);
    }
  }
}

template <Dtype W>
void pack_from(PackedMatrix const& w, char const* src, Dtype src_dtype, int64_t begin, int64_t end) {
  switch (src_dtype) {
    case Dtype::f32:
      return pack_panels<W, Dtype::f32>(w, src, begin, end);
    case Dtype::f16:
      return pack_panels<W, Dtype::f16>(w, src, begin, end);
    default:
      return pack_panels<W, Dtype::bf16>(w, src, begin, end);
  }
}

}  // namespace

void pack_grouped(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end) {
  char const* const bytes = static_cast<char const*>(src);
  if (src_dtype == w.dtype) return pack_stored_blocks(w, bytes, begin, end);
  with_grouped_format(w.dtype, [&]<Dtype W>() __attribute__((always_inline)) {
    if constexpr (is_rounded_to(W)) pack_from<W>(w, bytes, src_dtype, begin, end);
  });
}

}  // namespace bunting::BUNTING_ISA
