// rope_rows.h - norm, rotation and storage of one head's numbers, for the kernels that append to pages.
#pragma once

#include <cmath>
#include <cstring>

#include "cpu/kernels/kv_layout.h"
#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Divides d numbers by their root mean square, and multiplies them by weights; null: by 1.
inline void norm_values(float* x, float const* w, int64_t d, float epsilon) {
  f32x16 squares = zero();
  for (int64_t i = 0; i < d; i += 16) {
    f32x16 const v = load(x + i);
    squares = fma(v, v, squares);
  }
  f32x16 const scale = set1(1.0f / std::sqrt(sum(squares) / float(d) + epsilon));
  for (int64_t i = 0; i < d; i += 16) store(x + i, load(x + i) * scale * (w ? load(w + i) : set1(1.0f)));
}

// Rotates the pairs x[i], x[i + half].
inline void rotate_head(float* x, float const* cos, float const* sin, int64_t half) {
  int64_t const whole = half / 8 * 8;
  for (int64_t i = whole; i < half; ++i) {
    float const a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
  for (int64_t i = 0; i < whole; i += 8) {
    float low[8], high[8];
    for (int j = 0; j < 8; ++j) {
      float const a = x[i + j], b = x[i + j + half];
      low[j] = a * cos[i + j] - b * sin[i + j];
      high[j] = b * cos[i + j] + a * sin[i + j];
    }
    std::memcpy(x + i, low, sizeof low);
    std::memcpy(x + i + half, high, sizeof high);
  }
}

// Writes one token's keys of a head, plain, into the keys of a page.
inline void append_keys(char* to, Dtype dtype, int32_t slot, float const* k, int32_t d) {
  if (dtype == Dtype::f32) {
    float* const keys = reinterpret_cast<float*>(to) + slot;
    for (int32_t i = 0; i < d; ++i) keys[int64_t(i) * kPageTokens] = k[i];
    return;
  }
  bf16* const keys = reinterpret_cast<bf16*>(to) + 2 * slot;
  for (int32_t i = 0; i < d; i += 16) {
    bf16 k16[16];
    store_bf16(k16, load(k + i));
    for (int32_t j = 0; j < 16; j += 2) std::memcpy(keys + (i + j) * kPageTokens, k16 + j, 2 * sizeof(bf16));
  }
}

}  // namespace bunting::BUNTING_ISA
