// latent_append.cpp: steps between the projections and the attention of a latent layer (arXiv:2405.04434,
// section 2.1).
//
//   per head of q, [nope | rope]:  rope is rotated; both are multiplied by query_scale[position], if there is
//                                  one; nope goes to an operand, rope behind the latent's place in `absorbed`
//   per token:                     kv = [norm(latent) | rope rotated], appended as the keys of one head
//
//   norm and rotation as in rope_append.cpp
//
// Work:     token rows [begin, end); every row writes its own slot.
// Roofline: negligible beside the projection before it.
// Checked:  against reference::latent_append, |diff| <= 2e-6 of the largest value in f32, and one bf16 step
//           more where bf16 is stored.
#include "cpu/kernels/rope_rows.h"

namespace bunting::BUNTING_ISA {

static void append_queries(LatentAppend const& a, int64_t t, float const* cos, float const* sin) {
  int64_t const nope = a.nope_size, rotated = a.rotated, column = round_up(nope, kKAlign);
  f32x16 const scale = set1(a.query_scale ? a.query_scale[a.positions[t]] : 1.0f);
  bool const is_f32 = a.nope.dtype == Dtype::f32;
  for (int64_t head = 0; head < a.query_heads; ++head) {
    float const* const q = a.q + t * a.ldq + head * (nope + rotated);
    char* const to = a.nope.row(t) + head * column * a.nope.element_bytes();
    for (int64_t i = 0; i < column; i += 16) {
      f32x16 const x = i < nope ? load(q + i) * scale : zero();
      if (is_f32)
        store(reinterpret_cast<float*>(to) + i, x);
      else
        store_bf16(reinterpret_cast<bf16*>(to) + i, x);
    }
    float* const rope = a.absorbed + t * a.ldabsorbed + head * a.kv_layer.head_size + a.kv_layer.latent;
    std::memcpy(rope, q + nope, size_t(rotated) * sizeof(float));
    rotate_head(rope, cos, sin, rotated / 2);
    if (a.query_scale)
      for (int64_t i = 0; i < rotated; i += 16) store(rope + i, load(rope + i) * scale);
  }
}

void latent_append(LatentAppend const& a, int64_t begin, int64_t end) {
  KvLayer const& kv = a.kv_layer;
  int64_t const half = a.rotated / 2;
  for (int64_t t = begin; t < end; ++t) {
    float const *const cos = a.cos + t * half, *const sin = a.sin + t * half;
    append_queries(a, t, cos, sin);
    float* const key = a.kv + t * a.ldkv;
    norm_values(key, a.norm, kv.latent, a.norm_epsilon);
    rotate_head(key + kv.latent, cos, sin, half);
    append_keys(k_of(kv, a.token_pages[t], 0), kv.dtype, a.positions[t] % kPageTokens, key, kv.head_size);
  }
}

}  // namespace bunting::BUNTING_ISA
