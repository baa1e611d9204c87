// state_scan.cu - the recurrence of a recurrent mixer, token by token (arXiv:2412.06464, eq. 10;
// arXiv:2405.21060, eq. 1).
//
//   in  [T, 2 Gk Dk + Gv Dv] f32: q, k, v     out  [T, Gv Dv] f32     slots  [Gv, Dv, Dk] f32
//
// With u = S^T k, w = S^T q and p = k q of the matrix before a token, the token's change is d = f (v - g u),
// or f v, its output g w + p d, and then S = g S + k d. So the three sums go over the lanes together.
//
// Work:     one block per chunk, value head and 16 columns of S. Eight lanes have a column in registers for
// all
//           tokens of the chunk; they load the next token while they compute one.
// Roofline: memory for decodes, 8 bytes per number of S; for chunks the latency of each token's chain of
//           dependent sums.
// Checked:  against loops in double, and bit for bit in chunks of any size.
#include "cuda/kernels/device.h"
#include "cuda/kernels/states.h"

namespace bunting::cuda {
namespace {

using namespace gpu;

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kLanes = 8;                    // lanes that share a column
constexpr int kColumns = kThreads / kLanes;  // columns of a block
constexpr int kVectorRows = 4 * kLanes;      // rows of a column in one vector of each lane

// A lane's rows of a column, or of k or q: vector i has rows 4 * part + i * kVectorRows and the next three.
template <int kVectors>
struct Rows {
  Float4 at[kVectors];

  GPU_DEVICE void read(float const* column, int part, int size) {
    GPU_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      int const row = 4 * part + i * kVectorRows;
      at[i] = {{0, 0, 0, 0}};
      if (row < size) at[i] = load(reinterpret_cast<Float4 const*>(column + row));
    }
  }
  GPU_DEVICE void write(float* column, int part, int size) const {
    GPU_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      int const row = 4 * part + i * kVectorRows;
      if (row < size) store(reinterpret_cast<Float4*>(column + row), at[i]);
    }
  }
};

// Inputs of one token.
template <int kVectors>
struct Token {
  Rows<kVectors> k, q;
  float v, decay, factor;
};

// Sum over rows, the same in all lanes of a column.
template <int kVectors>
GPU_DEVICE float dot(Rows<kVectors> const& x, Rows<kVectors> const& y) {
  float sum = 0;
  GPU_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) sum = fmaf(x.at[i].at[j], y.at[i].at[j], sum);
  }
  return sum;
}

template <int kVectors>
GPU_KERNEL(kThreads, kVectors <= 4 ? 4 : 2)
state_scan_kernel(StateScan const s) {
  StateSizes const& sizes = s.sizes;
  int const groups = sizes.value_size / kColumns;
  int const head = block_index() / groups % sizes.heads;
  StateChunk const chunk = load(s.step.chunks + block_index() / (groups * sizes.heads));
  if (chunk.count == 0) return;
  int const part = lane() % kLanes;
  int const value = head * sizes.value_size + block_index() % groups * kColumns + thread_index() / kLanes;
  int const key_head =
      sizes.has_tiled_heads ? head % sizes.key_heads : head / (sizes.heads / sizes.key_heads);
  int const keys = sizes.key_heads * sizes.key_size;
  auto const place = [&](int slot) {
    return s.memory.slots + slot * s.memory.stride + s.memory.matrices_at + int64_t(value) * sizes.key_size;
  };
  auto const read = [&](int token) {
    float const* const row = s.in + int64_t(token) * sizes.channels;
    float const* const q = row + key_head * sizes.key_size;
    Token<kVectors> of;
    of.q.read(q, part, sizes.key_size);
    of.k.read(q + keys, part, sizes.key_size);
    of.v = load(row + 2 * keys + value);
    of.decay = load(s.decay + int64_t(token) * sizes.heads + head);
    of.factor = load(s.factor + int64_t(token) * sizes.heads + head);
    return of;
  };

  Rows<kVectors> state;
  // A size of 0 makes the state zeros.
  state.read(place(chunk.from < 0 ? 0 : chunk.from), part, chunk.from < 0 ? 0 : sizes.key_size);
  float const skip = s.skip ? load(s.skip + head) : 0;
  int save = 0;
  Token<kVectors> next = read(chunk.first_token);
  GPU_KEEP_LOOP
  for (int index = 0; index < chunk.count; ++index) {
    Token<kVectors> const now = next;
    if (index + 1 < chunk.count) next = read(chunk.first_token + index + 1);
    float const known = sizes.is_delta ? warp_sum(dot(state, now.k), kLanes) : 0;
    float const before = warp_sum(dot(state, now.q), kLanes);
    float const product = warp_sum(dot(now.k, now.q), kLanes);
    float const change = now.factor * fmaf(-now.decay, known, now.v);
    GPU_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      GPU_UNROLL
      for (int j = 0; j < 4; ++j)
        state.at[i].at[j] = fmaf(now.k.at[i].at[j], change, multiply_rounded(now.decay, state.at[i].at[j]));
    }
    float const y = fmaf(skip, now.v, fmaf(product, change, multiply_rounded(now.decay, before)));
    if (part == 0)
      store(s.out + int64_t(chunk.first_token + index) * sizes.heads * sizes.value_size + value, y);
    if (save < chunk.save_count) {
      StateCopy const copy = load(s.step.saves + chunk.saves_at + save);
      if (copy.count == index + 1) {
        state.write(place(copy.slot), part, sizes.key_size);
        ++save;
      }
    }
  }
  state.write(place(chunk.slot), part, sizes.key_size);
}

}  // namespace

void state_scan(Stream& stream, StateScan const& s) {
  int32_t const blocks = s.step.chunk_count * s.sizes.heads * (s.sizes.value_size / kColumns);
  auto* const kernel = s.sizes.key_size <= kVectorRows       ? state_scan_kernel<1>
                       : s.sizes.key_size <= 2 * kVectorRows ? state_scan_kernel<2>
                       : s.sizes.key_size <= 4 * kVectorRows ? state_scan_kernel<4>
                                                             : state_scan_kernel<8>;
  if (blocks > 0) stream.launch("state_scan", kernel, {blocks, kThreads, 0}, s);
}

}  // namespace bunting::cuda
