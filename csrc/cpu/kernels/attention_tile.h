// attention_tile.h - sizes of an attention tile, the same for every instruction set, and its working memory.
#pragma once

#include "cpu/kernels/kernels.h"

namespace bunting {

inline constexpr int kTileRows = 32;                            // (token, query head) pairs of one KV head
inline constexpr int kBlockPages = 4;                           // pages of keys per block
inline constexpr int kBlockTokens = kBlockPages * kPageTokens;  // alignment of a block's first position
static_assert(kBlockTokens == kAttentionBlock);

// Working memory of a tile while it walks the keys, cut from a thread's scratch (64-byte aligned). Every part
// is a multiple of 64 bytes because D % 16 == 0.
struct AttentionTile {
  int64_t head_size, value_size;  // D, Dv <= D
  char* q;                        // queries in the order of the products, at most [D, rows] f32
  float* o;                       // [rows, Dv] unnormalised outputs of the segment
  float* scores;                  // [rows, 64] of the current block, then its probabilities
  bf16* p;                        // [rows, 64] probabilities for products with 16-bit inputs
  float* l;                       // [rows, 16] sums of exp(score - m) by token % 16
  float* m;                       // [rows] largest score so far
  float* rescale;                 // [rows] exp(old m - new m) of the current block
  float *q_scale, *p_scale;       // [rows] scales of queries, and of a block's probabilities, as integers
  float *o_before, *l_before, *m_before;  // o, l and m of all segments before
  int32_t *low, *high;                    // [rows] first and last position that the row's token sees
  char* tail;                             // one page of values of one head
  // Copies of the block's pages of one head: of int8 pages in bf16, keys, then values; of latents the values.
  bf16* widened;
  float* v_scale;  // [64] scales of the block's values, 0 beyond the last token

  AttentionTile(char* scratch, KvLayer const& kv)
      : head_size(kv.head_size), value_size(kv.value_size()), q(scratch) {
    o = reinterpret_cast<float*>(q) + kTileRows * head_size;
    scores = o + kTileRows * head_size;
    p = reinterpret_cast<bf16*>(scores + kTileRows * kBlockTokens);
    l = reinterpret_cast<float*>(p + kTileRows * kBlockTokens);
    m = l + kTileRows * 16;
    rescale = m + kTileRows;
    q_scale = rescale + kTileRows;
    p_scale = q_scale + kTileRows;
    o_before = p_scale + kTileRows;
    l_before = o_before + kTileRows * head_size;
    m_before = l_before + kTileRows * 16;
    low = reinterpret_cast<int32_t*>(m_before + kTileRows);
    high = low + kTileRows;
    tail = reinterpret_cast<char*>(high + kTileRows);
    widened = reinterpret_cast<bf16*>(tail + kPageTokens * head_size * 4);
    v_scale = reinterpret_cast<float*>(widened + 2 * kBlockTokens * head_size);
  }
  static constexpr size_t bytes(int64_t head_size) {
    return size_t(kTileRows) * (size_t(head_size) * 12 + kBlockTokens * 6 + 2 * 16 * 4 + 28) +
           size_t(kPageTokens) * size_t(head_size) * 4 + size_t(kBlockTokens) * (size_t(head_size) * 4 + 4);
  }
};

// Block of a tile: the tile walks pages [first, end) of the block's four.
struct AttentionBlock {
  char const* k[kBlockPages];
  char const* v[kBlockPages];
  // Pages of the following block, to prefetch: pages may lie anywhere in memory.
  char const* next_k[kBlockPages];
  char const* next_v[kBlockPages];
  int first, end;
  float const* k_scale[kBlockPages];  // [16] per page; for int8 only
};

}  // namespace bunting
