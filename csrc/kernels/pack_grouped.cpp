// pack_grouped.cpp - weights into the integer formats of PackedMatrix: rounded, or moved as a GGUF file has
// them.
//
//   src [N, K] row-major f32, f16 or bf16; or rows of Q8_0 or Q4_0 blocks for a matrix of that type. May be
//       unaligned in a mapped file.
//
//   q8  scale = f16(max |w| / 127), q = round(w / scale)
//   q4  of eleven scales, at which the largest |w| becomes 6 to 9 steps, the one whose best multiple, the sum
//   of
//       w q over the sum of q q, leaves the least squared error; then q = round(w / scale) once more, within
//       -8 .. 7
// All to nearest even. A group with a number that is not finite gets the scale NaN. Where several groups
// share a scale (PackedMatrix::group), all their numbers are looked at for it.
//
// Work:     one panel after another, what shares a scale in one column at a time.
// Roofline: q8 memory; q4 about 16 operations per weight.
// Checked:  bit for bit against reference::pack.
#include <algorithm>

#include "kernels/group.h"
#include "kernels/half.h"

namespace bunting::BUNTING_ISA {
namespace {

constexpr int kStepsQ8 = 8, kStepsQ4 = 4;  // of four k, per group
constexpr uint16_t kNanHalf = 0x7e00;

// The steps that the number of largest magnitude becomes: -8 is the end of the range, and a little more or
// less often serves the others better.
constexpr float kLargestSteps[] = {-8.0f, -9.0f, -8.5f, -7.5f, -7.0f, -6.5f, -6.0f, 7.5f, 7.0f, 6.5f, 6.0f};

constexpr int kGroupsMax = kGroupMax / kGroup;  // that share a scale

// What becomes of the 32 numbers of a group.
struct Rounded {
  int8_t q[kGroup];
  uint16_t scale;  // f16
};

BUNTING_INLINE f32x16 clamp(f32x16 x, float low, float high) {
  return min(max(x, set1(low)), set1(high));
}

BUNTING_INLINE void store_rounded(Rounded& to, f32x16 a, f32x16 b, uint16_t scale, float low, float high) {
  float const value = f16_to_f32(scale);
  f32x16 const to_integers = set1(value > 0 || value < 0 ? 1.0f / value : 0.0f);
  to.scale = scale;
  store_int8(to.q, clamp(round(a * to_integers), low, high));
  store_int8(to.q + 16, clamp(round(b * to_integers), low, high));
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

// Groups that share a scale.
template <Dtype W, int kGroups>
BUNTING_INLINE void round_groups(Rounded* to, float const* values) {
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
  if (bits >= kInfinity || largest < 1e-30f) {
    std::fill_n(to, kGroups, Rounded{{}, bits >= kInfinity ? kNanHalf : uint16_t{0}});
    return;
  }
  constexpr bool kIsQ8 = W == Dtype::q8;
  uint16_t const scale = f32_to_f16(kIsQ8 ? largest / 127.0f : best_q4_scale<kGroups>(values, a, b, largest));
  for (int i = 0; i < kGroups; ++i)
    store_rounded(to[i], a[i], b[i], scale, kIsQ8 ? -127 : -8, kIsQ8 ? 127 : 7);
}

template <Dtype W>
void round_all(Rounded* to, float const* values, int64_t groups) {
  if (groups == 1) return round_groups<W, 1>(to, values);
  if (groups == 2) return round_groups<W, 2>(to, values);
  round_groups<W, kGroupsMax>(to, values);
}

// Where a column's group goes within its block; see kernels.h.
template <Dtype W>
BUNTING_INLINE void place(char* block, int64_t group, int64_t column, uint16_t scale, uint32_t const* words) {
  constexpr int kSteps = W == Dtype::q8 ? kStepsQ8 : kStepsQ4;
  std::memcpy(block + (group * kPanel + column) * 2, &scale, 2);
  char* const values = block + 2 * kPanel * 2 + group * kSteps * kPanel * 4;
  for (int step = 0; step < kSteps; ++step)
    std::memcpy(values + (step * kPanel + column) * 4, words + step, 4);
}

template <Dtype W>
BUNTING_INLINE void place_rounded(char* block, int64_t group, int64_t column, Rounded const& rounded) {
  uint32_t words[kStepsQ8];
  std::memcpy(words, rounded.q, sizeof words);
  if constexpr (W == Dtype::q8) {
    for (uint32_t& word : words) word ^= 0x80808080u;  // q + 128 in every byte
  } else {
    // q + 8 in every byte: the low nibble of q with its sign turned.
    for (int i = 0; i < kStepsQ4; ++i) {
      uint32_t const low = (words[i] ^ 0x08080808u) & 0x0f0f0f0fu;
      uint32_t const high = (words[i + kStepsQ4] ^ 0x08080808u) & 0x0f0f0f0fu;
      words[i] = low | high << 4;
    }
  }
  place<W>(block, group, column, rounded.scale, words);
}

// A group of a GGUF file as it is: f16 scale, then 32 bytes q or 16 bytes of nibbles q + 8 in the order used
// here.
template <Dtype W>
BUNTING_INLINE void place_stored(char* block, int64_t group, int64_t column, char const* from) {
  uint16_t scale;
  uint32_t words[kStepsQ8];
  std::memcpy(&scale, from, 2);
  std::memcpy(words, from + 2, W == Dtype::q8 ? 32 : 16);
  if constexpr (W == Dtype::q8)
    for (uint32_t& word : words) word ^= 0x80808080u;
  place<W>(block, group, column, scale, words);
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
  constexpr bool kStored = S == W;
  constexpr int64_t kStoredBytes = W == Dtype::q8 ? 34 : 18;
  int64_t const row_bytes = kStored ? w.k / kGroup * kStoredBytes : w.k * (S == Dtype::f32 ? 4 : 2);
  int64_t const span = kStored ? kGroup : w.group;  // of k that share a scale
  for (int64_t panel = begin; panel < end; ++panel) {
    char* const out = static_cast<char*>(w.data) + panel * w.panel_bytes();
    for (int64_t column = 0; column < kPanel; ++column) {
      int64_t const n = panel * kPanel + column;
      char const* const row = src + n * row_bytes;
      for (int64_t first = 0; first < w.kp(); first += span) {
        int64_t const valid = n < w.n ? std::clamp<int64_t>(w.k - first, 0, span) : 0;
        int64_t const rounded = (valid + kGroup - 1) / kGroup;  // groups with a number
        Rounded groups[kGroupsMax];
        if (!kStored && valid > 0) {
          float values[kGroupMax];
          for (int64_t i = 0; i < valid; ++i) values[i] = read<S>(row, first + i);
          for (int64_t i = valid; i < span; ++i) values[i] = 0;
          round_all<W>(groups, values, span / kGroup);
        }
        for (int64_t i = 0; i < span / kGroup && first + i * kGroup < w.kp(); ++i) {
          int64_t const k0 = first + i * kGroup, group = k0 / kGroup % 2;
          char* const block = out + k0 / (2 * kGroup) * w.block_bytes();
          if (i >= rounded)
            place_rounded<W>(block, group, column, Rounded{});
          else if constexpr (kStored)
            place_stored<W>(block, group, column, row + k0 / kGroup * kStoredBytes);
          else
            place_rounded<W>(block, group, column, groups[i]);
        }
      }
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
    default:
      return pack_panels<W, W>(w, src, begin, end);
  }
}

}  // namespace

void pack_grouped(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end) {
  char const* const bytes = static_cast<char const*>(src);
  if (w.dtype == Dtype::q8)
    pack_from<Dtype::q8>(w, bytes, src_dtype, begin, end);
  else
    pack_from<Dtype::q4>(w, bytes, src_dtype, begin, end);
}

}  // namespace bunting::BUNTING_ISA
