// state_conv.cu - the convolution of a recurrent mixer over the last K tokens, per channel, and its last
// inputs.
//
//   state_conv     out[t, c] = silu(sum_j w[j, c] x[t - K + 1 + j, c] + b[c]); with delta the heads of q and
//   k
//                  become x / sqrt(|x|^2 + 1e-6), q also / sqrt(Dk). One more item per token has the decays
//                  and factors of all value heads.
//   short_conv     out[t, c] = k[t, c] * (sum_j w[j, c] (q v)[t - K + 1 + j, c] + b[c])
//   state_history  writes the last K-1 inputs into slots
//
// Work:     one warp per token and head, or per token and 128 channels, four channels per lane; so tokens of
// a
//           prompt are independent. In state_history a thread per chunk and four channels.
// Roofline: memory, 8 bytes per channel and token; the K inputs of a token come from L1 and L2.
// Checked:  against loops in double, and bit for bit in chunks of any size.
#include "cuda/kernels/device.h"
#include "cuda/kernels/states.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kWarpChannels = 4 * kWarp;
constexpr int kTurns = 256 / kWarpChannels;  // of a warp for the longest head
constexpr float kLog2E = 1.44269504f;
constexpr float kUnitEpsilon = 1e-6f;

GPU_DEVICE Float4 load4(float const* at) {
  return load(reinterpret_cast<Float4 const*>(at));
}
GPU_DEVICE void store4(float* at, Float4 const& x) {
  store(reinterpret_cast<Float4*>(at), x);
}
GPU_DEVICE Float4 times(Float4 const& x, Float4 const& y) {
  Float4 out;
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) out.at[j] = x.at[j] * y.at[j];
  return out;
}
GPU_DEVICE float logistic(float x) {
  return 1 / (1 + exp2_fast(-kLog2E * x));
}

// Inputs of a convolution by their index in a chunk; those before the chunk come from its state. kIsShort: an
// input is the product of the columns of q and v.
template <bool kIsShort>
struct Inputs {
  float const* rows;  // row of the chunk's first token
  int32_t stride, channels;
  float const* state;  // [K-1, channels], or null for zeros
  int32_t kept;        // K-1

  GPU_DEVICE Inputs(float const* in, int32_t in_stride, StateSizes const& sizes, StateLayer const& memory,
                    StateChunk const& chunk)
      : rows(in + int64_t(chunk.first_token) * in_stride),
        stride(in_stride),
        channels(sizes.channels),
        state(chunk.from < 0 ? nullptr : memory.slots + chunk.from * memory.stride),
        kept(sizes.taps - 1) {}

  GPU_DEVICE Float4 get(int index, int channel) const {
    if (index >= 0) {
      float const* const row = rows + int64_t(index) * stride + channel;
      return kIsShort ? times(load4(row), load4(row + 2 * channels)) : load4(row);
    }
    if (!state) return {{0, 0, 0, 0}};
    return load4(state + int64_t(kept + index) * channels + channel);
  }
};

// Returns the sum over the inputs up to number `index` of a chunk, for four channels.
template <bool kIsShort>
GPU_DEVICE Float4 convolve(Inputs<kIsShort> const& inputs, float const* weights, float const* bias, int index,
                           int channel) {
  Float4 sum{{0, 0, 0, 0}};
  if (bias) sum = load4(bias + channel);
  for (int j = 0; j <= inputs.kept; ++j) {
    Float4 const w = load4(weights + int64_t(j) * inputs.channels + channel);
    Float4 const x = inputs.get(index - inputs.kept + j, channel);
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) sum.at[i] = fmaf(w.at[i], x.at[i], sum.at[i]);
  }
  return sum;
}

// Returns ln(1 + e^x).
GPU_DEVICE float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(exp2_fast(-kLog2E * fabsf(x)));
}

// Computes a token's numbers of the recurrence.
GPU_DEVICE void write_gates(StateConv const& c, int token) {
  int const heads = c.sizes.heads;
  float const* const a = c.gates + int64_t(token) * (c.sizes.is_delta ? 2 : 1) * heads;
  for (int h = lane(); h < heads; h += kWarp) {
    float step = softplus(load(a + h) + load(c.dt_bias + h));
    if (!c.sizes.is_delta) step = fminf(fmaxf(step, c.dt_min), c.dt_max);
    float const factor = c.sizes.is_delta ? logistic(load(a + heads + h)) : step;
    store(c.decay + int64_t(token) * heads + h, exp2_fast(kLog2E * (load(c.rates + h) * step)));
    store(c.factor + int64_t(token) * heads + h, factor);
  }
}

GPU_KERNEL(kThreads, 8) state_conv_kernel(StateConv const c) {
  StateSizes const& sizes = c.sizes;
  int const key_items = 2 * sizes.key_heads, items = key_items + sizes.heads + 1;
  int64_t const task = int64_t(block_index()) * kWarps + warp();
  int const token = int(task / items), item = int(task % items);
  if (token >= c.step.tokens) return;
  int const of_chunk = load(c.step.chunk_of_token + token);
  if (of_chunk < 0) return;
  if (item == items - 1) return write_gates(c, token);
  StateChunk const chunk = load(c.step.chunks + of_chunk);
  Inputs<false> const inputs(c.in, c.in_stride, sizes, c.memory, chunk);
  bool const is_key = item < key_items;
  int const size = is_key ? sizes.key_size : sizes.value_size;
  int const first = is_key ? item * size : key_items * sizes.key_size + (item - key_items) * size;
  Float4 y[kTurns];
  float squares = 0;
  GPU_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    int const i = 4 * lane() + turn * kWarpChannels;
    if (i >= size) continue;
    y[turn] = convolve(inputs, c.weights, c.bias, token - chunk.first_token, first + i);
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      y[turn].at[j] *= logistic(y[turn].at[j]);
      squares = fmaf(y[turn].at[j], y[turn].at[j], squares);
    }
  }
  float scale = 1;
  if (sizes.is_delta && is_key) {
    scale = reciprocal_sqrt(warp_sum(squares) + kUnitEpsilon);
    if (item < sizes.key_heads) scale *= reciprocal_sqrt(float(size));
  }
  GPU_UNROLL
  for (int turn = 0; turn < kTurns; ++turn) {
    int const i = 4 * lane() + turn * kWarpChannels;
    if (i >= size) continue;
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) y[turn].at[j] *= scale;
    store4(c.out + int64_t(token) * sizes.channels + first + i, y[turn]);
  }
}

GPU_KERNEL(kThreads, 8) short_conv_kernel(ShortConv const c) {
  int const channels = c.sizes.channels, items = (channels + kWarpChannels - 1) / kWarpChannels;
  int64_t const task = int64_t(block_index()) * kWarps + warp();
  int const token = int(task / items), channel = int(task % items) * kWarpChannels + 4 * lane();
  if (token >= c.step.tokens || channel >= channels) return;
  int const of_chunk = load(c.step.chunk_of_token + token);
  if (of_chunk < 0) return;
  StateChunk const chunk = load(c.step.chunks + of_chunk);
  Inputs<true> const inputs(c.in, 3 * channels, c.sizes, c.memory, chunk);
  Float4 const sum = convolve(inputs, c.weights, c.bias, token - chunk.first_token, channel);
  Float4 const gate = load4(c.in + int64_t(token) * 3 * channels + channels + channel);
  store(reinterpret_cast<Half4*>(c.out + int64_t(token) * channels + channel), narrow4(times(gate, sum)));
}

// Writes the inputs before number `index` of a chunk into a slot. If the chunk begins from that slot, each
// row comes from a later one, which is still unchanged.
template <bool kIsShort>
GPU_DEVICE void write_history(Inputs<kIsShort> const& inputs, int index, int channel, float* slot) {
  for (int j = 0; j < inputs.kept; ++j)
    store4(slot + int64_t(j) * inputs.channels + channel, inputs.get(index - inputs.kept + j, channel));
}

template <bool kIsShort>
GPU_KERNEL(kThreads, 8)
state_history_kernel(StateHistory const h) {
  int const vectors = h.sizes.channels / 4;
  int64_t const task = int64_t(block_index()) * kThreads + thread_index();
  int const of_chunk = int(task / vectors), channel = int(task % vectors) * 4;
  if (of_chunk >= h.step.chunk_count) return;
  StateChunk const chunk = load(h.step.chunks + of_chunk);
  if (chunk.count == 0) return;
  Inputs<kIsShort> const inputs(h.in, h.in_stride, h.sizes, h.memory, chunk);
  auto const slot = [&](int index) { return h.memory.slots + index * h.memory.stride; };
  for (int s = 0; s < chunk.save_count; ++s) {
    StateCopy const save = load(h.step.saves + chunk.saves_at + s);
    write_history(inputs, save.count, channel, slot(save.slot));
  }
  write_history(inputs, chunk.count, channel, slot(chunk.slot));
}

int32_t blocks_of(int64_t tasks, int32_t of_block) {
  return int32_t((tasks + of_block - 1) / of_block);
}

}  // namespace

void state_conv(Stream& stream, StateConv const& c) {
  int64_t const items = 2 * c.sizes.key_heads + c.sizes.heads + 1;
  int32_t const blocks = blocks_of(c.step.tokens * items, kWarps);
  if (blocks > 0) stream.launch("state_conv", state_conv_kernel, {blocks, kThreads, 0}, c);
}

void short_conv(Stream& stream, ShortConv const& c) {
  int64_t const items = (c.sizes.channels + kWarpChannels - 1) / kWarpChannels;
  int32_t const blocks = blocks_of(c.step.tokens * items, kWarps);
  if (blocks > 0) stream.launch("short_conv", short_conv_kernel, {blocks, kThreads, 0}, c);
}

void state_history(Stream& stream, StateHistory const& h) {
  int32_t const blocks = blocks_of(int64_t(h.step.chunk_count) * (h.sizes.channels / 4), kThreads);
  auto* const kernel = h.is_short ? state_history_kernel<true> : state_history_kernel<false>;
  if (blocks > 0) stream.launch("state_history", kernel, {blocks, kThreads, 0}, h);
}

}  // namespace bunting::cuda
