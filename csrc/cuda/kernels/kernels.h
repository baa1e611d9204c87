// kernels.h - what the CUDA engine computes with. Each function queues one kernel on a stream; it allocates
// nothing and waits for nothing. Pointers are device memory, rows start on 16 bytes.
//
// Numbers are those of the CPU engine (csrc/kernels/kernels.h): bf16 weights, bf16 activations into matrix
// products, bf16 keys and values, f32 everywhere else, the residual stream among it. reference/ has a plain
// loop for each.
//
// Promise, tested: the same arguments give the same bits, whatever the timing, and a row's result does not
// depend on the rows beside it, except through the number of splits that attention and matrix products
// choose.
//
// Dimension letters are those of engine.h: T tokens, H hidden, Hq/Hk heads, D head size, F feed-forward, V
// vocabulary, Tp tokens per page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention_plan.h"
#include "cuda/runtime.h"

namespace bunting::cuda {

using bf16 = uint16_t;

// ---- rows -----------------------------------------------------------------------------------------------

// x[t] = table[ids[t]] as f32. H is a multiple of 8.
struct Embed {
  float* x;            // [T, H]
  bf16 const* table;   // [V, H]
  int32_t const* ids;  // [T]
  int32_t tokens, hidden;
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

// x[r] += delta[0][r] + delta[1][r] + ..., then y[r] = x[r] / sqrt(mean(x[r]^2) + epsilon) * weight. H is a
// multiple of 4.
struct RmsNorm {
  float* x;             // [T, H] the residual stream
  float const* delta;   // [deltas, T, H]: partial sums of a matrix product, added in this order
  int32_t deltas;       // 0: x is only read
  float const* weight;  // [H]
  bf16* y;              // [T, H]
  float epsilon;
  int32_t tokens, hidden;
};
void rmsnorm(Stream& stream, RmsNorm const& n);

// y[t, f] = silu(gate_up[t, f]) * gate_up[t, F + f]. F is a multiple of 4.
struct SwiGlu {
  float const* gate_up;  // [T, 2F]
  bf16* y;               // [T, F]
  int32_t tokens, feed_forward;
};
void swiglu(Stream& stream, SwiGlu const& s);

// ---- matrix products ------------------------------------------------------------------------------------

// y[0][t, n] + y[1][t, n] + .. = sum_k x[t, k] * w[n, k] + bias[n], with f32 sums. K is a multiple of 8.
// Part i of `splits` takes a share of K, so that few tokens and few columns still occupy the device;
// whoever reads y adds the parts.
struct Gemm {
  bf16 const* x;      // [T, K]
  bf16 const* w;      // [N, K]
  float const* bias;  // [N] or null
  float* y;           // [splits, T, N]
  int32_t tokens, n, k;
  int32_t splits;
};
void gemm(Stream& stream, Gemm const& g);

// The two kernels behind it: up to kGemmFewTokens tokens the weights are all there is to read, and go
// straight to registers; above, tiles of both matrices go through shared memory.
inline constexpr int32_t kGemmFewTokens = 64;
void gemm_few(Stream& stream, Gemm const& g);
void gemm_many(Stream& stream, Gemm const& g);

// How many splits occupy a device of so many multiprocessors, at most `splits_max`.
int32_t gemm_splits(int32_t tokens, int32_t n, int32_t k, int32_t multiprocessors, int32_t splits_max);

// ---- keys and values ------------------------------------------------------------------------------------

// One layer's part of the KV pages: [page][layer][keys | values][kv head][Tp][D] bf16. Strides are in
// elements, so that the engine may choose another order of the outer dimensions.
struct KvPages {
  bf16* layer;  // page 0 of the layer
  int64_t page_stride;
  int64_t values;  // from a head's keys to its values
  int32_t kv_heads, head_size, page_tokens;
  int64_t head_stride() const { return int64_t(page_tokens) * head_size; }
};

// What follows the QKV product, per token: RMS norm of each q and k head if there are weights for it,
// rotation of q and k, append of k and v to the token's page slot. D is a multiple of 16, at most 256.
struct RopeAppend {
  float const* qkv;  // [T, (Hq + 2*Hk) * D]: q, k, v
  bf16* q;           // [T, Hq*D], not scaled
  int32_t query_heads;
  float const* q_norm;  // [D] or null
  float const* k_norm;
  float norm_epsilon;
  float const* cos;  // [context_max, D/2]
  float const* sin;
  int32_t const* positions;  // [T]
  int32_t const* slots;      // [T] page * Tp + slot to append to
  KvPages kv;
  int32_t tokens;
};
void rope_append(Stream& stream, RopeAppend const& a);

// The first `tokens` slots of page `from`, of all layers, become those of page `to`. Copies of one call
// touch different `to` pages, and no page is both.
struct PageCopy {
  int32_t from, to, tokens;
};
struct CopyPages {
  bf16* pages;
  PageCopy const* copies;  // [count], device memory
  int32_t count;
  int64_t page_elements;
  int32_t head_size, page_tokens;
};
void copy_pages(Stream& stream, CopyPages const& c);

// ---- attention ------------------------------------------------------------------------------------------

// out = softmax(scale * q k^T) v over the positions that each token sees, after a plan (attention_plan.h).
// D is 32, 64, 96 or 128; at most kManyRows query heads share a KV head.
struct Attention {
  bf16 const* q;  // [T, Hq*D], not scaled
  bf16* out;      // [T, Hq*D]
  KvPages kv;     // Tp is 1 << page_shift
  int32_t page_shift;
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
  int32_t* arrived;    // [T * Hk], zero before and after
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
