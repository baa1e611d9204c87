// The tables and columns of this file are laid out by hand.
// clang-format off
// kernels.h - what the CPU engine computes with: one table of functions per instruction set, chosen once at run time.
//
// Every kernel is a plain function over a slice of its work (panels, rows or items [begin, end)); it starts no thread
// and allocates nothing, so that engine.cpp alone decides how work is spread over the pool. The same source is compiled
// once per instruction set (see CMakeLists.txt); reference/ has one plain loop per kernel with the same name, and
// tests/ compares the two over enumerated shapes.
//
// Promise of this layer, tested: **a row's result does not depend on the rows computed beside it.** Every sum runs over
// its index in one fixed order whatever T, the slice or the number of threads, and attention walks the keys in blocks
// aligned to absolute positions. So a token's logits are the same bits whether its prompt ran whole, in chunks, from
// cached pages, alone or in company.
//
// Dimension letters are those of engine.h: T tokens, S chunks, H hidden, Hq/Hk heads, D head size, F feed-forward,
// V vocabulary, Tp tokens per page. N and K: output and input width of a matrix.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/weight_format.h"

namespace bunting {

using bf16 = uint16_t;  // the upper half of an f32; conversions round to nearest even

inline constexpr int kKAlign = 32;    // K is padded with zeros to a multiple of this (one AMX tile of bf16)
inline constexpr int kPageTokens = 16;  // Tp; attention kernels are written for this

constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// A weight matrix [N, K] in the order in which the GEMM reads it, the same for every instruction set:
//   bf16: [ceil(N/16)] panels of [Kp/2][16 columns][2 consecutive k]   (the VNNI order: AMX tiles and dpbf16 read it as is)
//   f32:  [ceil(N/16)] panels of [Kp][16 columns]
//   integers in groups (weight_format.h): [ceil(N/16)] panels of blocks of block() k, the last one as long as Kp leaves it:
//         the scales of its groups, then the integers of kGroup k after kGroup k (integer_layout.h)
// with Kp = round_up(K, k_align()). Columns >= N and rows >= K are zero; so are scales that none of the others has.
struct PackedMatrix {
  Dtype dtype = Dtype::bf16;  // any but f16
  int64_t n = 0, k = 0;
  void* data = nullptr;  // 64-byte aligned, owned by the model
  bool grouped() const { return is_grouped(dtype); }
  int64_t group() const { return weight_group(dtype); }
  // k of a block, and bytes of the scales at its beginning.
  int64_t block() const { return block_length(dtype); }
  int64_t block_scale_bytes() const { return block_header_bytes(dtype); }
  int64_t k_align() const { return is_super(dtype) ? kSuper : grouped() ? 2 * kGroup : kKAlign; }
  int64_t kp() const { return round_up(k, k_align()); }
  int64_t panels() const { return (n + kPanel - 1) / kPanel; }
  // Bytes of a panel's first `depth` k: whole blocks of integers, or all; a multiple of 64.
  int64_t depth_bytes(int64_t depth) const {
    if (!grouped()) return depth * kPanel * (dtype == Dtype::bf16 ? 2 : 4);
    return round_up(depth, block()) / block() * block_scale_bytes() + depth * kPanel * integer_bits(dtype) / 8;
  }
  int64_t panel_bytes() const { return depth_bytes(kp()); }
  size_t bytes() const { return size_t(panels() * panel_bytes()); }
  char* panel(int64_t index) const { return static_cast<char*>(data) + index * panel_bytes(); }
};

// kGroup consecutive values of a row that is multiplied with grouped weights: value = scale * q, -127 <= q <= 127. Those of
// input_group() share a scale, of which each has a copy; if they had a value that is not finite, it is NaN. A value that would
// leave no steps for the others is an outlier: kept apart as it is, while its q is 0.
struct InputGroup {
  int8_t q[kGroup];
  float scale;
  // -(sum of q of all whose weights share a scale): what a step of 1 in the zero of unsigned weights adds to their product.
  union {
    int32_t minus_sum;
    // Of two groups of weights. Of 16 numbers: the two in here. Of 32, in superblocks with minimums: this one and the next,
    // in every second InputGroup; the others have zeros.
    int16_t minus_sums[2];
    float minus_sum_f32;  // beside other weights with minimums
  };
  float outlier;
  int16_t outlier_at;  // its index; the outlier is 0: there is none
  int16_t outliers;    // in the first one of those that share a scale: of them all
};

// What a number that shares a scale with n others must reach of the largest: if but n/32 do, those are outliers.
inline constexpr float kOutlierShare = 0.125f;

// Bytes of an element of a GEMM's x.
constexpr int64_t input_bytes(Dtype weights) {
  return weights == Dtype::f32 ? 4 : weights == Dtype::bf16 ? 2 : int64_t(sizeof(InputGroup));
}

// Rows of activations as a matrix of this type is multiplied with them: f32, bf16 or InputGroup.
struct Operand {
  void* rows = nullptr;
  int64_t ld = 0;  // elements from one row to the next
  Dtype dtype = Dtype::bf16;
  // Of groups: set when a row is written that has outliers; null: nobody knows.
  std::atomic<bool>* outliers = nullptr;
  int64_t element_bytes() const { return input_bytes(dtype); }
  char* row(int64_t t) const { return static_cast<char*>(rows) + t * ld * element_bytes(); }
  bool may_have_outliers() const { return !outliers || outliers->load(std::memory_order_relaxed); }
};

// How rows are normed: x / sqrt(mean(x^2) + epsilon) * weight; the same of x - mean(x); not at all. The values of engine.h.
enum class NormKind : int32_t { rms = 0, layer = 1, none = 2 };
struct Norm {
  NormKind kind = NormKind::rms;
  float const* weight = nullptr;  // [H]
  float epsilon = 0;
};

// What a gate goes through; the values of engine.h.
enum class Activation : int32_t { silu = 0, gelu_tanh = 1, clamped_swiglu = 2 };

// y[t, n] (= or +=) sum_k x[t, k] * w[n, k] + bias[n], f32 sums, for all t in [0, T) and the columns of some panels.
struct Gemm {
  // [T, ldx]. Plain weights: bf16 or f32 like w.dtype; ldx >= kp, columns K..kp-1 are zero; 64-byte aligned rows. Grouped
  // weights: InputGroup, ldx >= kp / kGroup.
  void const* x = nullptr;
  int64_t ldx = 0;
  PackedMatrix const* w = nullptr;
  float const* bias = nullptr;  // [N] or null
  float* y = nullptr;           // [T, ldy]
  int64_t ldy = 0;
  int64_t tokens = 0;       // T
  bool accumulate = false;  // += : the residual stream
  bool may_have_outliers = true;  // false: no row of groups has any
  // Panels of as many bytes that this thread is likely to multiply next, to be fetched meanwhile; null: not known.
  char const* next = nullptr;
};

// The KV memory of one layer: `pages` pages of Hk heads, f32, bf16 or q8; the inner layout belongs to the attention kernels (kv_layout.h)
// and is the same for every instruction set. A page of one layer is one contiguous run of kv_page_bytes().
struct KvLayer {
  Dtype dtype = Dtype::bf16;  // f32, bf16, or q8: int8 with a scale for each token's keys and values of a head
  int32_t kv_heads = 0, head_size = 0;
  char* pages = nullptr;  // page p at pages + p * page_bytes
  size_t page_bytes = 0;
};

// Positions, pages and token rows of one chunk of the step.
struct ChunkView {
  int32_t first_token = 0, count = 0;  // token rows [first_token, first_token + count)
  int32_t start = 0;                   // absolute position of the first of them
  int32_t const* pages = nullptr;      // page ids of positions [0, start + count)
};

inline constexpr int kAttentionBlock = 64;  // keys that a row's sums take in at a time, from multiples of it on

// A row's sums over all positions are those of its segments, each begun anew and then added up in rising order: so a long
// context can be cut between segments and computed by several threads, and none of it shows in a bit. Segments are of 1,024
// positions, further out of a 16th of the power of two before them: there are 64 in 128k. Where the one of `position` ends:
constexpr int32_t attention_segment_end(int32_t position) {
  int32_t const length = position < 16 * 1024 ? 1024 : 1 << (27 - __builtin_clz(uint32_t(position)));
  return (position / length + 1) * length;
}
// Segments of [0, positions).
constexpr int32_t attention_segments(int32_t positions) {
  int32_t count = 0;
  for (int32_t at = 0; at < positions; at = attention_segment_end(at)) ++count;
  return count;
}

// One work item of attention: query rows [row_begin, row_end) of one KV head against positions [kv_begin, kv_end), both
// multiples of kAttentionBlock. Row r is the query head r % G of the KV head, G = Hq/Hk, and token r / G: of the chunk,
// counted from its first one; or, if there are members, the only token of chunk members[r / G]. The pages are those of
// `chunk`, which all members have in common.
// An item that begins behind position 0 goes on from its rows' states; one that ends before kAttentionEnd leaves states,
// and no output.
// A part of a cut item lies within a segment. It leaves its rows' sums in rows [part, part + rows) of Attention::parts, and
// goes on from states only if it begins inside of a segment. Once all parts are there, an item with `parts` > 0 adds them
// up: part i is in the rows from part + i * rows on, and the range is theirs together.
inline constexpr int32_t kAttentionEnd = INT32_MAX;
struct AttentionItem {
  int32_t chunk = 0, kv_head = 0, row_begin = 0, row_end = 0;
  int32_t kv_begin = 0, kv_end = kAttentionEnd;
  int32_t const* members = nullptr;
  int32_t part = -1, parts = 0;  // -1: no part of anything
};

struct Attention {
  float const* q = nullptr;  // [T, ldq]: Hq*D values per token, normed and rotated, not yet scaled
  int64_t ldq = 0;
  KvLayer kv;
  ChunkView const* chunks = nullptr;
  AttentionItem const* items = nullptr;
  int32_t query_heads = 0;
  int32_t sliding_window = 0;  // 0: none
  float scale = 0;             // of scores
  float cap = 0;               // > 0: a score s becomes cap * tanh(s / cap)
  float const* sinks = nullptr; // [Hq] or null: a score of each query head that takes its share and adds nothing
  void* out = nullptr;         // [T, ldo]: Hq*D values per token; f32 if the pages are, else bf16
  int64_t ldo = 0;
  float* states = nullptr;  // [chunks, Hq] of attention_state_floats(D), of chunks of one token
  float* parts = nullptr;   // [rows of parts] of attention_sums_floats(D)
  char* scratch = nullptr;  // attention_scratch_bytes() per thread
};

// What follows the QKV projection, per token row: optional RMS norm of each q and k head, or of all heads of q and of k
// together, rotation of the first R numbers of each, append of k and v to the token's page slot. q is rewritten in place.
// Without pages there are no k and v.
struct RopeAppend {
  float* qkv = nullptr;  // [T, ldqkv]: q (Hq*D), k (Hk*D), v (Hk*D)
  int64_t ldqkv = 0;
  int32_t query_heads = 0;
  float const* q_norm = nullptr;  // [D], or [Hq*D] if wide, or null
  float const* k_norm = nullptr;  // [D], or [Hk*D]
  bool has_wide_norms = false;
  bool values_are_keys = false;  // as the projection has them: v is room for them
  bool has_value_norm = false;   // of each head, without weights
  float norm_epsilon = 0;
  int32_t rotated = 0;         // R; 0: nothing is rotated
  float const* cos = nullptr;  // [T, R/2]
  float const* sin = nullptr;
  float const* query_scale = nullptr;   // [context_max] or null: q is multiplied by its position's
  int32_t const* positions = nullptr;   // [T] absolute
  int32_t const* token_pages = nullptr; // [T] page that holds the token's position
  KvLayer kv;
};

// One row to draw from; the pointers look into the step block. See engine.h for the order of operations.
struct SampleRow {
  float temperature, top_p, min_p, repetition, presence, frequency;
  int32_t top_k;
  uint32_t seed_low, seed_high, position;
  int32_t const* bias;  // [bias_count, 2]: token, float bits
  int32_t bias_count;
  int32_t const* seen;  // [seen_count, 2]: token, count in the output
  int32_t seen_count;
  uint32_t const* mask;  // [ceil(V/32)] or null
  int32_t top_logprobs;  // -1: none
};

struct SampleResult {
  int32_t status, token;
  float logprob;
  int32_t top_count;
};

struct Kernels {
  char const* name;  // "avx512_bf16"

  // Packs rows of w (source [n, k] row-major, dtype src) for panels [begin, end). f16/f32 -> bf16 rounds to nearest even.
  // Grouped weights come from whole blocks of their own type as a GGUF file has them; those that numbers are rounded to
  // (is_rounded_to), from any plain source too.
  void (*pack)(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end);
  void (*gemm)(Gemm const& g, int64_t panel_begin, int64_t panel_end);
  // Rows [begin, end) of x [T, ldx], f32 or bf16, as groups: `to` is for grouped weights, ld >= round_up(k, 64) / kGroup.
  void (*quantise)(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t begin, int64_t end);

  // x[t, :] = embedding row of token ids[t] as f32, for t in [begin, end). The table is a PackedMatrix [V, H].
  void (*embed)(float* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t begin, int64_t end);
  // y[t, :] = n(x[t, :]), columns H..ld-1 of y zeroed; groups: as `quantise` would.
  void (*norm)(Operand const& y, float const* x, int64_t ldx, Norm const& n, int64_t h, int64_t begin, int64_t end);
  // x[t, :] += scale * n(d[t, :])
  void (*add_normed)(float* x, int64_t ldx, float const* d, int64_t ldd, Norm const& n, float scale, int64_t h, int64_t begin,
                     int64_t end);
  // x[t, i] *= scale for i < n, and then, if cap > 0, becomes cap * tanh(x / cap).
  void (*scale_and_cap)(float* x, int64_t ldx, int64_t n, float scale, float cap, int64_t begin, int64_t end);
  void (*rope_append)(RopeAppend const& a, int64_t begin, int64_t end);  // token rows
  // y[t, f] = activation(gu[t, f]) * gu[t, F + f] for f < F, or as engine.h says; groups: as above.
  void (*gate)(Operand const& y, float const* gu, int64_t ldgu, int64_t f, Activation activation, int64_t begin, int64_t end);
  void (*attention)(Attention const& a, int64_t item_begin, int64_t item_end);

  // Draws one token, the same on every level for the same logits. `logits` [V] is not changed; `scratch` has
  // sample_scratch_bytes(V). `top` receives 2*top_logprobs words: token, logprob bits.
  SampleResult (*sample)(SampleRow const& row, float const* logits, int32_t vocab, char* scratch, int32_t* top);
};

size_t attention_scratch_bytes(int32_t head_size);
// A row's sums: its unnormalised output, 16 sums of probabilities and the largest score. Between two items it keeps those of
// the segment that it is in, and those of all segments before.
constexpr int64_t attention_sums_floats(int64_t head_size) { return head_size + 32; }
constexpr int64_t attention_state_floats(int64_t head_size) { return 2 * attention_sums_floats(head_size); }
size_t sample_scratch_bytes(int32_t vocab);
size_t kv_page_bytes(Dtype dtype, int32_t kv_heads, int32_t head_size);
// Copies the first `count` tokens of page `from` to page `to` of one layer; the other slots of `to` become unspecified.
void copy_page(KvLayer const& kv, int32_t from, int32_t to, int32_t count);

// The table for a level of engine.h's BUNTING_ISA_*; null when the library was built without it.
Kernels const* kernels_for(int32_t isa);

}  // namespace bunting
