// Hand-aligned tables and columns: clang-format is off.
// clang-format off
// kernels.h - the kernels of the CPU engine: one table of functions per instruction set, chosen once at run
// time.
//
// Every kernel is a plain function over a slice of its work: panels, rows or items [begin, end). It starts no
// thread and allocates nothing, so only the engine decides how work is spread over the pool. The same source
// is compiled once per instruction set (see CMakeLists.txt). reference/ has one plain loop per kernel with
// the same name, and tests/ compares the two over enumerated shapes.
//
// Invariant of this layer, held by tests: **a row's result does not depend on the rows computed beside it**
// (batch invariance). Every sum runs over its index in one fixed order for every T, slice and number of
// threads. Attention walks the keys in blocks aligned to absolute positions. So a token's logits are the same
// bits whether its prompt ran whole, in chunks, from cached pages, alone or in a batch.
//
// Dimension letters are those of engine.h: T tokens, S chunks, H hidden, Hq/Hk heads, D head size, F
// feed-forward, V vocabulary, Tp tokens per page. N and K: output and input width of a matrix.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/weight_format.h"
#include "model/xielu.h"

namespace bunting {

using bf16 = uint16_t;  // the upper half of an f32; conversions round to nearest even

inline constexpr int kKAlign = 32;    // K is padded with zeros to a multiple of this (one AMX tile of bf16)
inline constexpr int kPageTokens = 16;  // Tp; the attention kernels require this value

constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Weight matrix [N, K] in the reading order of the GEMM, the same for every instruction set:
//   bf16: [ceil(N/16)] panels of [Kp/2][16 columns][2 consecutive k]   (VNNI order: AMX tiles and VDPBF16PS read it directly)
//   f32:  [ceil(N/16)] panels of [Kp][16 columns]
//   integers in groups (weight_format.h): [ceil(N/16)] panels of blocks of block() k, the last one cut at Kp:
//         the scales of its groups, then the integers of kGroup k after kGroup k (integer_layout.h)
// with Kp = round_up(K, k_align()). Columns >= N and rows >= K are zero; so are scales of groups without
// numbers.
struct PackedMatrix {
  Dtype dtype = Dtype::bf16;  // any type but f16
  int64_t n = 0, k = 0;
  void* data = nullptr;  // 64-byte aligned, owned by the model
  bool grouped() const { return is_grouped(dtype); }
  int64_t group() const { return weight_group(dtype); }
  // Number of k per block, and bytes of the scales at its beginning.
  int64_t block() const { return block_length(dtype); }
  int64_t block_scale_bytes() const { return block_header_bytes(dtype); }
  int64_t k_align() const { return is_super(dtype) ? kSuper : grouped() ? 2 * kGroup : kKAlign; }
  int64_t kp() const { return round_up(k, k_align()); }
  int64_t panels() const { return (n + kPanel - 1) / kPanel; }
  // Bytes of a panel's first `depth` k, a multiple of 64. For integers `depth` is whole blocks, or all k.
  int64_t depth_bytes(int64_t depth) const {
    if (!grouped()) return depth * kPanel * (dtype == Dtype::bf16 ? 2 : 4);
    return round_up(depth, block()) / block() * block_scale_bytes() + depth * kPanel * integer_bits(dtype) / 8;
  }
  int64_t panel_bytes() const { return depth_bytes(kp()); }
  size_t bytes() const { return size_t(panels() * panel_bytes()); }
  char* panel(int64_t index) const { return static_cast<char*>(data) + index * panel_bytes(); }
};

// kGroup consecutive values of an activation row for grouped weights: value = scale * q, -127 <= q <= 127.
// All groups of input_group() values share a scale, and each has a copy of it. The scale is NaN if one of the
// values is not finite. A value so large that the others would lose their precision is an outlier: it is
// stored separately as it is, and its q is 0.
struct InputGroup {
  int8_t q[kGroup];
  float scale;
  // Negated sum of q over all values whose weights share a scale. It is the effect on their product of a step
  // of 1 in the zero of unsigned weights.
  union {
    int32_t minus_sum;
    // Sums for two groups of weights. With groups of 16: the two in this InputGroup. With groups of 32, in
    // superblocks with minimums: this one and the next, in every second InputGroup; the others have zeros.
    int16_t minus_sums[2];
    float minus_sum_f32;  // for other weights with minimums
  };
  float outlier;
  int16_t outlier_at;  // index of the outlier; outlier == 0 means there is none
  int16_t outliers;    // number of outliers among all that share a scale, stored in the first of them
};

// Share of the largest magnitude that makes a value an outlier, if at most 1/32 of the values that share a
// scale reach it.
inline constexpr float kOutlierShare = 0.125f;

// Bytes per element of a GEMM's x.
constexpr int64_t input_bytes(Dtype weights) {
  return weights == Dtype::f32 ? 4 : weights == Dtype::bf16 ? 2 : int64_t(sizeof(InputGroup));
}

// Activation rows in the input type of a matrix of type `dtype`: f32, bf16 or InputGroup.
struct Operand {
  void* rows = nullptr;
  int64_t ld = 0;  // elements from one row to the next
  Dtype dtype = Dtype::bf16;
  // For groups: set to true when a row with outliers is written; null: unknown.
  std::atomic<bool>* outliers = nullptr;
  int64_t element_bytes() const { return input_bytes(dtype); }
  char* row(int64_t t) const { return static_cast<char*>(rows) + t * ld * element_bytes(); }
  bool may_have_outliers() const { return !outliers || outliers->load(std::memory_order_relaxed); }
};

// Norm of a row: x / sqrt(mean(x^2) + epsilon) * weight; the same of x - mean(x); or none. Values are those
// of engine.h.
enum class NormKind : int32_t { rms = 0, layer = 1, none = 2 };
struct Norm {
  NormKind kind = NormKind::rms;
  float const* weight = nullptr;  // [H]
  float epsilon = 0;
  float const* bias = nullptr;  // [H] or null; of kind layer only
};

// Activation of a gate; values are those of engine.h. `xielu` is one of plain MLPs.
enum class Activation : int32_t { silu = 0, gelu_tanh = 1, clamped_swiglu = 2, gelu = 3, xielu = 4, relu_squared = 5 };

// GEMM: y[t, n] (= or +=) sum_k x[t, k] * w[n, k] + bias[n], in f32, for all t in [0, T) and some panels.
struct Gemm {
  // Input [T, ldx]. Plain weights: bf16 or f32 like w.dtype; ldx >= kp, columns K..kp-1 are zero; 64-byte
  // aligned rows. Grouped weights: InputGroup, ldx >= kp / kGroup.
  void const* x = nullptr;
  int64_t ldx = 0;
  PackedMatrix const* w = nullptr;
  float const* bias = nullptr;  // [N] or null
  float* y = nullptr;           // [T, ldy]
  int64_t ldy = 0;
  int64_t tokens = 0;       // T
  bool accumulate = false;  // true: +=, for the residual stream
  bool may_have_outliers = true;  // false: no row of groups has outliers
  // Panels of the same size that this thread will probably multiply next, to prefetch; null: unknown.
  char const* next = nullptr;
};

// KV memory of one layer: `pages` pages of Hk heads, f32, bf16, q8 or q4. A page of one layer is one contiguous
// run of kv_page_bytes(). The attention kernels define its inner layout (kv_layout.h), the same for every
// instruction set.
struct KvLayer {
  Dtype dtype = Dtype::bf16;  // f32, bf16; q8 or q4: integers with one scale per token and head for keys, and one for values
  int32_t kv_heads = 0, head_size = 0;
  char* pages = nullptr;  // page p at pages + p * page_bytes
  size_t page_bytes = 0;
  int32_t latent = 0;  // > 0: pages have keys alone, and a token's values are so many first numbers of its key
  int32_t value_size() const { return latent > 0 ? latent : head_size; }
};

// Positions, pages and token rows of one chunk of the step.
struct ChunkView {
  int32_t first_token = 0, count = 0;  // token rows [first_token, first_token + count)
  int32_t start = 0;                   // absolute position of the first token
  int32_t const* pages = nullptr;      // page ids of positions [0, start + count)
  int32_t second = 0;                  // tokens from this index on are of type 1; 0: none
};

// Copy of the state after a chunk's first `count` tokens into a slot.
struct StateSave {
  int32_t count, slot;
};

// Slots of a chunk's recurrent state.
struct ChunkState {
  int32_t slot = -1;                // receives the state after the chunk
  int32_t from = -1;                // has the state before the chunk; -1: zeros
  StateSave const* saves = nullptr; // [save_count] by rising count
  int32_t save_count = 0;
};

// Memory for the states of one layer: conv's last inputs [K-1, channels], the oldest first, then from
// `matrices_at` on S [Gv][Dv / w][Dk][w] in blocks of w = state_columns(Dv) columns.
struct StateLayer {
  float* slots = nullptr;  // slot s at slots + s * stride
  int64_t stride = 0;      // floats
  int64_t matrices_at = 0;
};
constexpr int64_t state_columns(int64_t value_size) { return value_size % 32 == 0 ? 32 : 16; }

// Recurrent mixer of one layer (engine.h) for the tokens of some chunks. Each kernel reads the state before a
// chunk, and writes the one after it and the saved ones.
struct StateMixer {
  float* in = nullptr;  // [T, ldin]: projections of q, k from column q_width on, v from v_column on
  int64_t ldin = 0, v_column = 0;
  int32_t key_heads = 0, heads = 0, key_size = 0, value_size = 0;  // Gk, Gv, Dk, Dv; 0 in a short convolution
  bool is_delta = false, has_tiled_heads = false;
  ChunkView const* chunks = nullptr;
  ChunkState const* states = nullptr;
  StateLayer memory;
  int32_t taps = 0;              // K
  int64_t channels = 0;          // of the convolution
  float const* conv = nullptr;   // [K, channels], the oldest token's weights first
  float const* conv_bias = nullptr;  // [channels] or null
  float const* skip = nullptr;       // [Gv] or null
  // Numbers per token and head: decay g; factor of v before it is written, sigmoid(b) or dt; and k q [T, Gk].
  float* decay = nullptr;  // [T, Gv]
  float* write = nullptr;  // [T, Gv]
  float* products = nullptr;  // [T, Gk], of delta only
  float* out = nullptr;    // [T, ldout]: Gv*Dv values per token
  int64_t ldout = 0;
  // Work items of a chunk: heads of q, k and v, or channels of a short convolution; and columns of S.
  static constexpr int64_t kConvChannels = 64;
  int64_t conv_items() const {
    return heads > 0 ? 2 * int64_t(key_heads) + heads : (channels + kConvChannels - 1) / kConvChannels;
  }
  int64_t scan_items() const { return heads * (value_size / state_columns(value_size)); }
};

// Gates of a recurrent mixer per token, from its projections of a and b.
struct StateGates {
  float const* in = nullptr;  // [T, ldin]: a (Gv), b from column b_column on
  int64_t ldin = 0, b_column = 0;
  float const* dt_bias = nullptr;  // [Gv]
  float const* rates = nullptr;    // [Gv] -exp(A_log)
  float dt_min = 0, dt_max = 0;
};

// Norm and gate of a recurrent mixer's output.
struct StateOutput {
  float* y = nullptr;  // [T, ldy], in place
  int64_t ldy = 0;
  float const* z = nullptr;  // [T, ldz]
  int64_t ldz = 0;
  int64_t width = 0;         // Gv*Dv
  int64_t norm_width = 0;    // numbers that share a norm; 0: no norm
  float const* norm = nullptr;  // [width], or [norm_width] if it repeats
  bool norm_repeats = false, is_gate_first = false;
  float epsilon = 0;
};

inline constexpr int kAttentionBlock = 64;  // keys per block of a row's sums; blocks begin at multiples of this position

// End of the segment with `position`. A row's sums over all positions are the sums of its segments, each
// started from zero, added up in rising order. So several threads may compute the segments of a long context,
// and the result has the same bits. Segments have 1,024 positions; further out they have a 16th of the
// largest power of two at or below the position.
constexpr int32_t attention_segment_end(int32_t position) {
  int32_t const length = position < 16 * 1024 ? 1024 : 1 << (27 - __builtin_clz(uint32_t(position)));
  return (position / length + 1) * length;
}
// Number of segments of [0, positions).
constexpr int32_t attention_segments(int32_t positions) {
  int32_t count = 0;
  for (int32_t at = 0; at < positions; at = attention_segment_end(at)) ++count;
  return count;
}

// Work item of attention: query rows [row_begin, row_end) of one KV head against positions [kv_begin,
// kv_end), both multiples of kAttentionBlock. Row r is query head r % G of the KV head, G = Hq/Hk, and token
// r / G. Without members that token is counted from the first token of `chunk`. With members it is the only
// token of chunk members[r / G]. The pages are those of `chunk`; all members share them. An item with
// kv_begin > 0 continues from its rows' states. An item that ends before kAttentionEnd leaves states and no
// output. A part of a cut item lies within a segment. It leaves its rows' sums in rows [part, part + rows) of
// Attention::parts, and continues from states only if it begins inside a segment. After all parts, an item
// with `parts` > 0 adds them up: part i is in the rows from part + i * rows on, and the item's range is that
// of all its parts.
inline constexpr int32_t kAttentionEnd = INT32_MAX;
struct AttentionItem {
  int32_t chunk = 0, kv_head = 0, row_begin = 0, row_end = 0;
  int32_t kv_begin = 0, kv_end = kAttentionEnd;
  int32_t const* members = nullptr;
  int32_t part = -1, parts = 0;  // -1: not a part
};

// First position that a token sees: 0 without a window.
constexpr int32_t first_visible(int32_t position, int32_t window, bool is_chunked) {
  if (window <= 0 || position < window) return 0;
  return is_chunked ? position / window * window : position - window + 1;
}

struct Attention {
  float const* q = nullptr;  // [T, ldq]: Hq*D values per token, normed and rotated, not yet scaled
  int64_t ldq = 0;
  KvLayer kv;
  ChunkView const* chunks = nullptr;
  AttentionItem const* items = nullptr;
  int32_t query_heads = 0;
  int32_t sliding_window = 0;  // 0: none
  bool is_bidirectional = false;  // tokens see those behind them in their chunk, which begins at position 0
  bool is_chunked = false;        // the window is a chunk (engine.h)
  float scale = 0;             // factor of scores
  float cap = 0;               // > 0: a score s becomes cap * tanh(s / cap)
  float const* sinks = nullptr; // [Hq] or null: a score per query head in the softmax denominator, without a value
  void* out = nullptr;         // [T, ldo]: Hq*Dv values per token, Dv = kv.value_size(); f32 if the pages are, else bf16
  int64_t ldo = 0;
  float* states = nullptr;  // [chunks, Hq] of attention_state_floats(D), for chunks of one token
  float* parts = nullptr;   // [rows of parts] of attention_sums_floats(D)
  char* scratch = nullptr;  // attention_scratch_bytes() per thread
};

// Steps after the QKV projection, per token row: optional RMS norm of each q and k head, or over all heads of
// q and of k; rotation of the first R numbers of each head; append of k and v to the token's page slot. q is
// rewritten in place. With null pages there are no k and v.
struct RopeAppend {
  float* qkv = nullptr;  // [T, ldqkv]: q (Hq*D), k (Hk*D), v (Hk*D)
  int64_t ldqkv = 0;
  int32_t query_heads = 0;
  float const* q_norm = nullptr;  // [D], or [Hq*D] if wide, or null
  float const* k_norm = nullptr;  // [D], or [Hk*D]
  bool has_wide_norms = false;
  bool norms_after = false;      // norms of heads come after the rotation
  bool has_unit_norms = false;   // norms of heads of q and k without weights
  bool values_are_keys = false;  // values are the projection of k before its norm, and v is a buffer for them
  bool has_value_norm = false;   // norm of each head of v, without weights
  float norm_epsilon = 0;
  int32_t rotated = 0;         // R; 0: no rotation
  float const* cos = nullptr;  // [T, R/2]
  float const* sin = nullptr;
  float const* query_scale = nullptr;   // [context_max] or null: factor of q by position
  int32_t const* positions = nullptr;   // [T] absolute
  int32_t const* token_pages = nullptr; // [T] page that holds the token's position
  KvLayer kv;
};

// Steps between the projections and the attention of a latent layer, per token row. Queries: the unrotated
// part of each head goes to `nope`, the input of its product with the head's keys; the rotated part goes to
// the end of the head's row of `absorbed`, whose beginning that product fills. Keys: the RMS norm of the
// latent, followed by the rotated part, is appended to the token's page slot.
struct LatentAppend {
  float const* q = nullptr;  // [T, ldq]: Hq heads of nope_size + rotated numbers
  int64_t ldq = 0;
  float* kv = nullptr;  // [T, ldkv]: kv.latent + rotated numbers, overwritten
  int64_t ldkv = 0;
  int32_t query_heads = 0, nope_size = 0;
  float const* norm = nullptr;  // [kv.latent]
  float norm_epsilon = 0;
  int32_t rotated = 0;                  // R, a multiple of 16
  float const* cos = nullptr;           // [T, R/2]
  float const* sin = nullptr;
  float const* query_scale = nullptr;   // as in RopeAppend, likewise the next two
  int32_t const* positions = nullptr;
  int32_t const* token_pages = nullptr;
  KvLayer kv_layer;                     // plain, with a latent
  Operand nope;                         // [T, ld], plain: head h from column h * round_up(nope_size, kKAlign) on
  float* absorbed = nullptr;            // [T, ldabsorbed]: Hq heads of kv.head_size numbers
  int64_t ldabsorbed = 0;
};

// Row to draw from; the pointers are into the step block. engine.h defines the order of operations.
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

  // Packs rows of w (source [n, k] row-major, dtype src) for panels [begin, end). f16/f32 -> bf16 rounds to
  // nearest even. Grouped weights come from whole blocks of their own type, as in GGUF files. Formats with
  // is_rounded_to also come from any plain source.
  void (*pack)(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end);
  void (*gemm)(Gemm const& g, int64_t panel_begin, int64_t panel_end);
  // For measuring: runs multiply-adds in registers, with the instruction by which the level multiplies f32,
  // bf16 or, for any other type, int8, and returns the number of operations. A multiply-add is two.
  double (*peak)(Dtype dtype);
  // Adds up the words of `bytes`, a multiple of 256.
  uint64_t (*read)(char const* from, size_t bytes);
  // Rounds rows [begin, end) of x [T, ldx], f32 or bf16, to groups: `to` is for grouped weights, ld >=
  // round_up(k, 64) / kGroup.
  void (*quantise)(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t begin, int64_t end);
  // Writes the values of such groups to `to`, of f32 or bf16, and zeroes columns k..ld-1.
  void (*dequantise)(Operand const& to, InputGroup const* x, int64_t ldx, int64_t k, int64_t begin, int64_t end);

  // Sets x[t, :] to the embedding row of token ids[t] as f32, for t in [begin, end). The table is a
  // PackedMatrix [V, H].
  void (*embed)(float* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t begin, int64_t end);
  // Sets y[t, :] = n(x[t, :]) and zeroes columns H..ld-1 of y; groups are rounded like those of `quantise`.
  void (*norm)(Operand const& y, float const* x, int64_t ldx, Norm const& n, int64_t h, int64_t begin, int64_t end);
  // Adds x[t, :] += scale * n(d[t, :]).
  void (*add_normed)(float* x, int64_t ldx, float const* d, int64_t ldd, Norm const& n, float scale, int64_t h, int64_t begin,
                     int64_t end);
  // Multiplies x[t, i] by scale for i < n; with cap > 0 the result x then becomes cap * tanh(x / cap).
  void (*scale_and_cap)(float* x, int64_t ldx, int64_t n, float scale, float cap, int64_t begin, int64_t end);
  void (*rope_append)(RopeAppend const& a, int64_t begin, int64_t end);  // token rows
  void (*latent_append)(LatentAppend const& a, int64_t begin, int64_t end);  // likewise
  // Sets y[t, f] = activation(gu[t, f]) * gu[t, F + f] for f < F, or the formula of engine.h; groups are
  // rounded likewise.
  void (*gate)(Operand const& y, float const* gu, int64_t ldgu, int64_t f, Activation activation, int64_t begin, int64_t end);
  // Sets y[t, f] = activation(u[t, f]) for f < F, likewise. Only xielu reads `xielu`.
  void (*activate)(Operand const& y, float const* u, int64_t ldu, int64_t f, Activation activation, Xielu const& xielu,
                   int64_t begin, int64_t end);
  void (*attention)(Attention const& a, int64_t item_begin, int64_t item_end);
  // Multiplies y[t, i] by 1 / (1 + e^-g[t, i]) for i < n; y is of `dtype`, f32 or bf16.
  void (*gate_output)(void* y, Dtype dtype, int64_t ldy, float const* g, int64_t ldg, int64_t n, int64_t begin, int64_t end);
  // The parts of a recurrent mixer in order. state_conv replaces q, k and v in `in` by their convolutions, for
  // items [begin, end) of all chunks; a short convolution writes to `out`. state_gates makes decay, write and
  // products of token rows. state_scan makes `out`, for items. state_output gates token rows.
  void (*state_conv)(StateMixer const& m, int64_t item_begin, int64_t item_end);
  void (*state_gates)(StateMixer const& m, StateGates const& g, int64_t begin, int64_t end);
  void (*state_scan)(StateMixer const& m, int64_t item_begin, int64_t item_end);
  void (*state_output)(StateOutput const& o, int64_t begin, int64_t end);

  // Draws one token, the same on every level for the same logits. `logits` [V] is not changed; `scratch` has
  // sample_scratch_bytes(V). `top` receives 2*top_logprobs words: token, logprob bits.
  SampleResult (*sample)(SampleRow const& row, float const* logits, int32_t vocab, char* scratch, int32_t* top);
};

size_t attention_scratch_bytes(int32_t head_size);
// Floats of a row's sums: its unnormalised output, 16 sums of probabilities and the largest score. A state
// between two items has the sums of the current segment, and those of all segments before.
constexpr int64_t attention_sums_floats(int64_t head_size) { return head_size + 32; }
constexpr int64_t attention_state_floats(int64_t head_size) { return 2 * attention_sums_floats(head_size); }
size_t sample_scratch_bytes(int32_t vocab);
size_t kv_page_bytes(Dtype dtype, int32_t kv_heads, int32_t head_size);
// The same for keys without values.
size_t latent_page_bytes(Dtype dtype, int32_t head_size);
// Copies the first `count` tokens of page `from` to page `to` of one layer; the other slots of `to` become
// unspecified.
void copy_page(KvLayer const& kv, int32_t from, int32_t to, int32_t count);

// Returns the table for a level of BUNTING_ISA_*; null if the library was built without it.
Kernels const* kernels_for(int32_t isa);

}  // namespace bunting
