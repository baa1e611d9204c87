// stored_type.h - reads single numbers of a stored row, following the format's row of
// cpu/kernels/block_formats.h.
#pragma once

#include <cstdint>

namespace bunting::reference {

// A number in a block, and its block's values for it: d scale q - e minimum. d and e are f16 bits. If a block
// lacks them, scale and minimum are 1 and e is 0. For a power of two `scale` is the exponent.
struct StoredNumber {
  uint16_t d = 0, e = 0;
  int scale = 1, minimum = 1;
  int index = 0;  // the stored bits
  int q = 0;      // the value of the bits
};
StoredNumber stored_number(int32_t type, void const* row, int64_t index);

// Returns number `index` of a row that begins at `row` and is stored as `type` (engine.h). It rounds to f32
// after every operation of the formula, like f32 arithmetic.
float stored_value(int32_t type, void const* row, int64_t index);

}  // namespace bunting::reference
