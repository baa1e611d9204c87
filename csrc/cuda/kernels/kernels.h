// kernels.h - the kernels of the CUDA engine. Each function queues one kernel on a stream; it allocates
// nothing and waits for nothing. Pointers are device memory, and rows start on 16 bytes.
//
// Number types are those of the CPU engine (csrc/cpu/kernels/kernels.h): bf16 weights, bf16 inputs of GEMMs,
// bf16 keys and values, f32 everywhere else, including the residual stream. reference/ has a plain loop for
// each kernel.
//
// Invariant, held by tests: a row's result does not depend on timing, on the rows beside it, or on the
// partition of a step into blocks, tiles and parts. So each sum has one order, which depends only on the
// model's shapes. Every variant of a kernel keeps that order.
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
#include "model/xielu.h"

namespace bunting::cuda {

using bf16 = uint16_t;

// ---- rows -----------------------------------------------------------------------------------------------

// Embedding: x[t] = scale * table[ids[t]] as f32. H is a multiple of 8.
struct Embed {
  float* x;            // [T, H]
  bf16 const* table;   // [V, H]
  int32_t const* ids;  // [T]
  int32_t tokens, hidden;
  float scale = 1;
};
void embed(Stream& stream, Embed const& e);

// Gather: to[r] = from[rows[r]], for steps after which only the requested rows continue. Rows are whole
// 16-byte vectors.
struct Gather {
  void const* from;
  void* to;
  int32_t const* rows;  // [count]
  int32_t count, row_bytes;
};
void gather(Stream& stream, Gather const& g);

// Residual addition and norm: x[r] = sum_scale * (x[r] + delta_scale * norm(delta[r])) if there is a delta,
// then y[r] = norm(x[r]). A norm without weights changes nothing. H is a multiple of 4.
struct AddNorm {
  float* x;             // [T, H] the residual stream
  float const* delta;   // [T, H] or null: x is only read
  float const* weight;  // [H] or null; with biases [2 H], the biases behind the weights
  bf16* y;              // [T, H] or null
  float epsilon;
  int32_t tokens, hidden;
  float delta_scale = 1;
  float const* delta_weight = nullptr;  // as `weight`
  int32_t kind = 0;                     // BUNTING_NORM_*
  float* exact = nullptr;               // [T, H] or null: y before it is rounded
  float sum_scale = 1;
  bool has_biases = false;
};
void add_norm(Stream& stream, AddNorm const& n);

// Gate: y[t, f] = activation(gate[t, f]) * up[t, f], or activation(gate[t, f]) alone. F and the strides are
// multiples of 4.
struct Gate {
  float const* gate;  // [T, F], rows gate_stride apart
  float const* up;    // [T, F], rows up_stride apart; or null
  int32_t gate_stride, up_stride;
  bf16* y;  // [T, F]
  int32_t tokens, feed_forward;
  int32_t activation = 0;            // BUNTING_ACTIVATION_*
  int32_t const* up_rows = nullptr;  // [T] row of `up` per token, or null
  // Factors of gate and up, or null: that of row t is scales[scale_rows[t]].
  float const* scales = nullptr;
  int32_t const* scale_rows = nullptr;
  Xielu xielu = {};  // of BUNTING_ACTIVATION_XIELU, which has no `up`
};
void gate(Stream& stream, Gate const& g);
// Returns the Gate for gate_up [T, 2F]: gate, then up.
inline Gate gate_of(float const* gate_up, bf16* y, int32_t tokens, int32_t width, int32_t activation) {
  return {gate_up, gate_up + width, 2 * width, 2 * width, y, tokens, width, activation};
}

// Soft cap: x = cap * tanh(x / cap), in place.
struct Cap {
  float* x;
  int64_t count;
  float cap;  // > 0
};
void cap(Stream& stream, Cap const& c);

// ---- matrix products ------------------------------------------------------------------------------------

// Matrix [N, K] in device memory: consecutive rows, and consecutive scales of rows (quantise.h).
struct WeightMatrix {
  void const* data = nullptr;
  void const* scales = nullptr;
  Format format = Format::plain;

  WeightMatrix(bf16 const* rows) : data(rows) {}
  WeightMatrix(Format how, void const* rows, void const* row_scales)
      : data(rows), scales(row_scales), format(how) {}
};

// GEMM: y[t, n] = sum_k x[t, k] * w[n, k] + bias[n], with f32 sums. K is a multiple of 8.
//
// Order of a sum: K is cut into gemm_parts() parts of whole steps of gemm_step() k. Part p of P has steps
// [S*p/P, S*(p+1)/P). A part is one chain of matrix instructions. Two instructions share each 32 adjacent k:
// of each eight of them the first processes k 0..3, the second k 4..7. The parts are added to the bias, or to
// zero, in order.
struct Gemm {
  bf16 const* x;      // [T, K]
  WeightMatrix w;     // [N, K]
  float const* bias;  // [N] or null
  float* y;           // [T, N]
  int32_t tokens, n, k;
  // Scratch for few tokens: a product per part, at most kGemmPartialFloats in all, and counters that are zero
  // before and after. Products of one stream may share both.
  float* partial = nullptr;
  int32_t* arrived = nullptr;  // [kGemmArrived]
};
void gemm(Stream& stream, Gemm const& g);

// Rows of a step by expert: those of expert e are begin[e] to begin[e + 1].
struct Experts {
  int32_t const* begin;  // [E + 1]
  int32_t count;         // E
  int32_t used;          // k, the most experts per token
};

// GEMM with one matrix per expert: each row of x is multiplied by its expert's matrix, plus that expert's
// bias. The E matrices [N, K] and E biases [N] are consecutive. For up to 64 tokens the kernel reads the
// matrix of each expert in use once. Otherwise it reads the matrix once per token tile of gemm_many. `tokens`
// counts rows, T * k of them. The counters are kGemmArrived or gemm_experts_arrived().
void gemm_experts(Stream& stream, Gemm const& g, Experts const& experts);
// Number of counters for a product with n columns per expert.
constexpr int32_t gemm_experts_arrived(int32_t n, int32_t experts) {
  return (n + 127) / 128 * experts;
}

// Implementations of both. Up to kGemmFewTokens tokens the weights dominate the traffic and go directly to
// registers. Above, tiles of both matrices go through shared memory.
inline constexpr int32_t kGemmFewTokens = 64;
void gemm_few(Stream& stream, Gemm const& g);
void gemm_many(Stream& stream, Gemm const& g);
void gemm_few_experts(Stream& stream, Gemm const& g, Experts const& experts);
void gemm_many_experts(Stream& stream, Gemm const& g, Experts const& experts);

// Number of parts of K: 1, 2, 4 or 8, enough for few tokens to occupy a large GPU. It is the same on all GPUs
// and for any number of tokens.
int32_t gemm_parts(int32_t n, int32_t k);
inline constexpr int32_t kGemmPartialFloats = kGemmFewTokens << 15, kGemmArrived = 128;
constexpr int32_t gemm_step(Format format) {
  return has_four_bits(format) ? 128 : 64;
}

// ---- keys and values ------------------------------------------------------------------------------------

// KV pages of one layer: [page][layer][keys | values][kv head][Tp][D]. Strides are in units of two bytes, so
// that the engine may choose another order of the outer dimensions.
//
// Elements are bf16 or e4m3. In e4m3 each head and slot has a multiplier for its keys and one for its values.
// All multipliers are after the layer's values: [kv head][Tp] words, keys in the low half. A multiplier is a
// power of two times 2^120 in bf16. The largest code of its slot is 224 .. 448, except for tiny numbers. It
// is NaN if a number was not finite.
struct KvPages {
  bf16* layer;  // page 0 of the layer
  int64_t page_stride;
  int64_t values;  // distance from a head's keys to its values
  int32_t kv_heads, head_size, page_tokens;
  bool fp8 = false;
  int64_t multipliers = 0;  // offset from `layer`
};

inline constexpr int32_t kNoSlot = -1;

// ---- experts --------------------------------------------------------------------------------------------

// Router: logits[t, e] = sum_h x[t, h] * w[e, h] + bias[e], all in f32. H is a multiple of 4.
struct Router {
  float const* x;     // [T, H]
  float const* w;     // [E, H]
  float const* bias;  // [E] or null
  float* logits;      // [T, E]
  int32_t tokens, experts, hidden;
};
void router(Stream& stream, Router const& r);

// Choice of the k experts with the largest scores plus biases per token, ties to the lower number, listed by
// rising number, with their weights, times a scale and a scale per expert (engine.h, BUNTING_ROUTER_*). A NaN
// logit makes all weights of its token NaN. k is at most kExpertsUsedMax.
inline constexpr int32_t kExpertsUsedMax = 32;
struct ChooseExperts {
  float* logits;         // [T, E]; become scores, unless those are of the chosen logits
  int32_t const* slots;  // [T] or null: tokens with kNoSlot choose no expert (-1), with weights 0
  int32_t* chosen;       // [T, k]
  float* weights;        // [T, k]
  int32_t tokens, experts, used;
  int32_t score;                  // BUNTING_ROUTER_CHOSEN, .._ALL, .._SIGMOID
  float const* scales = nullptr;  // [E] or null
  float const* bias = nullptr;    // [E] or null
  bool is_normalised = false;     // the scores of the chosen are divided by their sum
  int32_t groups = 1, groups_used = 1;
  float scale = 1;
};
void choose_experts(Stream& stream, ChooseExperts const& c);

// Grouping of the (token, expert) pairs by rising expert, then rising token.
struct GroupExperts {
  int32_t const* chosen;  // [T, k]
  int32_t* begin;         // [E + 1], see Experts
  int32_t* row;           // [T k] token of each pair; 0 after the last pair
  int32_t* pair;          // [T, k] index of each choice's pair, or -1
  int32_t tokens, experts, used;
};
void group_experts(Stream& stream, GroupExperts const& g);

// Sum over a token's experts: y[t] = sum, by rising number, of weight * x[pair], from shared experts' output
// on, if there are any, times the sigmoid of their gate. H is a multiple of 4.
struct CombineExperts {
  float* y;              // [T, H]
  float const* x;        // [T k, H]
  int32_t const* pair;   // [T, k]
  float const* weights;  // [T, k], or null for 1
  int32_t tokens, used, hidden;
  float const* shared = nullptr;  // [T, H] or null
  float const* gates = nullptr;   // [T] or null
};
void combine_experts(Stream& stream, CombineExperts const& c);

// ---- between the GEMMs ------------------------------------------------------------------------------------

// RoPE angles: cos, sin[t, i] of the token's position, composed from the far and the near angle, times the
// magnitude. The bits are those of rope_table.h.
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

// Steps between the QKV product and attention, per token: RMS norm of each q and k head, or over all heads,
// if there are norm weights; RMS norm of each v head if has_value_norm; rotation of the first R numbers of
// each head of q and k, if there are angles; scale of q by position, if query_scale; append of k and v to the
// token's page slot. D is a multiple of 16, at most 512; R is a multiple of 4, at most D. Without KV heads
// there is only q.
struct RopeAppend {
  float const* qkv;  // [T, (Hq + 2*Hk) * D]: q, k, v; or without v
  bf16* q;           // [T, Hq*D], not scaled
  int32_t query_heads;
  float const* q_norm;  // [D], or [Hq*D] for a norm over all heads, or null
  float const* k_norm;  // [D] or [Hk*D]
  float norm_epsilon;
  float const* cos;  // [T, R/2], or null
  float const* sin;
  float const* query_scale;  // [context_max], or null
  int32_t const* positions;  // [T]
  int32_t const* slots;      // [T] page * Tp + slot of the append, or kNoSlot
  KvPages kv;
  int32_t tokens;
  int32_t rotated;  // R
  bool has_wide_norms = false;
  bool values_are_keys = false;  // v is the unnormed k
  bool has_value_norm = false;
  bool norms_after = false;     // norms of heads come after the rotation
  bool has_unit_norms = false;  // norms of heads of q and k without weights
};
void rope_append(Stream& stream, RopeAppend const& a);

// Steps between the projections and the attention of a latent layer (engine.h), per token. The unrotated part
// of each query head goes to `nope`, the rotated part to the end of the head in q, whose beginning the
// product with the head's keys fills. The norm of the latent and the rotated part are appended to the token's
// slot.
struct LatentAppend {
  float const* queries;  // [T, Hq * (nope_size + R)]
  float const* key;      // [T, D]: the latent, then R numbers
  bf16* nope;            // [T, Hq * nope_size]
  bf16* q;               // [T, Hq * D]
  int32_t query_heads, nope_size, latent;
  float const* norm;  // [latent]
  float norm_epsilon;
  int32_t rotated;   // R
  float const* cos;  // [T, R/2]
  float const* sin;
  float const* query_scale;  // [context_max], or null
  int32_t const* positions;  // [T]
  int32_t const* slots;      // [T] as in RopeAppend
  KvPages kv;                // one head, without values
  int32_t tokens;
};
void latent_append(Stream& stream, LatentAppend const& a);

// Products of each head with matrices of its own: y[t, h, n] = sum_k x[t, h, k] * w[h * N + n, k], in one
// chain over k. N and K are multiples of 16.
struct HeadProduct {
  bf16 const* x;  // heads x_head apart, tokens x_token apart
  bf16 const* w;  // [heads * N, K]
  bf16* y;        // likewise
  int64_t x_token, x_head, y_token, y_head;
  int32_t tokens, heads, n, k;
};
void head_product(Stream& stream, HeadProduct const& p);

// Attention over latents: all query heads read the same keys, and the first `latent` numbers of a key are its
// value. A row sees all positions up to its own, in one chain of tiles.
struct LatentAttention {
  bf16 const* q;  // [T, Hq * D], not scaled
  bf16* out;      // [T, Hq * latent]
  KvPages kv;     // pages of 16 tokens, as in LatentAppend
  int32_t query_heads, latent;
  float scale;
  int32_t const* pages;      // page ids
  int32_t const* pages_at;   // [T] index of the page of position 0 of the token's chunk
  int32_t const* positions;  // [T]
  int32_t const* slots;      // [T]: tokens with kNoSlot are skipped
  int32_t tokens;
};
void latent_attention(Stream& stream, LatentAttention const& a);
inline constexpr int32_t kLatentMax = 512;

// Page copy: the first `tokens` slots of page `from` are copied to page `to`, for layers of one size that are
// adjacent. Copies of one call have different `to` pages, and no page is both source and target.
struct PageCopy {
  int32_t from, to, tokens;
};
struct CopyPages {
  bf16* pages;             // page 0 of the first layer
  PageCopy const* copies;  // [count], device memory
  int32_t count;
  // In units of two bytes: distance between pages, and length of these layers in a page.
  int64_t page_stride, elements;
  int32_t head_size, page_tokens;
  int32_t fp8_heads = 0;  // KV heads if keys and values are e4m3, 0 if they are bf16
};
void copy_pages(Stream& stream, CopyPages const& c);

// ---- attention ------------------------------------------------------------------------------------------

// Attention: out = softmax(scale * q k^T) v over the positions that each token sees, following a plan
// (attention_plan.h). With a cap a score s becomes cap * tanh(s / cap). A head's sink is one more score,
// whose value is zero. D is 32, 64, 96, 128, 256 or 512. At most kManyRows query heads share a KV head.
struct Attention {
  bf16 const* q;  // [T, Hq*D], not scaled
  bf16* out;      // [T, Hq*D]
  KvPages kv;     // pages of 16 tokens
  int32_t query_heads;
  int32_t sliding_window;  // 0: none
  float scale;

  int32_t blocks;  // blocks of the plan; the following arrays are the plan in device memory
  AttentionItem const* items;
  int32_t const* item_begin;
  int32_t const* merge_begin;
  int32_t const* merge_rows;
  int32_t const* pages;      // page ids
  int32_t const* positions;  // [T]

  float* partial_out;  // [partial rows, D]
  float* partial_log;  // [partial rows]: log2 of the sum of exp2 of scores
  float* running;      // [blocks, kManyRows, D] scratch: sums of an item's spans so far
  int32_t* arrived;    // [T * Hk], zero before and after

  float cap = 0;                 // 0: none
  float const* sinks = nullptr;  // [Hq] or null
  bool is_chunked = false;       // the window is a chunk (engine.h)
};
void attention(Stream& stream, Attention const& a);

// Blocks of attention per multiprocessor for which the kernels are compiled.
inline constexpr int32_t kAttentionBlocks = 2;
// Returns how many blocks with these heads a multiprocessor of the current device runs at a time.
int32_t attention_blocks_resident(int32_t head_size, bool is_fp8);

// ---- sampling -------------------------------------------------------------------------------------------

// Sampling: draws a token per row as engine.h defines it and writes results in engine.h's format. Tokens of
// one list of pairs are distinct.
struct Sample {
  float const* logits;   // [rows, V], unchanged
  float* changed;        // [rows, V] scratch: logits after penalties, biases and bitmask
  uint32_t const* rows;  // [rows, BUNTING_ROW_WORDS], from the step block, as are pairs and words
  int32_t const* pairs;
  uint32_t const* words;
  uint32_t* results;     // [rows, result_words]; may be mapped memory
  int32_t result_words;  // BUNTING_RESULT_ROW_WORDS + 2 * top_logprobs_max
  int32_t row_count, vocab;
};
void sample(Stream& stream, Sample const& s);

}  // namespace bunting::cuda
