// kernels.h - what the CUDA engine computes with. Each function queues one kernel on a stream; it allocates
// nothing and waits for nothing. Pointers are device memory, rows start on 16 bytes.
//
// Numbers are those of the CPU engine (csrc/cpu/kernels/kernels.h): bf16 weights, bf16 activations into
// matrix products, bf16 keys and values, f32 everywhere else, the residual stream among it. reference/ has a
// plain loop for each.
//
// Promise, tested: a row's result does not depend on timing, on the rows beside it, or on how a step was cut
// into blocks, tiles and parts. So each sum has one order, which the shapes of the model alone decide; every
// variant of a kernel keeps to it.
//
// Dimension letters are those of engine.h: T tokens, H hidden, Hq/Hk heads, D head size, F feed-forward, V
// vocabulary, Tp tokens per page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention_plan.h"
#include "cuda/quantise.h"
#include "cuda/runtime.h"
#include "model/rope_table.h"

namespace bunting::cuda {

using bf16 = uint16_t;

// ---- rows -----------------------------------------------------------------------------------------------

// x[t] = scale * table[ids[t]] as f32. H is a multiple of 8.
struct Embed {
  float* x;            // [T, H]
  bf16 const* table;   // [V, H]
  int32_t const* ids;  // [T]
  int32_t tokens, hidden;
  float scale = 1;
};
void embed(Stream& stream, Embed const& e);

// to[r] = from[rows[r]]: what goes on with the rows to sample alone. Rows are whole vectors of sixteen
// bytes.
struct Gather {
  void const* from;
  void* to;
  int32_t const* rows;  // [count]
  int32_t count, row_bytes;
};
void gather(Stream& stream, Gather const& g);

// x[r] = sum_scale * (x[r] + delta_scale * norm(delta[r])) if there is a delta, then y[r] = norm(x[r]). A
// norm without weights changes nothing. H is a multiple of 4.
struct AddNorm {
  float* x;             // [T, H] the residual stream
  float const* delta;   // [T, H] or null: x is only read
  float const* weight;  // [H] or null
  bf16* y;              // [T, H] or null
  float epsilon;
  int32_t tokens, hidden;
  float delta_scale = 1;
  float const* delta_weight = nullptr;  // [H] or null
  int32_t kind = 0;                     // BUNTING_NORM_*
  float* exact = nullptr;               // [T, H] or null: y before it is rounded
  float sum_scale = 1;
};
void add_norm(Stream& stream, AddNorm const& n);

// y[t, f] = activation(gate[t, f]) * up[t, f]. F and the strides are multiples of 4.
struct Gate {
  float const* gate;  // [T, F] of rows that are gate_stride apart
  float const* up;    // likewise
  int32_t gate_stride, up_stride;
  bf16* y;  // [T, F]
  int32_t tokens, feed_forward;
  int32_t activation = 0;            // BUNTING_ACTIVATION_*
  int32_t const* up_rows = nullptr;  // [T]: the row of `up` for each token, or null
};
void gate(Stream& stream, Gate const& g);
// Of gate_up [T, 2F]: gate, then up.
inline Gate gate_of(float const* gate_up, bf16* y, int32_t tokens, int32_t width, int32_t activation) {
  return {gate_up, gate_up + width, 2 * width, 2 * width, y, tokens, width, activation};
}

// x = cap * tanh(x / cap).
struct Cap {
  float* x;
  int64_t count;
  float cap;  // > 0
};
void cap(Stream& stream, Cap const& c);

// ---- matrix products ------------------------------------------------------------------------------------

// A matrix [N, K] in device memory: rows after each other, and their scales likewise (quantise.h).
struct WeightMatrix {
  void const* data = nullptr;
  void const* scales = nullptr;
  Format format = Format::plain;

  WeightMatrix(bf16 const* rows) : data(rows) {}
  WeightMatrix(Format how, void const* rows, void const* row_scales)
      : data(rows), scales(row_scales), format(how) {}
};

// y[t, n] = sum_k x[t, k] * w[n, k] + bias[n], with f32 sums. K is a multiple of 8.
//
// The order of a sum: K is cut into gemm_parts() parts of whole steps of gemm_step(), part p of P having
// steps [S*p/P, S*(p+1)/P). A part is one chain of matrix instructions; two take each 32 neighbouring k in
// turn, of each eight of them k 0..3, then k 4..7. The parts are added to the bias, or to zero, in order.
struct Gemm {
  bf16 const* x;      // [T, K]
  WeightMatrix w;     // [N, K]
  float const* bias;  // [N] or null
  float* y;           // [T, N]
  int32_t tokens, n, k;
  // For few tokens: a product of its own for each part, of at most kGemmPartialFloats, and counters, zero
  // before and after. Products of one stream may share both.
  float* partial = nullptr;
  int32_t* arrived = nullptr;  // [kGemmArrived]
};
void gemm(Stream& stream, Gemm const& g);

// Which rows of a step each of E experts computes: those of expert e are begin[e] to begin[e + 1].
struct Experts {
  int32_t const* begin;  // [E + 1]
  int32_t count;         // E
  int32_t used;          // k: each token has a row with so many experts at most
};

// A product in which each row of x has the matrix of its expert, and its bias: E matrices [N, K] and E
// biases [N] follow each other. Each matrix of which a row needs anything is read once, up to 64 rows of the
// step, and above that once for as many rows as a block of gemm_many takes. `tokens` counts rows, T * k of
// them; counters are kGemmArrived or gemm_experts_arrived().
void gemm_experts(Stream& stream, Gemm const& g, Experts const& experts);
// Counters that a product of so many columns and experts needs.
constexpr int32_t gemm_experts_arrived(int32_t n, int32_t experts) {
  return (n + 127) / 128 * experts;
}

// The two kernels behind them: up to kGemmFewTokens tokens the weights are all there is to read, and go
// straight to registers; above, tiles of both matrices go through shared memory.
inline constexpr int32_t kGemmFewTokens = 64;
void gemm_few(Stream& stream, Gemm const& g);
void gemm_many(Stream& stream, Gemm const& g);
void gemm_few_experts(Stream& stream, Gemm const& g, Experts const& experts);
void gemm_many_experts(Stream& stream, Gemm const& g, Experts const& experts);

// 1, 2, 4 or 8: enough for few tokens to occupy a large GPU. The same on all GPUs and for any tokens.
int32_t gemm_parts(int32_t n, int32_t k);
inline constexpr int32_t kGemmPartialFloats = kGemmFewTokens << 15, kGemmArrived = 128;
constexpr int32_t gemm_step(Format format) {
  return has_four_bits(format) ? 128 : 64;
}

// ---- keys and values ------------------------------------------------------------------------------------

// One layer's part of the KV pages: [page][layer][keys | values][kv head][Tp][D]. Strides are in units of two
// bytes, so that the engine may choose another order of the outer dimensions.
//
// In bf16, or in e4m3 with a multiplier for the keys and one for the values of each head and slot, all of
// them after the layer's values: [kv head][Tp] words, keys in the low half. A multiplier is a power of two
// times 2^120 in bf16, the largest number of its slot becoming 224 to 448, or NaN if that was not finite.
struct KvPages {
  bf16* layer;  // page 0 of the layer
  int64_t page_stride;
  int64_t values;  // from a head's keys to its values
  int32_t kv_heads, head_size, page_tokens;
  bool fp8 = false;
  int64_t multipliers = 0;  // from `layer`
};

inline constexpr int32_t kNoSlot = -1;

// ---- experts --------------------------------------------------------------------------------------------

// logits[t, e] = sum_h x[t, h] * w[e, h] + bias[e], all in f32. H is a multiple of 4.
struct Router {
  float const* x;     // [T, H]
  float const* w;     // [E, H]
  float const* bias;  // [E] or null
  float* logits;      // [T, E]
  int32_t tokens, experts, hidden;
};
void router(Stream& stream, Router const& r);

// The k experts of each token with the largest logits, of equal ones the first, by rising number, and their
// weights: softmax of their logits, or their shares of that of all logits, times a scale of each. A logit
// that is NaN makes all weights of its token NaN. k is at most kExpertsUsedMax.
inline constexpr int32_t kExpertsUsedMax = 32;
struct ChooseExperts {
  float const* logits;   // [T, E]
  int32_t const* slots;  // [T] or null: tokens with kNoSlot choose none, -1, with weights 0
  int32_t* chosen;       // [T, k]
  float* weights;        // [T, k]
  int32_t tokens, experts, used;
  bool softmax_of_all;
  float const* scales = nullptr;  // [E] or null
};
void choose_experts(Stream& stream, ChooseExperts const& c);

// Places the pairs of a token and an expert by rising expert, then rising token.
struct GroupExperts {
  int32_t const* chosen;  // [T, k]
  int32_t* begin;         // [E + 1] see Experts
  int32_t* row;           // [T k] the token of each pair; behind the last pair 0
  int32_t* pair;          // [T, k] where each choice went, or -1
  int32_t tokens, experts, used;
};
void group_experts(Stream& stream, GroupExperts const& g);

// y[t] = sum over t's experts, by rising number, of weight * x[pair]. H is a multiple of 4.
struct CombineExperts {
  float* y;              // [T, H]
  float const* x;        // [T k, H]
  int32_t const* pair;   // [T, k]
  float const* weights;  // [T, k]
  int32_t tokens, used, hidden;
};
void combine_experts(Stream& stream, CombineExperts const& c);

// ---- between the products -------------------------------------------------------------------------------

// cos, sin[t, i] = those of the turns far and near of the token's position, one after the other, times the
// magnitude: rope_table.h, to the bit.
struct RopeAngles {
  Turn const* far;           // [.., R/2]
  Turn const* near;          // [kRopeStride, R/2]
  int32_t const* positions;  // [T]
  float* cos;                // [T, R/2]
  float* sin;
  int32_t tokens, pairs;  // R/2
  float magnitude;
};
void rope_angles(Stream& stream, RopeAngles const& r);

// What follows the QKV product, per token: RMS norm of each q and k head, or of all of them together, if
// there are weights for it, of each v head if that is asked for, rotation of the first R numbers of each head
// of q and k if there are angles, growth of q with its position if that is asked for, append of k and v to
// the token's page slot. D is a multiple of 16, at most 512; R is a multiple of 4, at most D. Without KV
// heads there is only q.
struct RopeAppend {
  float const* qkv;  // [T, (Hq + 2*Hk) * D]: q, k, v; or without v
  bf16* q;           // [T, Hq*D], not scaled
  int32_t query_heads;
  float const* q_norm;  // [D], or [Hq*D] of all heads together, or null
  float const* k_norm;  // [D] or [Hk*D]
  float norm_epsilon;
  float const* cos;  // [T, R/2], or null
  float const* sin;
  float const* query_scale;  // [context_max], or null
  int32_t const* positions;  // [T]
  int32_t const* slots;      // [T] page * Tp + slot to append to, or kNoSlot
  KvPages kv;
  int32_t tokens;
  int32_t rotated;  // R
  bool has_wide_norms = false;
  bool values_are_keys = false;  // v is k as it comes
  bool has_value_norm = false;
};
void rope_append(Stream& stream, RopeAppend const& a);

// The first `tokens` slots of page `from`, of layers of one size that lie together, become those of page
// `to`. Copies of one call touch different `to` pages, and no page is both.
struct PageCopy {
  int32_t from, to, tokens;
};
struct CopyPages {
  bf16* pages;             // page 0 of the first layer
  PageCopy const* copies;  // [count], device memory
  int32_t count;
  int64_t page_stride, elements;  // of two bytes: from page to page, and of these layers in one
  int32_t head_size, page_tokens;
  int32_t fp8_heads = 0;  // KV heads if keys and values are e4m3, 0 if they are bf16
};
void copy_pages(Stream& stream, CopyPages const& c);

// ---- attention ------------------------------------------------------------------------------------------

// out = softmax(scale * q k^T) v over the positions that each token sees, after a plan (attention_plan.h).
// With a cap a score s is cap * tanh(s / cap); a head's sink is one more score, whose value is zero. D is 32,
// 64, 96, 128, 256 or 512; at most kManyRows query heads share a KV head.
struct Attention {
  bf16 const* q;  // [T, Hq*D], not scaled
  bf16* out;      // [T, Hq*D]
  KvPages kv;     // of 16 tokens
  int32_t query_heads;
  int32_t sliding_window;  // 0: none
  float scale;

  int32_t blocks;  // of the plan; the rest of it, in device memory
  AttentionItem const* items;
  int32_t const* item_begin;
  int32_t const* merge_begin;
  int32_t const* merge_rows;
  int32_t const* pages;      // page ids
  int32_t const* positions;  // [T]

  float* partial_out;  // [partial rows, D]
  float* partial_log;  // [partial rows]: log2 of the sum of exp2
  float* running;      // [blocks, kManyRows, D] scratch: what an item's spans have come to
  int32_t* arrived;    // [T * Hk], zero before and after

  float cap = 0;                 // 0: none
  float const* sinks = nullptr;  // [Hq] or null
};
void attention(Stream& stream, Attention const& a);

// Blocks of attention that one multiprocessor holds.
inline constexpr int32_t kAttentionBlocks = 2;

// ---- sampling -------------------------------------------------------------------------------------------

// Draws a token for each row as engine.h words it and writes results in engine.h's format. Tokens of one
// list of pairs are distinct.
struct Sample {
  float const* logits;   // [rows, V], not changed
  float* changed;        // [rows, V] scratch: logits after penalties, biases and bitmask
  uint32_t const* rows;  // [rows, BUNTING_ROW_WORDS], of the step block, as pairs and words
  int32_t const* pairs;
  uint32_t const* words;
  uint32_t* results;     // [rows, result_words]; may be mapped memory
  int32_t result_words;  // BUNTING_RESULT_ROW_WORDS + 2 * top_logprobs_max
  int32_t row_count, vocab;
};
void sample(Stream& stream, Sample const& s);

}  // namespace bunting::cuda
