// rope_append.cpp: steps after a token's QKV projection: norm and rotate its q and k, and store k and v in
// its page.
//
//   per head of q and k, or over all heads together, if there is a norm:  x = x / sqrt(mean(x^2) + eps) * w
//   then, for the first R of each head, with c, s = cos, sin of the token:
//   x[i], x[i + R/2] = x[i]*c[i] - x[i + R/2]*s[i], x[i + R/2]*c[i] + x[i]*s[i]
//
//   (the norm of heads may come after the rotation instead)
//
//   then q = q * query_scale[position], if there is one; v, which may be k before all this, may have the norm
//   of heads with w = 1
//
//   qkv  [T, ldqkv] f32: q (Hq*D, rewritten in place), k (Hk*D, overwritten), v (Hk*D, overwritten)
//   kv   slot position % 16 of page token_pages[t]: k and v as bf16 (rounded to nearest even), f32, int8 or
//        four bits; for these, q, k and v are rotated last (hadamard.h)
//
// Work:     token rows [begin, end); every row writes its own slots.
// Roofline: negligible beside the projection before it; the keys of a token touch D/2 (bf16) or D (f32)
//           cache lines.
// Checked:  against reference::rope_append, |diff| <= 2e-6 of the head's largest value in f32 (two products,
//           one sum and the norm), and one bf16 step more if the page is bf16.
#include <cmath>

#include "cpu/kernels/hadamard.h"
#include "cpu/kernels/kv_layout.h"
#include "cpu/kernels/rope_rows.h"
#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {

// Returns the scale that maps -most .. most onto the values; 0 for zeros, NaN if a value is not finite.
static float scale_of(float const* x, int64_t d, float most) {
  f32x16 largest = zero(), sum_of = zero();
  for (int64_t i = 0; i < d; i += 16) {
    f32x16 const v = load(x + i);
    largest = max(max(v, zero() - v), largest);
    sum_of = sum_of + v * zero();
  }
  return max(largest) * (1.0f / most) + sum(sum_of);
}

// Writes one token's keys or values of a head into a part of a page.
static void append_bytes(char* part, int32_t slot, bool is_key, float const* x, int32_t d) {
  float const scale = scale_of(x, d, 127), inverse = scale > 0 ? 1.0f / scale : 0.0f;
  reinterpret_cast<float*>(part)[slot] = scale;
  int8_t* const bytes = reinterpret_cast<int8_t*>(part + kKvScaleBytes);
  for (int32_t i = 0; i < d; ++i) {
    float const rounded = std::nearbyint(x[i] * inverse), upper = rounded < 127 ? rounded : 127;  // NaN: 127
    size_t const at = is_key ? k_index(Dtype::q8, slot, i) : v_index(Dtype::q8, d, slot, i);
    bytes[at] = int8_t(upper > -127 ? upper : -127);
  }
}

// Likewise in four bits: the odd integers from -15 to 15.
static void append_nibbles(char* part, int32_t slot, bool is_key, float const* x, int32_t d) {
  float const scale = scale_of(x, d, 15), inverse = scale > 0 ? 0.5f / scale : 0.0f;
  reinterpret_cast<float*>(part)[slot] = scale;
  auto const nibble = [&](int32_t i) {
    float const rounded = std::nearbyint(x[i] * inverse + 7.5f), upper = rounded < 15 ? rounded : 15;
    return uint8_t(upper > 0 ? upper : 0);
  };
  uint8_t* const bytes = reinterpret_cast<uint8_t*>(part + kKvScaleBytes);
  for (int32_t i = 0; i < d / 2; ++i)
    bytes[is_key ? k_index(Dtype::q4, slot, i) : v_index(Dtype::q4, d, slot, i)] =
        uint8_t(nibble(i) | nibble(i + d / 2) << 4);
}

static void append_head(KvLayer const& kv, int32_t page, int32_t slot, int32_t head, float const* k,
                        float const* v) {
  int32_t const d = kv.head_size;
  char* const to_k = k_of(kv, page, head);
  char* const to_v = v_of(kv, page, head);
  if (kv.dtype == Dtype::f32) {
    append_keys(to_k, kv.dtype, slot, k, d);
    std::memcpy(reinterpret_cast<float*>(to_v) + int64_t(slot) * d, v, size_t(d) * sizeof(float));
    return;
  }
  if (kv.dtype == Dtype::q8) {
    append_bytes(to_k, slot, true, k, d);
    append_bytes(to_v, slot, false, v, d);
    return;
  }
  if (kv.dtype == Dtype::q4) {
    append_nibbles(to_k, slot, true, k, d);
    append_nibbles(to_v, slot, false, v, d);
    return;
  }
  append_keys(to_k, kv.dtype, slot, k, d);
  bf16* const values = reinterpret_cast<bf16*>(to_v) + int64_t(slot / 2) * 2 * d + slot % 2;
  for (int32_t i = 0; i < d; i += 16) {
    bf16 v16[16];
    store_bf16(v16, load(v + i));
    for (int32_t j = 0; j < 16; ++j) values[(i + j) * 2] = v16[j];
  }
}

void rope_append(RopeAppend const& a, int64_t begin, int64_t end) {
  int64_t const d = a.kv.head_size, half = a.rotated / 2;
  bool const has_head_norms = a.has_unit_norms || (a.q_norm && !a.has_wide_norms);
  for (int64_t t = begin; t < end; ++t) {
    float* const q = a.qkv + t * a.ldqkv;
    float* const k = q + a.query_heads * d;
    float* const v = k + a.kv.kv_heads * d;
    int32_t const kv_heads = a.kv.pages ? a.kv.kv_heads : 0;
    if (a.values_are_keys) std::memcpy(v, k, size_t(kv_heads * d) * sizeof(float));
    int32_t const position = a.positions[t];
    float const* const cos = half > 0 ? a.cos + t * half : nullptr;
    float const* const sin = half > 0 ? a.sin + t * half : nullptr;
    if (a.has_wide_norms) {
      norm_values(q, a.q_norm, a.query_heads * d, a.norm_epsilon);
      if (kv_heads > 0) norm_values(k, a.k_norm, kv_heads * d, a.norm_epsilon);
    }
    for (int32_t head = 0; head < a.query_heads; ++head) {
      if (has_head_norms && !a.norms_after) norm_values(q + head * d, a.q_norm, d, a.norm_epsilon);
      rotate_head(q + head * d, cos, sin, half);
      if (has_head_norms && a.norms_after) norm_values(q + head * d, a.q_norm, d, a.norm_epsilon);
      if (a.query_scale)
        for (int64_t i = head * d; i < head * d + d; i += 16)
          store(q + i, load(q + i) * set1(a.query_scale[position]));
      if (a.kv.dtype == Dtype::q4) rotate_evenly(q + head * d, d);
    }
    for (int32_t head = 0; head < kv_heads; ++head) {
      if (has_head_norms && !a.norms_after) norm_values(k + head * d, a.k_norm, d, a.norm_epsilon);
      if (a.has_value_norm) norm_values(v + head * d, nullptr, d, a.norm_epsilon);
      rotate_head(k + head * d, cos, sin, half);
      if (has_head_norms && a.norms_after) norm_values(k + head * d, a.k_norm, d, a.norm_epsilon);
      if (a.kv.dtype == Dtype::q4) {
        rotate_evenly(k + head * d, d);
        rotate_evenly(v + head * d, d);
      }
      append_head(a.kv, a.token_pages[t], position % kPageTokens, head, k + head * d, v + head * d);
    }
  }
}

}  // namespace bunting::BUNTING_ISA
