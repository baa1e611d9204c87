// hadamard.h - rotation of a head's numbers before they are kept in four bits.
//
//   x = H x / sqrt(b)   for each b consecutive numbers: b is the largest power of two that divides D
//
// H is Hadamard's matrix of +1 and -1. The rotation is its own inverse and keeps dot products, so scores of
// rotated queries and keys are those of the original ones. It spreads a large number over its run.
#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

BUNTING_INLINE void rotate_evenly(float* x, int64_t d) {
  int64_t const run = d & -d;
  for (int64_t first = 0; first < d; first += run) {
    float* const of = x + first;
    for (int64_t apart = 1; apart < 16; apart *= 2)
      for (int64_t i = 0; i < run; i += 2 * apart)
        for (int64_t j = i; j < i + apart; ++j) {
          float const a = of[j], b = of[j + apart];
          of[j] = a + b;
          of[j + apart] = a - b;
        }
    for (int64_t apart = 16; apart < run; apart *= 2)
      for (int64_t i = 0; i < run; i += 2 * apart)
        for (int64_t j = i; j < i + apart; j += 16) {
          f32x16 const a = load(of + j), b = load(of + j + apart);
          store(of + j, a + b);
          store(of + j + apart, a - b);
        }
  }
  f32x16 const scale = set1(1.0f / std::sqrt(float(run)));
  for (int64_t i = 0; i < d; i += 16) store(x + i, load(x + i) * scale);
}

}  // namespace bunting::BUNTING_ISA
