// weight_format.h - what follows from a format's row (block_formats.h): its kind, and the layout of a panel's
// block in memory.
#pragma once

#include <iterator>
#include <utility>

#include "cpu/kernels/block_formats.h"

// Inlined also where a format is known at run time alone: files of kernels share no function
// (CMakeLists.txt).
#define BUNTING_FORMAT_FUNCTION inline __attribute__((always_inline)) constexpr

namespace bunting {

// Each number's row; of a number without one, the first.
struct FormatIndex {
  uint8_t of[256] = {};
  constexpr FormatIndex() {
    for (size_t i = 0; i < std::size(kFormats); ++i) of[size_t(kFormats[i].type)] = uint8_t(i);
  }
};
constexpr FormatIndex kFormatIndex;

BUNTING_FORMAT_FUNCTION WeightFormat const& weight_format(Dtype dtype) {
  return kFormats[kFormatIndex.of[size_t(dtype)]];
}

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
  return weight_format(dtype).levels.bits != 0;
}
// Whether each group has a minimum that is taken away from its numbers. Integers are unsigned then.
BUNTING_FORMAT_FUNCTION bool has_minimum(Dtype dtype) {
  Scales const scales = weight_format(dtype).scales;
  return scales == Scales::half_minimum || scales == Scales::super_minimum || scales == Scales::super_nibbles;
}
// Whether minimums of two groups at a time are multiplied with sums of inputs, as integers.
BUNTING_FORMAT_FUNCTION bool has_paired_minimums(Dtype dtype) {
  return is_super(dtype) && has_minimum(dtype);
}
// Whether plain numbers are rounded to it: the others are only kept as a file stores them.
BUNTING_FORMAT_FUNCTION bool is_rounded_to(Dtype dtype) {
  return weight_format(dtype).scales == Scales::half && !has_levels(dtype);
}

// Bits of the unsigned number that is multiplied, and what it is more than the signed one.
BUNTING_FORMAT_FUNCTION int product_bits(Dtype dtype) {
  return has_levels(dtype) ? weight_format(dtype).levels.bits : integer_bits(dtype);
}
BUNTING_FORMAT_FUNCTION int product_zero(Dtype dtype) {
  return has_minimum(dtype) ? 0 : 1 << (product_bits(dtype) - 1);
}
// What is added to an integer in memory; of levels the index is kept.
BUNTING_FORMAT_FUNCTION int integer_zero(Dtype dtype) {
  return has_levels(dtype) ? 0 : product_zero(dtype);
}

// The largest magnitude of an integer times the integer scale of its group, of a format with superblocks.
BUNTING_FORMAT_FUNCTION int largest_scaled(Dtype dtype) {
  int const integer = has_minimum(dtype)  ? (1 << integer_bits(dtype)) - 1
                      : has_levels(dtype) ? 127
                                          : 1 << (integer_bits(dtype) - 1);
  return integer * weight_format(dtype).scale_most;
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
  return integer_bits(dtype) == 8 && weight_format(dtype).group == kGroup ? kGroup : kGroupMax;
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

// All with integers.
struct GroupedFormats {
  static constexpr size_t kCount = [] {
    size_t count = 0;
    for (WeightFormat const& format : kFormats) count += format.bits != 0;
    return count;
  }();
  Dtype of[kCount] = {};
  constexpr GroupedFormats() {
    size_t next = 0;
    for (WeightFormat const& format : kFormats)
      if (format.bits != 0) of[next++] = format.type;
  }
  constexpr Dtype const* begin() const { return of; }
  constexpr Dtype const* end() const { return of + kCount; }
};
inline constexpr GroupedFormats kGroupedFormats;

// function.operator()<W>() of a format with integers that is known at run time.
template <class Function>
inline __attribute__((always_inline)) void with_grouped_format(Dtype dtype, Function const& function) {
  auto const try_all = [&]<size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
    (void)((dtype == kGroupedFormats.of[I] &&
            (function.template operator()<kGroupedFormats.of[I]>(), true)) ||
           ...);
  };
  try_all(std::make_index_sequence<GroupedFormats::kCount>{});
}

}  // namespace bunting
