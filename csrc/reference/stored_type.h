// stored_type.h - one number of a stored row, read by itself, as the format's row of
// cpu/kernels/block_formats.h says.
#pragma once

#include <cstdint>

namespace bunting::reference {

// A number in blocks and what its block keeps for it: d scale q - e minimum. d and e are bits of f16. Where a
// block has none of them, scale and minimum are 1 and e is 0. Of a power of two scale is the exponent.
struct StoredNumber {
  uint16_t d = 0, e = 0;
  int scale = 1, minimum = 1;
  int index = 0;  // as it lies in memory
  int q = 0;      // what it stands for
};
StoredNumber stored_number(int32_t type, void const* row, int64_t index);

// Number `index` of a row that begins at `row` and is stored as `type` (engine.h); rounded to f32 after every
// operation of the formula, as f32 arithmetic does.
float stored_value(int32_t type, void const* row, int64_t index);

}  // namespace bunting::reference
