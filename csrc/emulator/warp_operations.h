// warp_operations.h - semantics of gpu.h's shuffles and matrix instructions, for a thread of a running grid
// (grid.h). None of them orders memory.
#pragma once

#include <cstdint>

namespace bunting::emulator {

uint32_t shuffle(uint32_t x, int32_t source);
uint32_t ballot(bool yes);
// `row` has the 16 bytes that this lane read; out[m] receives this lane's word of matrix m.
void load_matrices(uint32_t const (&row)[4], bool transposed, uint32_t (&out)[4]);
void multiply_add_bf16(float (&d)[4], uint32_t const (&a)[4], uint32_t b0, uint32_t b1);

}  // namespace bunting::emulator
