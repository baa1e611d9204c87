// weight_format.h - every way in which integers in groups stand for weights, one row each. From a row come
// where integers and scales lie in memory (kernels.h, integer_layout.h), which kernels multiply them
// (gemm_grouped.cpp) and what a number is.
//
// To add one that files store: its row, how a file orders its bits (stored_block.cpp), and its number in
// engine.h. The tests take it in from the list at the end.
#pragma once

#include <cstdint>

// Inlined also where a format is known at run time alone: files of kernels share no function
// (CMakeLists.txt).
#define BUNTING_FORMAT_FUNCTION inline __attribute__((always_inline)) constexpr

namespace bunting {

// Types of numbers. The values of engine.h, and two more. The others than f32, f16 and bf16 are integers in
// groups: weights, and q8 keys and values.
enum class Dtype : int32_t {
  f32 = 0,
  f16 = 1,
  bf16 = 2,
  q4 = 16,
  q4_1 = 17,
  q5_0 = 18,
  q5_1 = 19,
  q8 = 20,
  q2_k = 22,
  q3_k = 23,
  q4_k = 24,
  q5_k = 25,
  q6_k = 26,
  iq4_nl = 27,
  iq4_xs = 28,
  mxfp4 = 29,
  q6 = 64,
  q8_128 = 65,
};

// How a group's scale s is kept, and its minimum m, where it has one: a number is s q - m.
enum class Scales : int32_t {
  none,           // plain numbers
  half,           // s: an f16
  half_minimum,   // s and -m: an f16 each
  exponent,       // s = 2^(e - 128): a byte e
  super,          // s = d times an i8: an f16 d for a superblock
  super_minimum,  // s = d times a u8, m = e times another: f16 d and e for a superblock
  super_nibbles,  // the same with both in one byte, the scale in its low four bits
};

struct WeightFormat {
  char const* name;
  int bits;       // of an integer in memory
  int64_t group;  // consecutive k of a column that share a scale
  Scales scales;
  int level_bits = 0;  // integers stand for levels of so many bits (levels_of); 0: for themselves
};

BUNTING_FORMAT_FUNCTION WeightFormat weight_format(Dtype dtype) {
  switch (dtype) {
    case Dtype::q8:
      return {"q8", 8, 32, Scales::half};
    case Dtype::q8_128:
      return {"q8_128", 8, 128, Scales::half};
    case Dtype::q6:
      return {"q6", 6, 128, Scales::half};
    case Dtype::q5_0:
      return {"q5_0", 5, 32, Scales::half};
    case Dtype::q5_1:
      return {"q5_1", 5, 32, Scales::half_minimum};
    case Dtype::q4:
      return {"q4", 4, 32, Scales::half};
    case Dtype::q4_1:
      return {"q4_1", 4, 32, Scales::half_minimum};
    case Dtype::q6_k:
      return {"q6_k", 6, 16, Scales::super};
    case Dtype::q5_k:
      return {"q5_k", 5, 32, Scales::super_minimum};
    case Dtype::q4_k:
      return {"q4_k", 4, 32, Scales::super_minimum};
    case Dtype::q3_k:
      return {"q3_k", 3, 16, Scales::super};
    case Dtype::q2_k:
      return {"q2_k", 2, 16, Scales::super_nibbles};
    case Dtype::iq4_nl:
      return {"iq4_nl", 4, 32, Scales::half, 8};
    case Dtype::iq4_xs:
      return {"iq4_xs", 4, 32, Scales::super, 8};
    case Dtype::mxfp4:
      return {"mxfp4", 4, 32, Scales::exponent, 5};
    case Dtype::f32:
      return {"f32", 0, 0, Scales::none};
    case Dtype::f16:
      return {"f16", 0, 0, Scales::none};
    case Dtype::bf16:
      return {"bf16", 0, 0, Scales::none};
  }
  return {"none", 0, 0, Scales::none};
}

// All with integers, for tests and benchmarks.
inline constexpr Dtype kGroupedFormats[] = {Dtype::q8,     Dtype::q8_128, Dtype::q6,   Dtype::q5_0,
                                            Dtype::q5_1,   Dtype::q4,     Dtype::q4_1, Dtype::q6_k,
                                            Dtype::q5_k,   Dtype::q4_k,   Dtype::q3_k, Dtype::q2_k,
                                            Dtype::iq4_nl, Dtype::iq4_xs, Dtype::mxfp4};

// Bits of a weight that is an integer, 0 for the others.
BUNTING_FORMAT_FUNCTION int integer_bits(Dtype dtype) {
  return weight_format(dtype).bits;
}
BUNTING_FORMAT_FUNCTION bool is_grouped(Dtype dtype) {
  return integer_bits(dtype) != 0;
}
// Whether groups share an f16 scale in superblocks: GGUF's K types, and IQ4_XS.
BUNTING_FORMAT_FUNCTION bool is_super(Dtype dtype) {
  return weight_format(dtype).scales >= Scales::super;
}
BUNTING_FORMAT_FUNCTION bool has_levels(Dtype dtype) {
  return weight_format(dtype).level_bits != 0;
}
// Whether each group has a minimum that is taken away from its numbers. Integers are unsigned then.
BUNTING_FORMAT_FUNCTION bool has_minimum(Dtype dtype) {
  Scales const scales = weight_format(dtype).scales;
  return scales == Scales::half_minimum || scales == Scales::super_minimum || scales == Scales::super_nibbles;
}
// Whether plain numbers are rounded to it: the others are only kept as a file stores them.
BUNTING_FORMAT_FUNCTION bool is_rounded_to(Dtype dtype) {
  return weight_format(dtype).scales == Scales::half && !has_levels(dtype);
}

// Bits of the unsigned number that is multiplied, and what it is more than the signed one.
BUNTING_FORMAT_FUNCTION int product_bits(Dtype dtype) {
  return has_levels(dtype) ? weight_format(dtype).level_bits : integer_bits(dtype);
}
BUNTING_FORMAT_FUNCTION int product_zero(Dtype dtype) {
  return has_minimum(dtype) ? 0 : 1 << (product_bits(dtype) - 1);
}
// What is added to an integer in memory; of levels the index is kept.
BUNTING_FORMAT_FUNCTION int integer_zero(Dtype dtype) {
  return has_levels(dtype) ? 0 : product_zero(dtype);
}

// What the integers of a format with levels stand for.
struct Levels {
  int8_t of[16];
};
BUNTING_FORMAT_FUNCTION Levels levels_of(Dtype dtype) {
  // Twice the numbers of e2m1, the four-bit float of the OCP Microscaling Formats specification 1.0.
  if (dtype == Dtype::mxfp4) return {{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};
  // The format's own, denser about zero.
  return {{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};
}

// The largest magnitude of an integer times the integer scale of its group, of a format with superblocks.
BUNTING_FORMAT_FUNCTION int largest_scaled(Dtype dtype) {
  int const integer = has_minimum(dtype)  ? (1 << integer_bits(dtype)) - 1
                      : has_levels(dtype) ? 127
                                          : 1 << (integer_bits(dtype) - 1);
  Scales const scales = weight_format(dtype).scales;
  int const scale = scales == Scales::super_minimum   ? 63
                    : scales == Scales::super_nibbles ? 15
                    : dtype == Dtype::q6_k            ? 128
                                                      : 32;
  return integer * scale;
}

inline constexpr int kPanel = 16;      // columns of a packed panel
inline constexpr int kGroup = 32;      // consecutive k of integers that lie together, and of inputs
inline constexpr int kGroupMax = 128;  // that share a scale at most
inline constexpr int kSuper = 256;     // k of a superblock

// Consecutive k of a weight's column that share a scale.
BUNTING_FORMAT_FUNCTION int64_t weight_group(Dtype dtype) {
  return weight_format(dtype).group;
}
// Consecutive k that share a scale in the rows that such weights are multiplied with. Beside the error of
// weights of 6 bits or fewer, that of larger groups does not show.
BUNTING_FORMAT_FUNCTION int64_t input_group(Dtype dtype) {
  return dtype == Dtype::q8 ? kGroup : kGroupMax;
}

// A panel's block: scales of its groups in rows of a value for each of the 16 columns, f16 rows before byte
// rows, padded to whole lines; then its integers (integer_layout.h). Its k:
BUNTING_FORMAT_FUNCTION int64_t block_length(Dtype dtype) {
  return is_super(dtype)                                   ? kSuper
         : weight_format(dtype).scales == Scales::exponent ? 4 * weight_group(dtype)
                                                           : 2 * weight_group(dtype);
}
// Of each group, or of each superblock: f16 values and bytes of a column.
BUNTING_FORMAT_FUNCTION int scale_halves(Dtype dtype) {
  switch (weight_format(dtype).scales) {
    case Scales::none:
    case Scales::exponent:
      return 0;
    case Scales::half:
    case Scales::super:
      return 1;
    default:
      return 2;
  }
}
BUNTING_FORMAT_FUNCTION int scale_bytes(Dtype dtype) {
  int const groups = is_super(dtype) ? int(kSuper / weight_group(dtype)) : 1;
  switch (weight_format(dtype).scales) {
    case Scales::exponent:
    case Scales::super:
    case Scales::super_nibbles:
      return groups;
    case Scales::super_minimum:
      return 2 * groups;
    default:
      return 0;
  }
}
// Groups that have such values of their own in a block.
BUNTING_FORMAT_FUNCTION int64_t block_scales(Dtype dtype) {
  return is_super(dtype) ? 1 : block_length(dtype) / weight_group(dtype);
}
BUNTING_FORMAT_FUNCTION int64_t block_header_bytes(Dtype dtype) {
  int64_t const bytes = block_scales(dtype) * (scale_halves(dtype) * 2 + scale_bytes(dtype)) * kPanel;
  return (bytes + 63) / 64 * 64;
}

}  // namespace bunting
