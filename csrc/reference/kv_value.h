// kv_value.h - access to single elements of pages and of bf16 arrays, for reference loops and tests.
#pragma once

#include <cmath>
#include <cstring>

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

// Returns an element of int8 keys or values times its token's scale.
inline float get_scaled(char const* part, size_t index, int32_t slot) {
  return reinterpret_cast<float const*>(part)[slot] *
         float(reinterpret_cast<int8_t const*>(part + kKvScaleBytes)[index]);
}

inline float key(KvLayer const& kv, int32_t page, int32_t head, int32_t slot, int32_t d) {
  size_t const index = k_index(kv.dtype, slot, d);
  char const* const part = k_of(kv, page, head);
  return kv.dtype == Dtype::q8 ? get_scaled(part, index, slot) : get(kv.dtype, part, index);
}
inline float value(KvLayer const& kv, int32_t page, int32_t head, int32_t slot, int32_t d) {
  size_t const index = v_index(kv.dtype, kv.head_size, slot, d);
  char const* const part = v_of(kv, page, head);
  return kv.dtype == Dtype::q8 ? get_scaled(part, index, slot) : get(kv.dtype, part, index);
}

}  // namespace bunting::reference
