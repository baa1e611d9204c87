// kv_layout.cpp - the size of a page, the copy of one layer's page (copy-on-write of a partial last page),
// and the size of attention's scratch.
//
//   copy_page   slots [0, count) of `to` become those of `from`; the other slots of `to` are unspecified
//               afterwards
//
// Work:     all keys of a head (every cache line has all 16 tokens), and the needed token pairs of values.
// Checked:  tests/test_kv_layout.cpp, element by element.
#include "cpu/kernels/kv_layout.h"

#include <cstring>

#include "cpu/kernels/attention_tile.h"

namespace bunting {

size_t kv_page_bytes(Dtype dtype, int32_t kv_heads, int32_t head_size) {
  return size_t(kv_heads) * 2 * kv_part_bytes(dtype, head_size);
}

size_t latent_page_bytes(Dtype dtype, int32_t head_size) {
  return kv_part_bytes(dtype, head_size);
}

void copy_page(KvLayer const& kv, int32_t from, int32_t to, int32_t count) {
  if (from == to || count == 0) return;
  size_t const part = kv_part_bytes(kv.dtype, kv.head_size);
  if (kv.latent > 0) {
    std::memcpy(k_of(kv, to, 0), k_of(kv, from, 0), part);
    return;
  }
  size_t const elements = has_kv_scales(kv.dtype) ? part - kKvScaleBytes : part;
  size_t const value_bytes = part - elements + elements / (kPageTokens / 2) * size_t((count + 1) / 2);
  for (int32_t head = 0; head < kv.kv_heads; ++head) {
    // Values follow the keys of their head, so one copy covers both.
    std::memcpy(k_of(kv, to, head), k_of(kv, from, head), part + value_bytes);
  }
}

size_t attention_scratch_bytes(int32_t head_size) {
  return size_t(round_up(int64_t(AttentionTile::bytes(head_size)), 64));
}

}  // namespace bunting
