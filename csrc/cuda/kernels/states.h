// states.h - the kernels of recurrent mixers (engine.h), under the conventions of kernels.h.
//
// Letters: Gk key heads of Dk numbers, Gv value heads of Dv, K inputs of the convolution, S chunks.
//
// Each token is computed from the state after the one before it, in one order of sums, so a chunk's results
// do not depend on where it begins. A slot has, for each recurrent layer, the last K-1 inputs of the
// convolution [K-1, channels], the oldest first, then the matrices [Gv, Dv, Dk]: the Dk numbers of a column
// are adjacent.
#pragma once

#include <cstdint>

#include "cuda/runtime.h"

namespace bunting::cuda {

using bf16 = uint16_t;

// Tokens [first_token, first_token + count) of a sequence and its state slots. A padding chunk has no tokens.
struct StateChunk {
  int32_t first_token, count;
  int32_t slot;  // receives the state after the chunk
  int32_t from;  // has the state before the chunk; -1: zeros
  int32_t saves_at, save_count;
};
// Copy of the state after a chunk's first `count` tokens. The counts of a chunk rise.
struct StateCopy {
  int32_t count, slot;
};

// Chunks of a step, in device memory.
struct StateStep {
  StateChunk const* chunks;       // [S]
  int32_t const* chunk_of_token;  // [T], -1 for padding, which the kernels leave out
  StateCopy const* saves;
  int32_t chunk_count, tokens;
};

// States of one layer in the slots.
struct StateLayer {
  float* slots;         // slot 0; slot s is s * stride floats behind it
  int64_t stride;       // a multiple of 4
  int64_t matrices_at;  // a multiple of 4
};

// Sizes of the mixer. A short convolution has no heads and `channels` of its own.
struct StateSizes {
  int32_t key_heads, heads, key_size, value_size;  // Gk, Gv, Dk, Dv: multiples of 16 up to 256
  int32_t taps;                                    // K, 2 to 8
  int32_t channels;                                // 2 Gk Dk + Gv Dv, or H, a multiple of 8
  bool is_delta = false;
  bool has_tiled_heads = false;  // value head h belongs to key head h % Gk, else to h / (Gv / Gk)
};

// Convolution and silu of q, k and v; with delta the heads of q and k become x / |x|, q also / sqrt(Dk). And
// the numbers of the recurrence per token and value head, with s = softplus(a + dt_bias): delta has the decay
// exp(rate s) and the factor sigmoid(b), SSM the decay exp(rate dt) and the factor dt = clamp(s).
struct StateConv {
  float const* in;  // [T, in_stride]: q, k, v
  int32_t in_stride;
  float* out;            // [T, channels]
  float const* weights;  // [K, channels], those of the oldest token first
  float const* bias;     // [channels] or null
  StateSizes sizes;
  StateLayer memory;
  StateStep step;
  float const* gates;    // [T, Gv], or [T, 2 Gv] with delta: a, then b
  float const* dt_bias;  // [Gv]
  float const* rates;    // [Gv] -exp(A_log)
  float dt_min, dt_max;
  float* decay;   // [T, Gv]
  float* factor;  // [T, Gv]
};
void state_conv(Stream& stream, StateConv const& c);

// Short convolution: out = k * conv(q * v).
struct ShortConv {
  float const* in;       // [T, 3 channels]: q, k, v
  bf16* out;             // [T, channels]
  float const* weights;  // as above
  float const* bias;
  StateSizes sizes;
  StateLayer memory;
  StateStep step;
};
void short_conv(Stream& stream, ShortConv const& c);

// Convolution's last K-1 inputs after each chunk, and for its saves, once all outputs of the step are
// computed.
struct StateHistory {
  float const* in;  // as in StateConv or ShortConv
  int32_t in_stride;
  bool is_short;  // an input is q * v
  StateSizes sizes;
  StateLayer memory;
  StateStep step;
};
void state_history(Stream& stream, StateHistory const& h);

// Recurrence, for each token of a chunk in turn, with g the decay and f the factor:
//   delta: S = g S;  S = S + k (f (v - S^T k))^T;  y = S^T q
//   SSM:   S = g S;  S = S + k (f v)^T;            y = S^T q
struct StateScan {
  float const* in;      // [T, channels]: q, k, v, from state_conv
  float const* decay;   // [T, Gv]
  float const* factor;  // [T, Gv]
  float const* skip;    // [Gv]: y becomes y + skip v; or null
  float* out;           // [T, Gv Dv]
  StateSizes sizes;
  StateLayer memory;
  StateStep step;
};
void state_scan(Stream& stream, StateScan const& s);

// Output of the mixer: norm(x) * silu(z), or norm(x * silu(z)), or x * silu(z). The norm divides each part of
// the row by its root mean square.
struct StateOutput {
  float const* x;               // [T, width]
  float const* z;               // [T, width], rows z_stride apart
  int32_t z_stride;             // a multiple of 4
  bf16* y;                      // [T, width]
  float const* norm;            // [width], or [part] for all parts; or null
  int32_t tokens, width, part;  // part: a multiple of 4 that divides width
  bool norm_repeats, gate_first;
  float epsilon;
};
void state_output(Stream& stream, StateOutput const& o);

// Gate of an attention's output: x = x * sigmoid(gate), in place. The width is a multiple of 8.
struct GateOutput {
  bf16* x;            // [T, width]
  float const* gate;  // [T, width]
  int32_t tokens, width;
};
void gate_output(Stream& stream, GateOutput const& g);

}  // namespace bunting::cuda
