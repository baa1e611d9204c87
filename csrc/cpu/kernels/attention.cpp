// attention.cpp: softmax(scale * q k^T) v over paged keys and values, for prompt chunks and decodes alike.
//
//   q    [T, ldq] f32, normed and rotated          kv   pages of one layer (kv_layout.h), bf16, f32, int8
//        or int4
//   out  [T, ldo] f32 if the pages are, else bf16
//   A token at position p sees positions max(0, p - W + 1) .. p, with W = sliding_window (all up to p if 0).
//   Bidirectional, it also sees those behind it in its chunk, the next W - 1 of them.
//   With a cap C > 0 a score s becomes C * tanh(s / C). With sinks the softmax denominator of a row has one
//   more term, exp of its head's sink, which has no value.
//
// Algorithm: online softmax (arXiv:2205.14135, arXiv:1805.02867). A tile has up to 32 query rows, which are
// (token, query head) pairs of one KV head. It walks the keys in blocks of 64 aligned to absolute positions.
// Per row it keeps the largest score m, the unnormalised output o, and the sum l of exp(score - m) in 16
// lanes (token % 16). The two products are vector code (attention_vector.h) or AMX tiles (attention_amx.h).
// Products of bf16 pairs use queries and probabilities rounded to bf16, while l sums the unrounded
// probabilities.
//
// Sequences that share pages are rows of one tile for the shared part (cf. arXiv:2402.05099). Then each
// sequence continues alone from its state (o, l, m). Interrupting a walk after a block does not change its
// result. Neither does a parallel walk of its segments (kernels.h): each segment starts with empty o, l and
// m, on any thread, and the segments are added up in rising order (arXiv:2311.01282): o = o * exp(m - m') +
// o2 * exp(m2 - m') with m' = max(m, m2), and l likewise.
//
// A row's bits do not depend on its neighbours. Every score is one chain over d. Every output element is one
// chain over the tokens of its blocks in rising order. Both chains are the same in every register tile.
// Tokens that a row does not see have probability +0, which changes neither l nor o except for the sign of a
// zero. The last addition of +0 removes that sign. A block without visible tokens leaves m unchanged and
// multiplies by exp(0) = 1. So a row's bits do not depend on the other blocks, pages and tokens that its tile
// walks. (This holds for finite values: a NaN in a sequence may reach the rows beside it.)
//
// Keys and values in int8: a token's scale multiplies its scores, and multiplies its probabilities after l
// has counted them. With VPDPWSSD the products are integer products, with queries and probabilities rounded
// to 16 bits. Elsewhere the bytes are widened to floats, which rounds nothing: in registers, or into bf16
// pages of the tile's own when a tile has more rows than one pass multiplies. Keys and values in four bits
// become int8 pages of the tile's own first. Their rotation is undone in a row's output (hadamard.h).
//
// Pages of latents have keys alone, one row for all query heads. Their first numbers become value pages of
// the tile's own, once for the rows of a tile.
//
// Slots that are not written yet may hold any bits. Their scores are replaced, and the values of a partial
// last page are read from a copy padded with zeros.
//
// Work:     items [begin, end) of attention_plan.h; a tile reads every page once.
// Roofline: decodes are bound by memory, 4*D*context bytes (bf16) per KV head; prompts by arithmetic, 4*D
//           flops per query head and visible token plus an exp.
// Checked:  against reference::attention in double, |diff| <= 1e-5 * largest |v| in f32 (scores are sums of D
//           terms in f32, exp is within 2 ulp), 2^-8 more where probabilities are rounded, one bf16 rounding
//           more for bf16 outputs; bitwise over chunkings, splits and sharing.
#include <cfloat>

#include "cpu/kernels/attention_amx.h"
#include "cpu/kernels/attention_vector.h"
#include "cpu/kernels/hadamard.h"
#include "cpu/kernels/kv_layout.h"

namespace bunting::BUNTING_ISA {
namespace {

// Returns a copy of a page's values with zeros in the slots from `count` on.
char const* values_until(AttentionTile const& t, Dtype dtype, char const* values, int32_t count) {
  size_t const bytes = kv_part_bytes(dtype, int32_t(t.value_size)), row = bytes / kPageTokens;
  if (dtype == Dtype::f32) {
    std::memcpy(t.tail, values, size_t(count) * row);
  } else {  // pairs of tokens
    std::memcpy(t.tail, values, size_t(count + 1) / 2 * 2 * row);
    bf16* const last = reinterpret_cast<bf16*>(t.tail) + (count / 2) * 2 * t.value_size;
    if (count % 2) {
      for (int64_t d = 0; d < t.value_size; ++d) last[2 * d + 1] = 0;
    }
    count += count % 2;
  }
  std::memset(t.tail + size_t(count) * row, 0, bytes - size_t(count) * row);
  return t.tail;
}

// Sets scores of 16 tokens from position `first` to -inf if they lie outside [low, high].
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

// Finds the scales of an int8 block's keys, and copies those of its values. The last page has `tokens`
// tokens; the scales of the others become 0.
void find_scales(AttentionTile const& t, AttentionBlock& block, int32_t tokens) {
  for (int n = block.first; n < block.end; ++n) {
    block.k_scale[n] = reinterpret_cast<float const*>(block.k[n] - kKvScaleBytes);
    float const* const scale = reinterpret_cast<float const*>(block.v[n] - kKvScaleBytes);
    int32_t const count = n + 1 == block.end ? tokens : kPageTokens;
    store(t.v_scale + n * kPageTokens, load_first(scale, count));
    __builtin_prefetch(block.next_k[n] - kKvScaleBytes);
    __builtin_prefetch(block.next_v[n] - kKvScaleBytes);
  }
}

// Widens a page part from int8 to bf16 in the same order, while the next one is prefetched.
void widen(bf16* to, char const* from, char const* next, int64_t count) {
  int8_t const* const bytes = reinterpret_cast<int8_t const*>(from);
  for (int64_t i = 0; i < count; i += 16) {
    if (i % 64 == 0) __builtin_prefetch(next + i);
    store_exact_bf16(to + i, load_int8(bytes + i));
  }
}

// Turns bytes of two nibbles into int8: all low ones, then all high ones. `count` is a multiple of 16.
void unpack_run(char* to, char const* from, char const* next, int64_t count) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  for (int64_t i = 0; i < count; i += 16) {
    if (i % 64 == 0) __builtin_prefetch(next + i);
    Bytes packed;
    std::memcpy(&packed, from + i, sizeof packed);
    Bytes const low = (packed & 15) * 2 - 15, high = (packed >> 4) * 2 - 15;
    std::memcpy(to + i, &low, sizeof low);
    std::memcpy(to + count + i, &high, sizeof high);
  }
}

// Unpacks the keys or the values of a page from four bits to int8.
char const* unpack(char* to, char const* from, char const* next, int64_t head_size, bool are_keys) {
  int64_t const runs = are_keys ? 1 : kPageTokens / 2, run = kPageTokens / 2 * head_size / runs;
  for (int64_t i = 0; i < runs; ++i) unpack_run(to + 2 * i * run, from + i * run, next + i * run, run);
  return to;
}

// Unpacks the block's pages of four bits to int8 pages.
void unpack_block(AttentionTile const& t, AttentionBlock& block) {
  int64_t const part = kPageTokens * t.head_size;
  char* const pages = reinterpret_cast<char*>(t.widened);
  for (int n = block.first; n < block.end; ++n) {
    block.k[n] = unpack(pages + n * part, block.k[n], block.next_k[n], t.head_size, true);
    block.v[n] = unpack(pages + (kBlockPages + n) * part, block.v[n], block.next_v[n], t.head_size, false);
    block.next_k[n] = block.k[n];
    block.next_v[n] = block.v[n];
  }
}

// Widens the block's pages of int8, or of four bits, to bf16 pages.
void widen_block(AttentionTile const& t, AttentionBlock& block, bool is_packed) {
  int64_t const part = kPageTokens * t.head_size;
  auto const of = [&](char const* from, char const* next, bool are_keys) {
    return is_packed ? unpack(t.tail, from, next, t.head_size, are_keys) : from;
  };
  for (int n = block.first; n < block.end; ++n) {
    bf16* const keys = t.widened + n * part;
    bf16* const values = t.widened + (kBlockPages + n) * part;
    widen(keys, of(block.k[n], block.next_k[n], true), block.next_k[n], part);
    widen(values, of(block.v[n], block.next_v[n], false), block.next_v[n], part);
    block.k[n] = block.next_k[n] = reinterpret_cast<char const*>(keys);
    block.v[n] = block.next_v[n] = reinterpret_cast<char const*>(values);
  }
}

// Turns keys [Dv][16] into values [16][Dv].
void unfold_f32(float* to, float const* keys, int64_t value_size) {
  for (int64_t d = 0; d < value_size; d += 16)
    for (int64_t token = 0; token < kPageTokens; ++token)
      for (int64_t i = 0; i < 16; ++i) to[token * value_size + d + i] = keys[(d + i) * kPageTokens + token];
}

// Turns keys [Dv/2][16 tokens][2] into values [8][Dv][2 tokens].
void unfold_bf16(char* to, char const* keys, int64_t value_size) {
  for (int64_t pair = 0; pair < value_size / 2; ++pair) {
    uint32_t tokens[kPageTokens];
    std::memcpy(tokens, keys + pair * int64_t(sizeof tokens), sizeof tokens);
    for (int64_t token = 0; token < kPageTokens; token += 2) {
      uint32_t const a = tokens[token], b = tokens[token + 1];
      uint32_t const both[2] = {(a & 0xffff) | b << 16, a >> 16 | (b & 0xffff0000)};
      std::memcpy(to + (token * value_size + 4 * pair) * 2, both, sizeof both);
    }
  }
}

// Turns the scores of pages [first, end), times `scale`, into probabilities relative to the row's new
// maximum. Updates l, and sets `rescale` for o. `Masked`: the row does not see all of the tokens.
template <class Products, bool Scaled, bool Masked>
BUNTING_INLINE void soften_pages(AttentionTile const& t, int row, AttentionBlock const& block, int first,
                                 int end, float scale, float cap, int32_t first_token, int32_t low,
                                 int32_t high) {
  float const* const scores = t.scores + row * kBlockTokens;
  f32x16 const by = set1(scale);
  f32x16 largest = set1(-FLT_MAX), p[kBlockPages];
  for (int page = first; page < end; ++page) {
    p[page] = load(scores + page * kPageTokens) * by;
    if constexpr (Scaled) p[page] = p[page] * load(block.k_scale[page]);
    if (cap > 0) p[page] = soft_cap(p[page], cap);
    if constexpr (Masked) p[page] = mask(p[page], first_token + page * kPageTokens, low, high);
    largest = max(p[page], largest);
  }
  float const old_m = t.m[row], in_block = max(largest), new_m = in_block > old_m ? in_block : old_m;
  f32x16 const shift = set1(new_m);
  f32x16 total = zero();
  for (int page = first; page < end; ++page) {
    p[page] = exp(p[page] - shift);
    total = total + p[page];
    if constexpr (Scaled) p[page] = p[page] * load(t.v_scale + page * kPageTokens);
  }
  Products::put_probabilities(t, row, first, end, p);
  f32x16 const factor = exp(set1(old_m - new_m));
  store(t.l + row * 16, load(t.l + row * 16) * factor + total);
  t.m[row] = new_m;
  store_first(t.rescale + row, factor, 1);
}

template <class Products, bool Scaled>
BUNTING_INLINE void soften(AttentionTile const& t, int row, AttentionBlock const& block, float scale,
                           float cap, int32_t first_token, int32_t low, int32_t high) {
  bool const is_whole = block.first == 0 && block.end == kBlockPages && first_token >= low &&
                        first_token + kBlockTokens - 1 <= high;
  if (is_whole)  // the common case, in registers throughout
    soften_pages<Products, Scaled, false>(t, row, block, 0, kBlockPages, scale, cap, first_token, low, high);
  else
    soften_pages<Products, Scaled, true>(t, row, block, block.first, block.end, scale, cap, first_token, low,
                                         high);
}

// Makes the values of a block's pages of latents, which are the first numbers of their keys.
void unfold_block(AttentionTile const& t, Dtype dtype, AttentionBlock& block) {
  size_t const part = kv_part_bytes(dtype, int32_t(t.value_size));
  for (int n = block.first; n < block.end; ++n) {
    char* const values = reinterpret_cast<char*>(t.widened) + size_t(n) * part;
    if (dtype == Dtype::f32)
      unfold_f32(reinterpret_cast<float*>(values), reinterpret_cast<float const*>(block.k[n]), t.value_size);
    else
      unfold_bf16(values, block.k[n], t.value_size);
    block.v[n] = block.next_v[n] = values;
  }
}

struct RowPlace {
  int64_t chunk, token;  // indices within the step
  int64_t head;          // query head
  int32_t position;      // absolute
  int32_t end;           // of the chunk's positions
};

RowPlace place(Attention const& a, AttentionItem const& item, int32_t row) {
  int32_t const group = a.query_heads / a.kv.kv_heads, index = row / group;
  int32_t const chunk = item.members ? item.members[index] : item.chunk, within = item.members ? 0 : index;
  return {chunk, a.chunks[chunk].first_token + within, int64_t(item.kv_head) * group + row % group,
          a.chunks[chunk].start + within, a.chunks[chunk].start + a.chunks[chunk].count};
}

float* state_of(Attention const& a, RowPlace const& at) {
  return a.states + (at.chunk * a.query_heads + at.head) * attention_state_floats(a.kv.value_size());
}

void copy_floats(float* to, float const* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) store(to + i, load(from + i));
}

float* part_of(Attention const& a, AttentionItem const& item, int part, int32_t row) {
  int64_t const rows = item.row_end - item.row_begin;
  return a.parts +
         (item.part + part * rows + row - item.row_begin) * attention_sums_floats(a.kv.value_size());
}

// Sums of a row of a tile: those of the current segment, or those of all segments before.
struct Sums {
  float *o, *l, *m;
};

Sums sums_of(AttentionTile const& t, int row) {
  return {t.o + row * t.value_size, t.l + row * 16, t.m + row};
}

Sums sums_before(AttentionTile const& t, int row) {
  return {t.o_before + row * t.value_size, t.l_before + row * 16, t.m_before + row};
}

void clear(AttentionTile const& t, Sums const& to) {
  for (int64_t d = 0; d < t.value_size; d += 16) store(to.o + d, zero());
  store(to.l, zero());
  *to.m = -FLT_MAX;
}

void read(AttentionTile const& t, Sums const& to, float const* from) {
  copy_floats(to.o, from, t.value_size);
  copy_floats(to.l, from + t.value_size, 16);
  *to.m = from[t.value_size + 16];
}

void write(AttentionTile const& t, Sums const& from, float* to) {
  copy_floats(to, from.o, t.value_size);
  copy_floats(to + t.value_size, from.l, 16);
  store(to + t.value_size + 16, set1(*from.m));
}

// True if no token was added: m then has its least value, and o and l must not be read.
bool is_empty(Sums const& sums) {
  return *sums.m == -FLT_MAX;
}

// Adds a row's segment to the segments before it, and begins the next segment. A segment without visible
// tokens changes nothing; the first segment is copied.
void close_row(AttentionTile const& t, int row) {
  Sums const segment = sums_of(t, row), before = sums_before(t, row);
  if (is_empty(segment)) return;
  float const m = *segment.m > *before.m ? *segment.m : *before.m;
  if (is_empty(before)) {
    copy_floats(before.o, segment.o, t.value_size);
    copy_floats(before.l, segment.l, 16);
  } else {
    f32x16 const of_segment = exp(set1(*segment.m - m)), of_before = exp(set1(*before.m - m));
    auto const add = [&](float* to, float const* from) {
      store(to, load(to) * of_before + load(from) * of_segment);
    };
    for (int64_t d = 0; d < t.value_size; d += 16) add(before.o + d, segment.o + d);
    add(before.l, segment.l);
  }
  *before.m = m;
  clear(t, segment);
}

void close_segment(AttentionTile const& t, int rows) {
  for (int r = 0; r < rows; ++r) close_row(t, r);
}

void finish_row(Attention const& a, AttentionTile const& t, Sums const& sums, RowPlace const& place) {
  int64_t const at = place.token * a.ldo + place.head * t.value_size;
  float total = sum(load(sums.l));
  // A sink far above all scores makes the term infinite and the output 0.
  if (a.sinks) {
    float term;
    store_first(&term, exp(set1(a.sinks[place.head] - *sums.m)), 1);
    total += term;
  }
  f32x16 const scale = set1(1.0f / total);
  if (a.kv.dtype == Dtype::q4) rotate_evenly(sums.o, t.value_size);
  for (int64_t d = 0; d < t.value_size; d += 16) {
    f32x16 const y = load(sums.o + d) * scale + zero();
    if (a.kv.dtype == Dtype::f32)
      store(static_cast<float*>(a.out) + at + d, y);
    else
      store_bf16(static_cast<bf16*>(a.out) + at + d, y);
  }
}

// First position at which the sums of [position, ...) are closed off from those before: `position` itself, or
// the beginning of the next segment.
int32_t first_close(int32_t position) {
  return position == 0 ? attention_segment_end(0) : attention_segment_end(position - 1);
}

bool begins_segment(int32_t position) {
  return position == 0 || first_close(position) == position;
}

// Starts the item's rows from row_begin on, from their saved states or from empty sums.
void begin_rows(Attention const& a, AttentionItem const& item, AttentionTile const& t, int32_t row_begin,
                int rows) {
  bool const goes_on =
      item.kv_begin > 0 && (item.part < 0 || item.parts > 0 || !begins_segment(item.kv_begin));
  for (int r = 0; r < rows; ++r) {
    if (goes_on) {
      float const* const state = state_of(a, place(a, item, row_begin + r));
      read(t, sums_of(t, r), state);
      read(t, sums_before(t, r), state + attention_sums_floats(t.value_size));
    } else {
      clear(t, sums_of(t, r));
      *sums_before(t, r).m = -FLT_MAX;
    }
  }
}

// Stores the rows' sums or outputs as the item requires.
void end_rows(Attention const& a, AttentionItem const& item, AttentionTile const& t, int32_t row_begin,
              int rows) {
  bool const is_part = item.part >= 0 && item.parts == 0, is_last = item.kv_end == kAttentionEnd;
  for (int r = 0; r < rows; ++r) {
    if (is_part) {
      write(t, sums_of(t, r), part_of(a, item, 0, row_begin + r));
      continue;
    }
    RowPlace const at = place(a, item, row_begin + r);
    if (is_last) {
      bool const is_short = is_empty(sums_before(t, r));
      if (!is_short) close_row(t, r);
      finish_row(a, t, is_short ? sums_of(t, r) : sums_before(t, r), at);
    } else {
      float* const state = state_of(a, at);
      write(t, sums_of(t, r), state);
      write(t, sums_before(t, r), state + attention_sums_floats(t.value_size));
    }
  }
}

// Adds up the parts of a cut item, for rows from row_begin on.
void add_up(Attention const& a, AttentionItem const& item, int32_t row_begin, int rows) {
  AttentionTile const t(a.scratch, a.kv);
  begin_rows(a, item, t, row_begin, rows);
  for (int part = 0; part < item.parts; ++part) {
    // The first part may have continued the segment that is in the state.
    if (part > 0 || begins_segment(item.kv_begin)) close_segment(t, rows);
    for (int r = 0; r < rows; ++r) read(t, sums_of(t, r), part_of(a, item, part, row_begin + r));
  }
  end_rows(a, item, t, row_begin, rows);
}

// Range of positions that an item's rows walk.
struct Span {
  int32_t begin, end;
};

// First position that a token at `position` sees.
int32_t first_visible(Attention const& a, int32_t position) {
  return bunting::first_visible(position, a.sliding_window, a.is_chunked);
}

// Last position that a token at `position` of a chunk up to `end` sees.
int32_t last_visible(Attention const& a, int32_t position, int32_t end) {
  if (!a.is_bidirectional) return position;
  bool const is_cut = a.sliding_window > 0 && a.sliding_window < end - position;
  return is_cut ? position + a.sliding_window - 1 : end - 1;
}

Span span_of(Attention const& a, AttentionItem const& item, int32_t row_begin, int32_t row_end) {
  int32_t const group = a.query_heads / a.kv.kv_heads, first = row_begin / group,
                last = (row_end - 1) / group;
  int32_t const start = a.chunks[item.chunk].start;
  Span span{start + first, last_visible(a, start + last, start + a.chunks[item.chunk].count)};
  if (item.members) {
    span = {INT32_MAX, 0};
    for (int32_t i = first; i <= last; ++i) {
      int32_t const position = a.chunks[item.members[i]].start;
      span.begin = position < span.begin ? position : span.begin;
      span.end = position > span.end ? position : span.end;
    }
  }
  span.begin = first_visible(a, span.begin);
  ++span.end;
  if (span.begin < item.kv_begin) span.begin = item.kv_begin;
  if (span.end > item.kv_end) span.end = item.kv_end;
  return span;
}

// Describes the block at `base`. `after` is the block to prefetch when this walk ends, or null.
AttentionBlock block_at(Attention const& a, AttentionItem const& item, int32_t base, Span const& span,
                        AttentionBlock const* after) {
  size_t const scales = has_kv_scales(a.kv.dtype) ? kKvScaleBytes : 0;
  int32_t const base_page = base / kPageTokens, last_page = (span.end - 1) / kPageTokens;
  int32_t const* const pages = a.chunks[item.chunk].pages + base_page;
  auto const keys = [&](int n) { return k_of(a.kv, pages[n], item.kv_head) + scales; };
  auto const values = [&](int n) {
    return a.kv.latent > 0 ? keys(n) : v_of(a.kv, pages[n], item.kv_head) + scales;
  };
  AttentionBlock block;
  block.first = base < span.begin ? (span.begin - base) / kPageTokens : 0;
  block.end = last_page - base_page < kBlockPages ? last_page - base_page + 1 : kBlockPages;
  for (int n = block.first; n < block.end; ++n) {
    bool const goes_on = base_page + n + kBlockPages <= last_page;
    bool const has_after = after && n >= after->first && n < after->end;
    block.k[n] = keys(n);
    block.v[n] = values(n);
    block.next_k[n] = goes_on ? keys(n + kBlockPages) : has_after ? after->k[n] : block.k[n];
    block.next_v[n] = goes_on ? values(n + kBlockPages) : has_after ? after->v[n] : block.v[n];
  }
  return block;
}

// Prefetches pages of a walk's first block if the last block before it has no pages in the same places.
void fetch_rest(Attention const& a, AttentionBlock const& block, AttentionBlock const& after) {
  size_t const bytes = kv_part_bytes(a.kv.dtype, a.kv.head_size);
  for (int n = after.first; n < after.end; ++n) {
    if (n >= block.first && n < block.end) continue;
    for (size_t at = 0; at < bytes; at += 64) {
      __builtin_prefetch(after.k[n] + at);
      __builtin_prefetch(after.v[n] + at);
    }
  }
}

// Walks the item's rows [row_begin, row_end), at most kTileRows. `next` is the item after it, or null.
template <class Products, bool Scaled>
void walk(Attention const& a, AttentionItem const& item, Products& products, int32_t row_begin,
          int32_t row_end, AttentionItem const* next) {
  AttentionTile const t(a.scratch, a.kv);
  int const rows = row_end - row_begin;
  for (int r = 0; r < rows; ++r) {
    RowPlace const at = place(a, item, row_begin + r);
    Products::put_query(t, r, a.q + at.token * a.ldq + at.head * t.head_size);
    t.low[r] = first_visible(a, at.position);
    t.high[r] = last_visible(a, at.position, at.end);
  }
  Span const span = span_of(a, item, row_begin, row_end);
  begin_rows(a, item, t, row_begin, rows);

  AttentionBlock after;
  if (next) {
    int32_t const last = next->row_begin + kTileRows;
    Span const of_next = span_of(a, *next, next->row_begin, last < next->row_end ? last : next->row_end);
    after = block_at(a, *next, of_next.begin / kBlockTokens * kBlockTokens, of_next, nullptr);
  }

  int32_t base = span.begin / kBlockTokens * kBlockTokens;
  for (int32_t close_at = first_close(base); base < span.end; base += kBlockTokens) {
    if (base == close_at) {
      close_segment(t, rows);
      close_at = attention_segment_end(base);
    }
    bool const is_last = base + kBlockTokens >= span.end;
    AttentionBlock block = block_at(a, item, base, span, next ? &after : nullptr);
    if (is_last && next) fetch_rest(a, block, after);
    int32_t const tail = is_last ? span.end % kPageTokens : 0;
    if constexpr (Scaled) {
      find_scales(t, block, tail != 0 ? tail : kPageTokens);
      bool const is_packed = a.kv.dtype == Dtype::q4;
      if constexpr (!Products::kTakesInt8)
        widen_block(t, block, is_packed);
      else if (is_packed)
        unpack_block(t, block);
    } else {
      if (a.kv.latent > 0) unfold_block(t, a.kv.dtype, block);
      if (tail != 0) block.v[block.end - 1] = values_until(t, a.kv.dtype, block.v[block.end - 1], tail);
    }
    products.score(t, block, rows);
    for (int r = 0; r < rows; ++r)
      soften<Products, Scaled>(t, r, block, a.scale, a.cap, base, t.low[r], t.high[r]);
    products.weigh(t, block, rows);
  }

  end_rows(a, item, t, row_begin, rows);
}

// Walks items [begin, end). `Few` are the products for tiles with few rows.
template <class Products, class Few, bool Scaled>
void walk_items(Attention const& a, int64_t begin, int64_t end) {
  Products products;
  [[maybe_unused]] Few few;
  for (int64_t i = begin; i < end; ++i) {
    AttentionItem const& item = a.items[i];
    for (int32_t row = item.row_begin; row < item.row_end; row += kTileRows) {
      bool const is_last = row + kTileRows >= item.row_end;
      int32_t const row_end = is_last ? item.row_end : row + kTileRows;
      AttentionItem const* const next =
          is_last && i + 1 < end && a.items[i + 1].parts == 0 ? &item + 1 : nullptr;
      if (item.parts > 0)
        add_up(a, item, row, row_end - row);
      else if (std::is_same_v<Products, Few> || row_end - row > kRowsMax)
        walk<Products, Scaled>(a, item, products, row, row_end, next);
      else
        walk<Few, Scaled>(a, item, few, row, row_end, next);
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

// Products for int8 pages: for tiles with many rows, and for tiles with few rows, which widen keys and values
// in registers.
#if defined(__AMX_BF16__) || defined(BUNTING_AMX_EMULATED)
using Int8Products = TileProducts;
using FewInt8Products = TileProducts;
#elif defined(__AVX512VNNI__)
using Int8Products = VectorProducts<PairInt8>;
using FewInt8Products = VectorProducts<PairInt8>;
#else
using Int8Products = VectorProducts<WidenedBf16>;
using FewInt8Products = VectorProducts<WidenedInt8>;
#endif

}  // namespace

void attention(Attention const& a, int64_t item_begin, int64_t item_end) {
  if (a.kv.dtype == Dtype::f32)
    walk_items<VectorProducts<PlainF32>, VectorProducts<PlainF32>, false>(a, item_begin, item_end);
  else if (has_kv_scales(a.kv.dtype))
    walk_items<Int8Products, FewInt8Products, true>(a, item_begin, item_end);
  else
    walk_items<Bf16Products, Bf16Products, false>(a, item_begin, item_end);
}

}  // namespace bunting::BUNTING_ISA
