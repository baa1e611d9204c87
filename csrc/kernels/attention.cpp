// attention.cpp: softmax(scale * q k^T) v over paged keys and values, for prompt chunks and decodes alike.
//
//   q    [T, ldq] f32, normed and rotated          kv   pages of one layer (kv_layout.h), bf16, f32 or int8
//   out  [T, ldo] f32 if the pages are, else bf16
//   A token at position p sees positions max(0, p - W + 1) .. p, with W = sliding_window (all up to p if 0).
//
// Online softmax (arXiv:2205.14135, arXiv:1805.02867): a tile of up to 32 query rows, which are (token, query
// head) pairs of one KV head, walks the keys in blocks of 64 aligned to absolute positions and keeps for
// every row the largest score m, the sum l of exp(score - m) in 16 lanes (token % 16), and the unnormalised
// output o. The two products are vector code (attention_vector.h) or tiles (attention_amx.h); those that
// multiply pairs of bf16 take queries and probabilities rounded to bf16, while l sums the probabilities as
// they were.
//
// Sequences that share pages are rows of one tile as far as the pages are shared (cf. arXiv:2402.05099); then
// each goes on alone from its state (o, l, m). A walk that is interrupted after a block is the same walk.
// So is one whose segments (kernels.h) are walked side by side: o, l and m begin anew with every segment
// whoever walks it, and what the segments came to is added up in rising order,
// o = o * exp(m - m') + o2 * exp(m2 - m') with m' = max(m, m2), and l likewise (arXiv:2311.01282).
//
// Why a row's bits do not depend on its neighbours: every score is one chain over d, every output element one
// chain over the tokens of its blocks in rising order, and both are the same chain in every register tile.
// Tokens a row does not see have probability +0, which changes neither l nor o but for the sign of a zero,
// which the last addition of +0 removes; a block without visible tokens leaves m alone and multiplies by
// exp(0) = 1. So it does not matter which blocks, pages and tokens its tile walks beyond its own. (This holds
// for finite values; a NaN in a sequence may reach the rows beside.)
//
// Keys and values in int8 become bf16 pages of the tile's own, which rounds nothing; a token's scale
// multiplies its scores, and its probabilities after they are counted.
//
// Slots that are not written yet may hold any bits: their scores are replaced, and a last, partly filled page
// of values is read from a copy with zeros.
//
// Work:     items [begin, end) of attention_plan.h; a tile reads every page once.
// Roofline: decodes are bound by memory, 4*D*context bytes (bf16) per KV head; prompts by arithmetic, 4*D
//           flops per query head and visible token plus an exp.
// Checked:  against reference::attention in double, |diff| <= 1e-5 * largest |v| in f32 (scores are sums of D
//           terms in f32, exp is within 2 ulp), 2^-8 more where probabilities are rounded, one bf16 rounding
//           more for bf16 outputs; bitwise over chunkings, splits and sharing.
#include <cfloat>

#include "kernels/attention_amx.h"
#include "kernels/attention_vector.h"
#include "kernels/kv_layout.h"

namespace bunting::BUNTING_ISA {
namespace {

// A copy of a page's values with zeros in the slots from `count` on.
char const* values_until(AttentionTile const& t, Dtype dtype, char const* values, int32_t count) {
  size_t const bytes = kv_part_bytes(dtype, int32_t(t.head_size)), row = bytes / kPageTokens;
  if (dtype == Dtype::f32) {
    std::memcpy(t.tail, values, size_t(count) * row);
  } else {  // pairs of tokens
    std::memcpy(t.tail, values, size_t(count + 1) / 2 * 2 * row);
    bf16* const last = reinterpret_cast<bf16*>(t.tail) + (count / 2) * 2 * t.head_size;
    if (count % 2) {
      for (int64_t d = 0; d < t.head_size; ++d) last[2 * d + 1] = 0;
    }
    count += count % 2;
  }
  std::memset(t.tail + size_t(count) * row, 0, bytes - size_t(count) * row);
  return t.tail;
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

// A page part of int8 as bf16 in the same order.
void widen(bf16* to, char const* from, int64_t count) {
  int8_t const* const bytes = reinterpret_cast<int8_t const*>(from);
  for (int64_t i = 0; i < count; i += 16) store_bf16(to + i, load_int8(bytes + i));
}

// The block's pages of int8 as bf16 ones. `tokens` of the last page are there.
void widen_block(AttentionTile const& t, AttentionBlock& block, int32_t tokens) {
  int64_t const part = kPageTokens * t.head_size;
  for (int n = block.first; n < block.end; ++n) {
    bf16* const keys = t.widened + n * part;
    bf16* const values = t.widened + (kBlockPages + n) * part;
    widen(keys, block.k[n] + kKvScaleBytes, part);
    widen(values, block.v[n] + kKvScaleBytes, part);
    block.k_scale[n] = reinterpret_cast<float const*>(block.k[n]);
    float const* const scale = reinterpret_cast<float const*>(block.v[n]);
    int32_t const count = n + 1 == block.end ? tokens : kPageTokens;
    store(t.v_scale + n * kPageTokens, load_first(scale, count));
    block.k[n] = reinterpret_cast<char const*>(keys);
    block.v[n] = reinterpret_cast<char const*>(values);
  }
}

// Scores times `scale` become probabilities relative to the row's new maximum; l follows, and o will by
// `rescale`.
template <bool Half, bool Scaled>
BUNTING_INLINE void soften(AttentionTile const& t, int row, AttentionBlock const& block, float scale,
                           int32_t first_token, int32_t low, int32_t high) {
  float* const scores = t.scores + row * kBlockTokens;
  f32x16 const by = set1(scale);
  f32x16 largest = set1(-FLT_MAX);
  for (int page = block.first; page < block.end; ++page) {
    int32_t const first = first_token + page * kPageTokens;
    f32x16 s = load(scores + page * kPageTokens) * by;
    if constexpr (Scaled) s = s * load(block.k_scale[page]);
    if (first < low || first + kPageTokens - 1 > high) s = mask(s, first, low, high);
    store(scores + page * kPageTokens, s);
    largest = max(s, largest);
  }
  float const old_m = t.m[row], in_block = max(largest), new_m = in_block > old_m ? in_block : old_m;
  f32x16 const shift = set1(new_m);
  f32x16 total = zero();
  for (int page = block.first; page < block.end; ++page) {
    f32x16 p = exp(load(scores + page * kPageTokens) - shift);
    total = total + p;
    if constexpr (Scaled) p = p * load(t.v_scale + page * kPageTokens);
    if constexpr (Half)
      store_bf16(t.p + row * kBlockTokens + page * kPageTokens, p);
    else
      store(scores + page * kPageTokens, p);
  }
  f32x16 const factor = exp(set1(old_m - new_m));
  store(t.l + row * 16, load(t.l + row * 16) * factor + total);
  t.m[row] = new_m;
  store_first(t.rescale + row, factor, 1);
}

struct RowPlace {
  int64_t chunk, token;  // of the step
  int64_t head;          // query head
  int32_t position;      // absolute
};

RowPlace place(Attention const& a, AttentionItem const& item, int32_t row) {
  int32_t const group = a.query_heads / a.kv.kv_heads, index = row / group;
  int32_t const chunk = item.members ? item.members[index] : item.chunk, within = item.members ? 0 : index;
  return {chunk, a.chunks[chunk].first_token + within, int64_t(item.kv_head) * group + row % group,
          a.chunks[chunk].start + within};
}

float* state_of(Attention const& a, RowPlace const& at) {
  return a.states + (at.chunk * a.query_heads + at.head) * attention_state_floats(a.kv.head_size);
}

void copy_floats(float* to, float const* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) store(to + i, load(from + i));
}

float* part_of(Attention const& a, AttentionItem const& item, int part, int32_t row) {
  int64_t const rows = item.row_end - item.row_begin;
  return a.parts + (item.part + part * rows + row - item.row_begin) * attention_sums_floats(a.kv.head_size);
}

// The sums of a row of a tile: of the segment that is walked, or of all before.
struct Sums {
  float *o, *l, *m;
};

Sums sums_of(AttentionTile const& t, int row) {
  return {t.o + row * t.head_size, t.l + row * 16, t.m + row};
}

Sums sums_before(AttentionTile const& t, int row) {
  return {t.o_before + row * t.head_size, t.l_before + row * 16, t.m_before + row};
}

void clear(AttentionTile const& t, Sums const& to) {
  for (int64_t d = 0; d < t.head_size; d += 16) store(to.o + d, zero());
  store(to.l, zero());
  *to.m = -FLT_MAX;
}

void read(AttentionTile const& t, Sums const& to, float const* from) {
  copy_floats(to.o, from, t.head_size);
  copy_floats(to.l, from + t.head_size, 16);
  *to.m = from[t.head_size + 16];
}

void write(AttentionTile const& t, Sums const& from, float* to) {
  copy_floats(to, from.o, t.head_size);
  copy_floats(to + t.head_size, from.l, 16);
  store(to + t.head_size + 16, set1(*from.m));
}

// Adds the segment to those before, and begins the next one. A segment without visible tokens has no sums and
// the least m: it changes nothing, as the first one is not changed by what is before it.
void close_segment(AttentionTile const& t, int rows) {
  for (int r = 0; r < rows; ++r) {
    Sums const segment = sums_of(t, r), before = sums_before(t, r);
    float const m = *segment.m > *before.m ? *segment.m : *before.m;
    f32x16 const of_segment = exp(set1(*segment.m - m)), of_before = exp(set1(*before.m - m));
    auto const add = [&](float* to, float const* from) {
      store(to, load(to) * of_before + load(from) * of_segment);
    };
    for (int64_t d = 0; d < t.head_size; d += 16) add(before.o + d, segment.o + d);
    add(before.l, segment.l);
    *before.m = m;
    clear(t, segment);
  }
}

void finish_row(Attention const& a, AttentionTile const& t, Sums const& sums, int64_t at) {
  f32x16 const scale = set1(1.0f / sum(load(sums.l)));
  for (int64_t d = 0; d < t.head_size; d += 16) {
    f32x16 const y = load(sums.o + d) * scale + zero();
    if (a.kv.dtype == Dtype::f32)
      store(static_cast<float*>(a.out) + at + d, y);
    else
      store_bf16(static_cast<bf16*>(a.out) + at + d, y);
  }
}

// Where [position, ...) is closed off from what is before it: at `position`, or at the next segment's begin.
int32_t first_close(int32_t position) {
  return position == 0 ? attention_segment_end(0) : attention_segment_end(position - 1);
}

bool begins_segment(int32_t position) {
  return position == 0 || first_close(position) == position;
}

// The item's rows from row_begin on as their states left them, or with nothing summed up.
void begin_rows(Attention const& a, AttentionItem const& item, AttentionTile const& t, int32_t row_begin,
                int rows) {
  bool const goes_on =
      item.kv_begin > 0 && (item.part < 0 || item.parts > 0 || !begins_segment(item.kv_begin));
  for (int r = 0; r < rows; ++r) {
    if (goes_on) {
      float const* const state = state_of(a, place(a, item, row_begin + r));
      read(t, sums_of(t, r), state);
      read(t, sums_before(t, r), state + attention_sums_floats(t.head_size));
    } else {
      clear(t, sums_of(t, r));
      clear(t, sums_before(t, r));
    }
  }
}

// Leaves the rows' sums where the item says.
void end_rows(Attention const& a, AttentionItem const& item, AttentionTile const& t, int32_t row_begin,
              int rows) {
  bool const is_part = item.part >= 0 && item.parts == 0, is_last = item.kv_end == kAttentionEnd;
  if (!is_part && is_last) close_segment(t, rows);
  for (int r = 0; r < rows; ++r) {
    if (is_part) {
      write(t, sums_of(t, r), part_of(a, item, 0, row_begin + r));
      continue;
    }
    RowPlace const at = place(a, item, row_begin + r);
    if (is_last) {
      finish_row(a, t, sums_before(t, r), at.token * a.ldo + at.head * t.head_size);
    } else {
      float* const state = state_of(a, at);
      write(t, sums_of(t, r), state);
      write(t, sums_before(t, r), state + attention_sums_floats(t.head_size));
    }
  }
}

// An item with parts, of rows from row_begin on.
void add_up(Attention const& a, AttentionItem const& item, int32_t row_begin, int rows) {
  AttentionTile const t(a.scratch, a.kv.head_size);
  begin_rows(a, item, t, row_begin, rows);
  for (int part = 0; part < item.parts; ++part) {
    // The first part may have gone on from the segment that is in the state.
    if (part > 0 || begins_segment(item.kv_begin)) close_segment(t, rows);
    for (int r = 0; r < rows; ++r) read(t, sums_of(t, r), part_of(a, item, part, row_begin + r));
  }
  end_rows(a, item, t, row_begin, rows);
}

AttentionBlock block_at(Attention const& a, AttentionItem const& item, int32_t base, int32_t begin,
                        int32_t end) {
  int32_t const* const pages = a.chunks[item.chunk].pages;
  int32_t const base_page = base / kPageTokens, last_page = (end - 1) / kPageTokens;
  AttentionBlock block;
  block.first = base < begin ? (begin - base) / kPageTokens : 0;
  block.end = last_page - base_page < kBlockPages ? last_page - base_page + 1 : kBlockPages;
  for (int n = block.first; n < block.end; ++n) {
    block.k[n] = k_of(a.kv, pages[base_page + n], item.kv_head);
    block.v[n] = v_of(a.kv, pages[base_page + n], item.kv_head);
    bool const has_next = base_page + n + kBlockPages <= last_page;
    block.next_k[n] = has_next ? k_of(a.kv, pages[base_page + n + kBlockPages], item.kv_head) : block.k[n];
    block.next_v[n] = has_next ? v_of(a.kv, pages[base_page + n + kBlockPages], item.kv_head) : block.v[n];
  }
  return block;
}

// The item's rows [row_begin, row_end), at most kTileRows.
template <class Products, bool Scaled>
void walk(Attention const& a, AttentionItem const& item, Products& products, int32_t row_begin,
          int32_t row_end) {
  AttentionTile const t(a.scratch, a.kv.head_size);
  int const rows = row_end - row_begin;
  int32_t const window = a.sliding_window > 0 ? a.sliding_window : INT32_MAX;
  auto const low = [&](int32_t high) { return high < window ? 0 : high - window + 1; };
  int32_t begin = INT32_MAX, end = 0;
  for (int r = 0; r < rows; ++r) {
    RowPlace const at = place(a, item, row_begin + r);
    Products::put_query(t, r, a.q + at.token * a.ldq + at.head * t.head_size);
    t.high[r] = at.position;
    begin = low(at.position) < begin ? low(at.position) : begin;
    end = at.position + 1 > end ? at.position + 1 : end;
  }
  if (begin < item.kv_begin) begin = item.kv_begin;
  if (end > item.kv_end) end = item.kv_end;
  begin_rows(a, item, t, row_begin, rows);

  int32_t base = begin / kBlockTokens * kBlockTokens;
  for (int32_t close_at = first_close(base); base < end; base += kBlockTokens) {
    if (base == close_at) {
      close_segment(t, rows);
      close_at = attention_segment_end(base);
    }
    AttentionBlock block = block_at(a, item, base, begin, end);
    int32_t const tail = base + kBlockTokens >= end ? end % kPageTokens : 0;
    if (Scaled)
      widen_block(t, block, tail != 0 ? tail : kPageTokens);
    else if (tail != 0)
      block.v[block.end - 1] = values_until(t, a.kv.dtype, block.v[block.end - 1], tail);
    products.score(t, block, rows);
    for (int r = 0; r < rows; ++r)
      soften<Products::kHalf, Scaled>(t, r, block, a.scale, base, low(t.high[r]), t.high[r]);
    products.weigh(t, block, rows);
  }

  end_rows(a, item, t, row_begin, rows);
}

template <class Products, bool Scaled>
void walk_items(Attention const& a, int64_t begin, int64_t end) {
  Products products;
  for (int64_t i = begin; i < end; ++i) {
    AttentionItem const& item = a.items[i];
    for (int32_t row = item.row_begin; row < item.row_end; row += kTileRows) {
      int32_t const row_end = row + kTileRows < item.row_end ? row + kTileRows : item.row_end;
      if (item.parts > 0)
        add_up(a, item, row, row_end - row);
      else
        walk<Products, Scaled>(a, item, products, row, row_end);
    }
  }
}

#if defined(__AMX_BF16__) || defined(BUNTING_AMX_EMULATED)
using Bf16Products = TileProducts;
#elif defined(__AVX512BF16__)
using Bf16Products = VectorProducts<PairBf16>;
#else
using Bf16Products = VectorProducts<WidenedBf16>;
#endif

}  // namespace

void attention(Attention const& a, int64_t item_begin, int64_t item_end) {
  if (a.kv.dtype == Dtype::f32)
    walk_items<VectorProducts<PlainF32>, false>(a, item_begin, item_end);
  else if (a.kv.dtype == Dtype::q8)
    walk_items<Bf16Products, true>(a, item_begin, item_end);
  else
    walk_items<Bf16Products, false>(a, item_begin, item_end);
}

}  // namespace bunting::BUNTING_ISA
