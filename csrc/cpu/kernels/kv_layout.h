// kv_layout.h - layout of keys and values inside one layer's KV page, the same for every instruction set.
//
// A page holds Tp = 16 tokens of Hk heads, head after head; a head holds its keys, then its values:
//
//   bf16   K [D/2][Tp][2]    pairs of neighbouring dimensions   V [Tp/2][D][2]   pairs of neighbouring tokens
//   f32    K [D][Tp]                                            V [Tp][D]
//   q8     as bf16, in bytes, after [Tp] f32 scales             likewise: x = token's scale * byte
//   q4     K [D/4][Tp][2] pairs of nibbles after such scales    V [Tp/2][D/2][2] pairs of nibbles
//
// In q4 a byte has dimension d in its low bits and d + D/2 in its high bits, where q8 has d in a byte. So
// both are one token's. x = token's scale * (2 * nibble - 15); keys and values are rotated (hadamard.h).
//
// One load of K has one dimension (or pair) of all 16 tokens, so one broadcast query value gives 16 scores at
// once. One load of V has a run of dimensions of one token (or pair), so one broadcast probability multiplies
// them into the output. VDPBF16PS and AMX tiles need the bf16 pairs: over dimensions for scores, over tokens
// for outputs. Splitting a pair into two f32 vectors costs one shift and one mask.
//
// A page of latents holds K alone, in bf16 or f32; attention makes the V of a block in a thread's scratch.
//
// Every part is a multiple of 64 bytes because D % 16 == 0. So all parts of an aligned page are aligned.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

// Bytes of an element, or of two with q4.
constexpr size_t dtype_bytes(Dtype dtype) {
  return dtype == Dtype::f32 ? 4 : dtype == Dtype::bf16 ? 2 : 1;
}
constexpr bool has_kv_scales(Dtype dtype) {
  return dtype == Dtype::q8 || dtype == Dtype::q4;
}

// Bytes of the scales of q8 and q4, before the keys and before the values.
inline constexpr size_t kKvScaleBytes = kPageTokens * sizeof(float);

// Bytes of the keys, and also of the values, of one head in one page.
constexpr size_t kv_part_bytes(Dtype dtype, int32_t head_size) {
  return size_t(kPageTokens) * size_t(head_size) * dtype_bytes(dtype) / (dtype == Dtype::q4 ? 2 : 1) +
         (has_kv_scales(dtype) ? kKvScaleBytes : 0);
}

// Indices of dimension d of slot t (0 .. Tp-1) among the elements of K and V of one head, not counting
// scales; with q4, of dimensions d and d + D/2, d < D/2.
constexpr size_t k_index(Dtype dtype, int32_t t, int32_t d) {
  return dtype == Dtype::f32 ? size_t(d) * kPageTokens + size_t(t)
                             : size_t(d / 2) * (2 * kPageTokens) + size_t(t) * 2 + size_t(d % 2);
}
constexpr size_t v_index(Dtype dtype, int32_t head_size, int32_t t, int32_t d) {
  size_t const width = dtype == Dtype::q4 ? size_t(head_size) / 2 : size_t(head_size);
  return dtype == Dtype::f32 ? size_t(t) * width + size_t(d)
                             : size_t(t / 2) * (2 * width) + size_t(d) * 2 + size_t(t % 2);
}

inline char* k_of(KvLayer const& kv, int32_t page, int32_t head) {
  return kv.pages + size_t(page) * kv.page_bytes + size_t(head) * 2 * kv_part_bytes(kv.dtype, kv.head_size);
}
inline char* v_of(KvLayer const& kv, int32_t page, int32_t head) {
  return k_of(kv, page, head) + kv_part_bytes(kv.dtype, kv.head_size);
}

}  // namespace bunting
