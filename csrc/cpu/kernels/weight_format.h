// weight_format.h - properties derived from a format's row (block_formats.h): its kind, and the layout of a
// panel's block.
#pragma once

#include <iterator>
#include <utility>

#include "cpu/kernels/block_formats.h"

// Always inlined, even if the format is known only at run time: files of kernels share no function
// (CMakeLists.txt).
#define BUNTING_FORMAT_FUNCTION inline __attribute__((always_inline)) constexpr

namespace bunting {

// Index of each type number's row; the first row for numbers without one.
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

// Bits of an integer weight, 0 for plain numbers.
BUNTING_FORMAT_FUNCTION int integer_bits(Dtype dtype) {
  return weight_format(dtype).bits;
}
BUNTING_FORMAT_FUNCTION bool is_grouped(Dtype dtype) {
  return integer_bits(dtype) != 0;
}
// True if groups share an f16 scale in superblocks: GGUF's K types, and IQ4_XS.
BUNTING_FORMAT_FUNCTION bool is_super(Dtype dtype) {
  return weight_format(dtype).scales >= Scales::super;
}
BUNTING_FORMAT_FUNCTION bool has_levels(Dtype dtype) {
  return weight_format(dtype).levels.bits != 0;
}
// True if each group has a minimum, which is subtracted from its numbers. Its integers are then unsigned.
BUNTING_FORMAT_FUNCTION bool has_minimum(Dtype dtype) {
  Scales const scales = weight_format(dtype).scales;
  return scales == Scales::half_minimum || scales == Scales::super_minimum || scales == Scales::super_nibbles;
}
// True if integer minimums of two groups at a time multiply sums of inputs.
BUNTING_FORMAT_FUNCTION bool has_paired_minimums(Dtype dtype) {
  return is_super(dtype) && has_minimum(dtype);
}
// True if plain numbers may be rounded to this format; files must already store the others.
BUNTING_FORMAT_FUNCTION bool is_rounded_to(Dtype dtype) {
  return weight_format(dtype).scales == Scales::half && !has_levels(dtype);
}

// Bits of the unsigned number in products, and its excess over the signed number.
BUNTING_FORMAT_FUNCTION int product_bits(Dtype dtype) {
  return has_levels(dtype) ? weight_format(dtype).levels.bits : integer_bits(dtype);
}
BUNTING_FORMAT_FUNCTION int product_zero(Dtype dtype) {
  return has_minimum(dtype) ? 0 : 1 << (product_bits(dtype) - 1);
}
// Offset added to an integer in memory; formats with levels store the index.
BUNTING_FORMAT_FUNCTION int integer_zero(Dtype dtype) {
  return has_levels(dtype) ? 0 : product_zero(dtype);
}

// Largest magnitude of an integer times the integer scale of its group, for formats with superblocks.
BUNTING_FORMAT_FUNCTION int largest_scaled(Dtype dtype) {
  int const integer = has_minimum(dtype)  ? (1 << integer_bits(dtype)) - 1
                      : has_levels(dtype) ? 127
                                          : 1 << (integer_bits(dtype) - 1);
  return integer * weight_format(dtype).scale_most;
}

inline constexpr int kPanel = 16;      // columns of a packed panel
inline constexpr int kGroup = 32;      // consecutive k of integers that lie together, and of an InputGroup
inline constexpr int kGroupMax = 128;  // most k that share a scale
inline constexpr int kSuper = 256;     // k of a superblock

// Consecutive k of a column of weights that share a scale.
BUNTING_FORMAT_FUNCTION int64_t weight_group(Dtype dtype) {
  return weight_format(dtype).group;
}
// Consecutive k of the inputs of such weights that share a scale. With weights of 6 bits or fewer, larger
// groups add no visible error.
BUNTING_FORMAT_FUNCTION int64_t input_group(Dtype dtype) {
  return integer_bits(dtype) == 8 && weight_format(dtype).group == kGroup ? kGroup : kGroupMax;
}

// Length in k of a panel's block. A block begins with scales of its groups, in rows of one value per column
// (16). Rows of f16 come before rows of bytes, padded to whole lines. Its integers follow (integer_layout.h).
BUNTING_FORMAT_FUNCTION int64_t block_length(Dtype dtype) {
  return is_super(dtype)                                   ? kSuper
         : weight_format(dtype).scales == Scales::exponent ? 4 * weight_group(dtype)
                                                           : 2 * weight_group(dtype);
}
// Numbers of f16 values and of bytes per column, for each group or each superblock.
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
// Number of sets of these values per block.
BUNTING_FORMAT_FUNCTION int64_t block_scales(Dtype dtype) {
  return is_super(dtype) ? 1 : block_length(dtype) / weight_group(dtype);
}
BUNTING_FORMAT_FUNCTION int64_t block_header_bytes(Dtype dtype) {
  int64_t const bytes = block_scales(dtype) * (scale_halves(dtype) * 2 + scale_bytes(dtype)) * kPanel;
  return (bytes + 63) / 64 * 64;
}

// Table of all formats with integers.
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

// Calls function.operator()<W>() for a format with integers that is known only at run time.
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
