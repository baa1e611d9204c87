// pack_grouped.cpp - weights into the integer formats of PackedMatrix: rounded, or moved as a GGUF file has
// them.
//
//   src [N, K] row-major f32, f16 or bf16; or rows of Q8_0 or Q4_0 blocks for a matrix of that type. May be
//       unaligned in a mapped file.
//
//   q8  scale = f16(max |w| / 127), q = round(w / scale)
//   q6  the same with 31
//   q4  of eleven scales, at which the largest |w| becomes 6 to 9 steps, the one whose best multiple, the sum
//       of w q over the sum of q q, leaves the least squared error; then q = round(w / scale) once more,
//       within -8 .. 7
// All to nearest even. A group with a number that is not finite gets the scale NaN.
//
// Work:     one panel after another, what shares a scale in one column at a time.
// Roofline: q8 memory; q4 about 16 operations per weight.
// Checked:  bit for bit against reference::pack.
#include <algorithm>

#include "cpu/kernels/group.h"
#include "cpu/kernels/half.h"
#include "cpu/kernels/integer_layout.h"

namespace bunting::BUNTING_ISA {
namespace {

constexpr uint16_t kNanHalf = 0x7e00;

// The steps that the number of largest magnitude becomes: -8 is the end of the range, and a little more or
// less often serves the others better.
constexpr float kLargestSteps[] = {-8.0f, -9.0f, -8.5f, -7.5f, -7.0f, -6.5f, -6.0f, 7.5f, 7.0f, 6.5f, 6.0f};

constexpr int kGroupsMax = kGroupMax / kGroup;  // that share a scale

// What becomes of the numbers of a group.
struct Rounded {
  int8_t q[kGroupMax];
  uint16_t scale;  // f16
};

BUNTING_INLINE f32x16 clamp(f32x16 x, float low, float high) {
  return min(max(x, set1(low)), set1(high));
}

template <int kGroups>
BUNTING_INLINE float best_q4_scale(float const* values, f32x16 const* a, f32x16 const* b, float largest) {
  bool const is_negative =
      std::any_of(values, values + kGroups * kGroup, [=](float x) { return x == -largest; });
  float const extreme = is_negative ? -largest : largest;
  float best_gain = 0, scale = 0;
  for (float const steps : kLargestSteps) {
    f32x16 const to_integers = set1(steps / extreme);
    f32x16 products = set1(0), squares = set1(0);
    for (int i = 0; i < kGroups; ++i) {
      f32x16 const q = clamp(round(a[i] * to_integers), -8, 7), q16 = clamp(round(b[i] * to_integers), -8, 7);
      products = products + (a[i] * q + b[i] * q16);
      squares = squares + (q * q + q16 * q16);
    }
    float const product = sum(products), square = sum(squares), gain = product * product / square;
    if (gain > best_gain) best_gain = gain, scale = product / square;
  }
  return scale;
}

template <Dtype W, int kGroups>
BUNTING_INLINE void round_groups(Rounded& to, float const* values) {
  f32x16 a[kGroups], b[kGroups];
  uint32_t bits = 0;  // of the largest magnitude
  for (int i = 0; i < kGroups; ++i) {
    a[i] = load(values + i * kGroup);
    b[i] = load(values + i * kGroup + 16);
    float const magnitude = largest_magnitude(a[i], b[i]);
    uint32_t its_bits;
    std::memcpy(&its_bits, &magnitude, 4);
    bits = std::max(bits, its_bits);
  }
  float largest;
  std::memcpy(&largest, &bits, 4);
  to = {};
  if (bits >= kInfinity) to.scale = kNanHalf;
  if (bits >= kInfinity || largest < 1e-30f) return;
  constexpr float kMost = float(integer_zero(W) - 1), kLeast = W == Dtype::q4 ? -8 : -kMost;
  to.scale = f32_to_f16(W == Dtype::q4 ? best_q4_scale<kGroups>(values, a, b, largest) : largest / kMost);
  float const scale = f16_to_f32(to.scale);
  f32x16 const to_integers = set1(scale > 0 || scale < 0 ? 1.0f / scale : 0.0f);
  for (int i = 0; i < kGroups; ++i) {
    store_int8(to.q + i * kGroup, clamp(round(a[i] * to_integers), kLeast, kMost));
    store_int8(to.q + i * kGroup + 16, clamp(round(b[i] * to_integers), kLeast, kMost));
  }
}

// The numbers of one group, of `groups` times kGroup.
template <Dtype W>
void round_all(Rounded& to, float const* values, int64_t groups) {
  if (groups == 1) return round_groups<W, 1>(to, values);
  if (groups == 2) return round_groups<W, 2>(to, values);
  round_groups<W, kGroupsMax>(to, values);
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

// A group of a GGUF file as it is: f16 scale, then 32 bytes q or 16 bytes of nibbles q + 8.
template <Dtype W>
void read_stored(char const* from, Rounded& to) {
  std::memcpy(&to.scale, from, 2);
  if constexpr (W == Dtype::q8) {
    std::memcpy(to.q, from + 2, kGroup);
  } else {
    for (int i = 0; i < kGroup / 2; ++i) {
      uint8_t const byte = uint8_t(from[2 + i]);
      to.q[i] = int8_t((byte & 15) - 8);
      to.q[i + kGroup / 2] = int8_t((byte >> 4) - 8);
    }
  }
}

template <Dtype W, Dtype S>
void pack_panels(PackedMatrix const& w, char const* src, int64_t begin, int64_t end) {
  constexpr bool kStored = S == W;
  constexpr int64_t kStoredBytes = W == Dtype::q8 ? 34 : 18;
  int64_t const row_bytes = kStored ? w.k / kGroup * kStoredBytes : w.k * (S == Dtype::f32 ? 4 : 2);
  for (int64_t n = begin * kPanel; n < end * kPanel; ++n) {
    char const* const row = src + n * row_bytes;
    // The last block has two scales, whether it has numbers for them or not.
    for (int64_t first = 0; first < round_up(w.kp(), 2 * w.group); first += w.group) {
      int64_t const valid = n < w.n ? std::clamp<int64_t>(w.k - first, 0, w.group) : 0;
      Rounded rounded{};
      if constexpr (kStored) {
        if (valid > 0) read_stored<W>(row + first / kGroup * kStoredBytes, rounded);
      } else if (valid > 0) {
        float values[kGroupMax];
        for (int64_t i = 0; i < valid; ++i) values[i] = read<S>(row, first + i);
        for (int64_t i = valid; i < w.group; ++i) values[i] = 0;
        round_all<W>(rounded, values, w.group / kGroup);
      }
      write_scale(w, n, first, rounded.scale);
      for (int64_t i = 0; i < w.group && first + i < w.kp(); i += kGroup)
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
    case Dtype::bf16:
      return pack_panels<W, Dtype::bf16>(w, src, begin, end);
    default:  // q8 and q4 only; nothing stores q6
      if constexpr (W != Dtype::q6) pack_panels<W, W>(w, src, begin, end);
  }
}

}  // namespace

void pack_grouped(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end) {
  char const* const bytes = static_cast<char const*>(src);
  if (w.dtype == Dtype::q8)
    pack_from<Dtype::q8>(w, bytes, src_dtype, begin, end);
  else if (w.dtype == Dtype::q6)
    pack_from<Dtype::q6>(w, bytes, src_dtype, begin, end);
  else
    pack_from<Dtype::q4>(w, bytes, src_dtype, begin, end);
}

}  // namespace bunting::BUNTING_ISA
