// attention_tile.h - the sizes of an attention tile, the same for every instruction set.
#pragma once

#include "kernels/kernels.h"

namespace bunting {

inline constexpr int kTileRows = 16;                            // (token, query head) pairs of one KV head
inline constexpr int kBlockPages = 4;                           // pages of keys walked at a time,
inline constexpr int kBlockTokens = kBlockPages * kPageTokens;  // from a multiple of this position on

// Floats of a tile's working memory: q, o, one page of values; scores, l, m, rescale (see TileScratch).
constexpr size_t tile_floats(int64_t head_size) {
  return size_t(head_size) * (2 * kTileRows + kPageTokens) + size_t(kTileRows) * (kBlockTokens + 16 + 2);
}

}  // namespace bunting
