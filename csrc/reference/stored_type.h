// stored_type.h - one number of a stored row, read by itself: the table of stored_type.cpp, formula by
// formula.
#pragma once

#include <cstdint>

namespace bunting::reference {

// Number `index` of a row that begins at `row` and is stored as `type` (engine.h); rounded to f32 after every
// operation of the formula, as f32 arithmetic does.
float stored_value(int32_t type, void const* row, int64_t index);

// The scale, or the minimum, of a group of Q4_K or Q5_K, from its 12 bytes of them.
int six_bits(uint8_t const* packed, int64_t group, bool minimum);

}  // namespace bunting::reference
