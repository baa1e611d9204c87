// attention.cpp: softmax(scale * q k^T) v over paged keys and values, for prompt chunks and decodes alike.
//
//   q    [T, ldq] f32, normed and rotated          kv   pages of one layer (kv_layout.h), bf16 or f32
//   out  [T, ldo] in kv.dtype
//   A token at position p sees positions max(0, p - W + 1) .. p, with W = sliding_window (all up to p if 0).
//
// Online softmax (arXiv:2205.14135, arXiv:1805.02867): a tile of up to 16 query rows, which are (token, query
// head) pairs of one KV head, walks the keys in blocks of 64 aligned to absolute positions and keeps for
// every row the largest score m, the sum l of exp(score - m) in 16 lanes (token % 16), and the unnormalised
// output o.
//
// Why a row's bits do not depend on its neighbours: every score is one chain over d, every output element one
// chain over the tokens of its blocks in rising order, and both are the same chain in every register tile.
// Tokens a row does not see have probability +0, which changes neither l nor o but for the sign of a zero,
// which the last addition of +0 removes; a block without visible tokens leaves m alone and multiplies by
// exp(0) = 1. So it does not matter which blocks, pages and tokens its tile walks beyond its own. (This holds
// for finite values; a NaN in a sequence may reach the rows beside.)
//
// Slots that are not written yet may hold any bits: their scores are replaced, and a last, partly filled page
// of values is read from a copy with zeros.
//
// Work:     items [begin, end), each a range of a chunk's tokens for one KV head; a tile reads every page
//           once.
// Roofline: decodes are bound by memory, 4*D*context bytes (bf16) per KV head; prompts by arithmetic, 4*D
//           flops per query head and visible token plus an exp.
// Checked:  against reference::attention in double, |diff| <= 1e-5 * largest |v| in f32 (scores are sums of D
//           terms in f32, exp is within 2 ulp), one bf16 rounding more for bf16 outputs; bitwise over
//           chunkings and splits.
#include <cfloat>

#include "kernels/attention_tile.h"
#include "kernels/kv_layout.h"
#include "kernels/simd.h"

namespace bunting::BUNTING_ISA {
namespace {

// How many rows, and how many f32x16 per row, the register file holds as sums beside the operands.
constexpr int kRowsMax = kLanes == 16 ? 8 : kLanes == 8 ? 4 : 2;
constexpr int kSumsMax = kLanes == 16 ? 16 : kLanes == 8 ? 4 : 2;
constexpr int sums_per_row(int rows) {
  return kSumsMax / rows >= 4 ? 4 : kSumsMax / rows >= 2 ? 2 : 1;
}

// What a tile keeps while it walks the keys, cut from a thread's scratch (64-byte aligned).
struct TileScratch {
  float* q;        // [D, rows] scaled queries, so that the rows of a dimension lie together
  float* o;        // [rows, D] unnormalised outputs
  float* scores;   // [rows, 64] of the current block, then its probabilities
  float* l;        // [rows, 16] sums of exp(score - m) by token % 16
  float* m;        // [rows] largest score so far
  float* rescale;  // [rows] exp(old m - new m) of the current block
  char* tail;      // one page of values of one head

  TileScratch(char* scratch, int64_t head_size) {
    q = reinterpret_cast<float*>(scratch);
    o = q + kTileRows * head_size;
    scores = o + kTileRows * head_size;
    l = scores + kTileRows * kBlockTokens;
    m = l + kTileRows * 16;
    rescale = m + kTileRows;
    tail = reinterpret_cast<char*>(rescale + kTileRows);
    this->head_size = head_size;
  }

  // A copy of a page's values with zeros in the slots from `count` on.
  char const* values_until(Dtype dtype, char const* values, int32_t count) const {
    size_t const bytes = kv_part_bytes(dtype, int32_t(head_size)), row = bytes / kPageTokens;
    if (dtype == Dtype::f32) {
      std::memcpy(tail, values, size_t(count) * row);
    } else {  // pairs of tokens
      std::memcpy(tail, values, size_t(count + 1) / 2 * 2 * row);
      bf16* const last = reinterpret_cast<bf16*>(tail) + (count / 2) * 2 * head_size;
      if (count % 2) {
        for (int64_t d = 0; d < head_size; ++d) last[2 * d + 1] = 0;
      }
      count += count % 2;
    }
    std::memset(tail + size_t(count) * row, 0, bytes - size_t(count) * row);
    return tail;
  }

 private:
  int64_t head_size;
};

// Two neighbouring dimensions of a page's 16 keys, and two neighbouring tokens of 16 dimensions of its
// values.
struct PagesBf16 {
  static BUNTING_INLINE f32x16_pair keys(char const* k, int64_t pair) {
    return load_bf16_pairs(reinterpret_cast<bf16 const*>(k) + pair * 2 * kPageTokens);
  }
  static BUNTING_INLINE f32x16_pair values(char const* v, int64_t pair, int64_t d, int64_t head_size) {
    return load_bf16_pairs(reinterpret_cast<bf16 const*>(v) + (pair * head_size + d) * 2);
  }
  // 16 pairs, from this one on.
  static BUNTING_INLINE void prefetch(char const* elements, int64_t pair) {
    __builtin_prefetch(elements + pair * 4);
  }
};
struct PagesF32 {
  static BUNTING_INLINE f32x16_pair keys(char const* k, int64_t pair) {
    float const* const at = reinterpret_cast<float const*>(k) + pair * 2 * kPageTokens;
    return {load(at), load(at + kPageTokens)};
  }
  static BUNTING_INLINE f32x16_pair values(char const* v, int64_t pair, int64_t d, int64_t head_size) {
    float const* const at = reinterpret_cast<float const*>(v) + pair * 2 * head_size + d;
    return {load(at), load(at + head_size)};
  }
  static BUNTING_INLINE void prefetch(char const* elements, int64_t pair) {
    __builtin_prefetch(elements + pair * 8);
    __builtin_prefetch(elements + pair * 8 + 64);
  }
};

// One block of a tile: pages [first, end) of the block's four are walked.
struct Block {
  char const* k[kBlockPages];
  char const* v[kBlockPages];
  char const*
      next_k[kBlockPages];  // pages of the block after it, to be fetched meanwhile: pages lie anywhere
  char const* next_v[kBlockPages];
  int first, end;
};

// scores[r][16n ..] = q_r . k of the 16 tokens of page n, for R rows and N pages.
template <class Pages, int R, int N>
BUNTING_INLINE void score(float* scores, float const* q, Block const& block, int page, int64_t head_size) {
  f32x16 sums[R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) sums[r][n] = zero();
  for (int64_t pair = 0; pair < head_size / 2; ++pair) {
    float const* const even = q + pair * 2 * kTileRows;
    float const* const odd = even + kTileRows;
    for (int n = 0; n < N; ++n) {
      f32x16_pair const k = Pages::keys(block.k[page + n], pair);
      Pages::prefetch(block.next_k[page + n], pair * kPageTokens);
      for (int r = 0; r < R; ++r) {
        sums[r][n] = fma(set1(even[r]), k.even, sums[r][n]);
        sums[r][n] = fma(set1(odd[r]), k.odd, sums[r][n]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) store(scores + r * kBlockTokens + (page + n) * kPageTokens, sums[r][n]);
}

// o[r][d ..] = o[r][d ..] * rescale[r] + sum over the block's tokens of p[r][t] * v[t][d ..], R rows and N
// times 16 d.
template <class Pages, int R, int N>
BUNTING_INLINE void weigh(float* o, float const* p, float const* rescale, Block const& block, int64_t d,
                          int64_t head_size) {
  f32x16 sums[R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) sums[r][n] = load(o + r * head_size + d + n * 16) * set1(rescale[r]);
  for (int page = block.first; page < block.end; ++page) {
    for (int64_t pair = 0; pair < kPageTokens / 2; ++pair) {
      float const* const at = p + page * kPageTokens + pair * 2;
      for (int n = 0; n < N; ++n) {
        f32x16_pair const v = Pages::values(block.v[page], pair, d + n * 16, head_size);
        Pages::prefetch(block.next_v[page], pair * head_size + d + n * 16);
        for (int r = 0; r < R; ++r) {
          sums[r][n] = fma(set1(at[r * kBlockTokens]), v.even, sums[r][n]);
          sums[r][n] = fma(set1(at[r * kBlockTokens + 1]), v.odd, sums[r][n]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) store(o + r * head_size + d + n * 16, sums[r][n]);
}

// Rows in groups of R, the rest in one smaller group.
template <class Pages, int R>
void score_rows(float* scores, float const* q, Block const& block, int rows, int64_t head_size) {
  for (; rows >= R; rows -= R, q += R, scores += R * kBlockTokens) {
    constexpr int N = sums_per_row(R);
    int page = block.first;
    for (; page + N <= block.end; page += N) score<Pages, R, N>(scores, q, block, page, head_size);
    for (; page < block.end; ++page) score<Pages, R, 1>(scores, q, block, page, head_size);
  }
  if constexpr (R > 1) {
    if (rows > 0) score_rows<Pages, R - 1>(scores, q, block, rows, head_size);
  }
}

template <class Pages, int R>
void weigh_rows(float* o, float const* p, float const* rescale, Block const& block, int rows,
                int64_t head_size) {
  for (; rows >= R; rows -= R, o += R * head_size, p += R * kBlockTokens, rescale += R) {
    constexpr int N = sums_per_row(R);
    int64_t d = 0;
    for (; d + N * 16 <= head_size; d += N * 16) weigh<Pages, R, N>(o, p, rescale, block, d, head_size);
    for (; d < head_size; d += 16) weigh<Pages, R, 1>(o, p, rescale, block, d, head_size);
  }
  if constexpr (R > 1) {
    if (rows > 0) weigh_rows<Pages, R - 1>(o, p, rescale, block, rows, head_size);
  }
}

// -inf for the lanes of 16 tokens from position `first` on that lie outside [low, high].
BUNTING_INLINE f32x16 mask(f32x16 scores, int32_t first, int32_t low, int32_t high) {
  static constexpr int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int i = 0; i < kRegisters; ++i) {
    vi token;
    std::memcpy(&token, lanes + i * kLanes, sizeof token);
    token += first;
    scores.r[i] = (token >= low) & (token <= high) ? scores.r[i] : -__builtin_inff() - vf{};
  }
  return scores;
}

// Scores become probabilities relative to the row's new maximum; l follows, and o will by `rescale`.
BUNTING_INLINE void soften(float* scores, float* m, float* l, float* rescale, Block const& block,
                           int32_t first_token, int32_t low, int32_t high) {
  f32x16 largest = set1(-FLT_MAX);
  for (int page = block.first; page < block.end; ++page) {
    float* const at = scores + page * kPageTokens;
    int32_t const first = first_token + page * kPageTokens;
    f32x16 s = load(at);
    if (first < low || first + kPageTokens - 1 > high) {
      s = mask(s, first, low, high);
      store(at, s);
    }
    largest = max(s, largest);
  }
  float const old_m = *m, in_block = max(largest), new_m = in_block > old_m ? in_block : old_m;
  f32x16 const shift = set1(new_m);
  f32x16 total = zero();
  for (int page = block.first; page < block.end; ++page) {
    f32x16 const p = exp(load(scores + page * kPageTokens) - shift);
    store(scores + page * kPageTokens, p);
    total = total + p;
  }
  f32x16 const factor = exp(set1(old_m - new_m));
  store(l, load(l) * factor + total);
  *m = new_m;
  store_first(rescale, factor, 1);
}

// The chunk's rows [begin, end) of one KV head's (token, query head) pairs, at most kTileRows.
template <class Pages>
void attend(Attention const& a, ChunkView const& chunk, int32_t kv_head, int64_t begin, int64_t end) {
  int64_t const d = a.kv.head_size, group = a.query_heads / a.kv.kv_heads;
  int const rows = int(end - begin);
  TileScratch const t(a.scratch, d);
  for (int r = 0; r < rows; ++r) {
    int64_t const token = (begin + r) / group, head = kv_head * group + (begin + r) % group;
    float const* const q = a.q + (chunk.first_token + token) * a.ldq + head * d;
    for (int64_t i = 0; i < d; ++i) t.q[i * kTileRows + r] = q[i] * a.scale;
    for (int64_t i = 0; i < d; i += 16) store(t.o + r * d + i, zero());
    store(t.l + r * 16, zero());
    t.m[r] = -FLT_MAX;
  }
  int32_t const window = a.sliding_window > 0 ? a.sliding_window : INT32_MAX;
  auto const high = [&](int64_t row) { return chunk.start + int32_t(row / group); };
  auto const low = [&](int64_t row) { return high(row) < window ? 0 : high(row) - window + 1; };
  int32_t const visible_begin = low(begin), visible_end = high(end - 1) + 1;
  int32_t const last_page = (visible_end - 1) / kPageTokens;

  for (int32_t base = visible_begin / kBlockTokens * kBlockTokens; base < visible_end; base += kBlockTokens) {
    Block block;
    int32_t const base_page = base / kPageTokens;
    block.first = base < visible_begin ? (visible_begin - base) / kPageTokens : 0;
    block.end = last_page - base_page < kBlockPages ? last_page - base_page + 1 : kBlockPages;
    for (int n = block.first; n < block.end; ++n) {
      block.k[n] = k_of(a.kv, chunk.pages[base_page + n], kv_head);
      block.v[n] = v_of(a.kv, chunk.pages[base_page + n], kv_head);
      bool const has_next = base_page + n + kBlockPages <= last_page;
      block.next_k[n] = has_next ? k_of(a.kv, chunk.pages[base_page + n + kBlockPages], kv_head) : block.k[n];
      block.next_v[n] = has_next ? v_of(a.kv, chunk.pages[base_page + n + kBlockPages], kv_head) : block.v[n];
    }
    if (base_page + block.end > last_page && visible_end % kPageTokens != 0)
      block.v[block.end - 1] = t.values_until(a.kv.dtype, block.v[block.end - 1], visible_end % kPageTokens);
    score_rows<Pages, kRowsMax>(t.scores, t.q, block, rows, d);
    for (int r = 0; r < rows; ++r)
      soften(t.scores + r * kBlockTokens, t.m + r, t.l + r * 16, t.rescale + r, block, base, low(begin + r),
             high(begin + r));
    weigh_rows<Pages, kRowsMax>(t.o, t.scores, t.rescale, block, rows, d);
  }

  for (int r = 0; r < rows; ++r) {
    int64_t const token = (begin + r) / group, head = kv_head * group + (begin + r) % group;
    int64_t const at = (chunk.first_token + token) * a.ldo + head * d;
    f32x16 const scale = set1(1.0f / sum(load(t.l + r * 16)));
    for (int64_t i = 0; i < d; i += 16) {
      f32x16 const y = load(t.o + r * d + i) * scale + zero();
      if (a.kv.dtype == Dtype::f32)
        store(static_cast<float*>(a.out) + at + i, y);
      else
        store_bf16(static_cast<bf16*>(a.out) + at + i, y);
    }
  }
}

}  // namespace

void attention(Attention const& a, int64_t item_begin, int64_t item_end) {
  int64_t const group = a.query_heads / a.kv.kv_heads;
  for (int64_t i = item_begin; i < item_end; ++i) {
    AttentionItem const& item = a.items[i];
    ChunkView const& chunk = a.chunks[item.chunk];
    int64_t const end = item.row_end * group;
    for (int64_t row = item.row_begin * group; row < end; row += kTileRows) {
      int64_t const tile_end = row + kTileRows < end ? row + kTileRows : end;
      if (a.kv.dtype == Dtype::f32)
        attend<PagesF32>(a, chunk, item.kv_head, row, tile_end);
      else
        attend<PagesBf16>(a, chunk, item.kv_head, row, tile_end);
    }
  }
}

}  // namespace bunting::BUNTING_ISA
