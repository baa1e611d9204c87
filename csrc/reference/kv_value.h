// kv_value.h - access to single elements of pages and of bf16 arrays, for reference loops and tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/kernels/kv_layout.h"

namespace bunting::reference {

inline float widen(bf16 x) {
  uint32_t const bits = uint32_t(x) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

// Rounds to nearest even. Does not handle NaN.
inline bf16 narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bf16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float get(Dtype dtype, char const* elements, size_t index) {
  return dtype == Dtype::f32 ? reinterpret_cast<float const*>(elements)[index]
                             : widen(reinterpret_cast<bf16 const*>(elements)[index]);
}

inline void put(Dtype dtype, char* elements, size_t index, float value) {
  if (dtype == Dtype::f32)
    reinterpret_cast<float*>(elements)[index] = value;
  else
    reinterpret_cast<bf16*>(elements)[index] = narrow(value);
}

// Rotates a head's numbers like cpu/kernels/hadamard.h, by the matrix of signs.
inline void rotate_evenly(double* x, int64_t d) {
  int64_t const run = d & -d;
  for (int64_t first = 0; first < d; first += run) {
    std::vector<double> const from(x + first, x + first + run);
    for (int64_t i = 0; i < run; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < run; ++j)
        sum += std::popcount(uint64_t(i & j)) % 2 ? -from[size_t(j)] : from[size_t(j)];
      x[first + i] = sum / std::sqrt(double(run));
    }
  }
}

// Returns an element of int8 keys or values times its token's scale; of four bits, from the byte's low or
// high ones.
inline float get_scaled(Dtype dtype, char const* part, size_t index, int32_t slot, bool is_high) {
  char const byte = part[kKvScaleBytes + index];
  int const nibble = uint8_t(byte) >> (is_high ? 4 : 0) & 15;
  int const q = dtype == Dtype::q4 ? 2 * nibble - 15 : int8_t(byte);
  return reinterpret_cast<float const*>(part)[slot] * float(q);
}
// Returns the dimension whose byte has dimension d.
inline int32_t stored_dimension(KvLayer const& kv, int32_t d) {
  return kv.dtype == Dtype::q4 ? d % (kv.head_size / 2) : d;
}

inline float key(KvLayer const& kv, int32_t page, int32_t head, int32_t slot, int32_t d) {
  int32_t const at = stored_dimension(kv, d);
  size_t const index = k_index(kv.dtype, slot, at);
  char const* const part = k_of(kv, page, head);
  return has_kv_scales(kv.dtype) ? get_scaled(kv.dtype, part, index, slot, at != d)
                                 : get(kv.dtype, part, index);
}
inline float value(KvLayer const& kv, int32_t page, int32_t head, int32_t slot, int32_t d) {
  if (kv.latent > 0) return key(kv, page, head, slot, d);
  int32_t const at = stored_dimension(kv, d);
  size_t const index = v_index(kv.dtype, kv.head_size, slot, at);
  char const* const part = v_of(kv, page, head);
  return has_kv_scales(kv.dtype) ? get_scaled(kv.dtype, part, index, slot, at != d)
                                 : get(kv.dtype, part, index);
}

}  // namespace bunting::reference
