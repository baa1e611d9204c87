// state.cpp: the parts of a recurrent mixer around its scan, and the gate of attention's output.
//
//   state_conv:   x[t, c] = silu(sum_j w[j, c] x[t - K + 1 + j, c] + b[c]) in place; with delta the heads of
//   q
//                 and k become x / |x|, q also / sqrt(Dk). Short convolution: out = k * conv(q * v).
//   state_gates:  s = softplus(a + dt_bias); delta: g = exp(rate s), write = sigmoid(b);
//                 ssm: dt = clamp(s), g = exp(rate dt), write = dt; products[t, h] = k q of delta's key head
//                 h
//   state_output: y = norm(y) silu(z), or norm(y silu(z)), or y silu(z)
//   gate_output:  y = y sigmoid(g)
//
// Work:     items of state_conv: one head, or 64 channels, over all tokens of a chunk, with the last K-1
// inputs
//           in L1; token rows of the others.
// Roofline: memory bound: 8 bytes per number in L2.
// Checked:  against reference::state_mixer; exp and the logarithm are accurate to some ulp, so 1e-5 relative.
#include <cmath>

#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {
namespace {

constexpr int kTapsMax = 8;
constexpr int64_t kHeadMax = 256;  // channels of an item at most

BUNTING_INLINE f32x16 sigmoid(f32x16 x) {
  return set1(1.0f) / (set1(1.0f) + exp(zero() - x));
}

BUNTING_INLINE f32x16 silu(f32x16 x) {
  return x / (set1(1.0f) + exp(zero() - x));
}

// Computes ln(1 + e^x) as max(x, 0) + ln(1 + w), w = e^-|x|, with ln(1 + w) = 2 artanh(w / (2 + w)).
BUNTING_INLINE f32x16 softplus(f32x16 x) {
  f32x16 const positive = max(x, zero()), w = exp(x - positive - positive);
  f32x16 const s = w / (set1(2.0f) + w), square = s * s;
  f32x16 p = set1(1.0f / 15);
  p = fma(p, square, set1(1.0f / 13));
  p = fma(p, square, set1(1.0f / 11));
  p = fma(p, square, set1(1.0f / 9));
  p = fma(p, square, set1(1.0f / 7));
  p = fma(p, square, set1(1.0f / 5));
  p = fma(p, square, set1(1.0f / 3));
  return positive + fma(p * square, s + s, s + s);
}

// Channels [first, first + count) of a convolution: up to kHeadMax.
struct Channels {
  int64_t first = 0, count = 0;
};

// The last K-1 inputs of some channels, as a ring.
struct History {
  alignas(64) float rows[kTapsMax - 1][kHeadMax];
  int oldest = 0;
};

void read_history(StateMixer const& m, int32_t slot, Channels c, History& history) {
  for (int j = 0; j < m.taps - 1; ++j) {
    float* const row = history.rows[j];
    if (slot < 0)
      for (int64_t i = 0; i < c.count; ++i) row[i] = 0;
    else
      std::memcpy(row, m.memory.slots + slot * m.memory.stride + j * m.channels + c.first,
                  size_t(c.count) * sizeof(float));
    for (int64_t i = c.count; i % 16 != 0; ++i) row[i] = 0;
  }
  history.oldest = 0;
}

void write_history(StateMixer const& m, int32_t slot, Channels c, History const& history) {
  for (int j = 0; j < m.taps - 1; ++j)
    std::memcpy(m.memory.slots + slot * m.memory.stride + j * m.channels + c.first,
                history.rows[(history.oldest + j) % (m.taps - 1)], size_t(c.count) * sizeof(float));
}

// Convolves channels over the tokens of a chunk: `input(t, i, n)` and `output(t, i, n, y)` are of the n first
// of sixteen channels from i on, and `finish(t)` follows the last of a token. kKept is K-1, or 0 for any;
// kIsWhole: n is always 16.
template <int kKept, bool kIsWhole, class Input, class Output, class Finish>
BUNTING_INLINE void convolve(StateMixer const& m, int64_t chunk_index, Channels c, Input const& input,
                             Output const& output, Finish const& finish) {
  ChunkView const& chunk = m.chunks[chunk_index];
  ChunkState const& state = m.states[chunk_index];
  History history;
  read_history(m, state.from, c, history);
  int32_t save = 0;
  int const kept = kKept > 0 ? kKept : m.taps - 1;
  for (int32_t index = 0; index < chunk.count; ++index) {
    int64_t const t = chunk.first_token + index;
    float* rows[kTapsMax - 1];  // the oldest first
    for (int j = 0, at = history.oldest; j < kept; ++j, at = at + 1 == kept ? 0 : at + 1)
      rows[j] = history.rows[at];
    for (int64_t i = 0; i < c.count; i += 16) {
      int64_t const n = kIsWhole ? 16 : c.count - i;
      float const* const weights = m.conv + c.first + i;
      f32x16 sum = m.conv_bias ? load_first(m.conv_bias + c.first + i, n) : zero();
      for (int j = 0; j < kept; ++j)
        sum = fma(load_first(weights + j * m.channels, n), load(rows[j] + i), sum);
      f32x16 const x = input(t, i, n);
      sum = fma(load_first(weights + kept * m.channels, n), x, sum);
      store(rows[0] + i, x);
      output(t, i, n, sum);
    }
    history.oldest = history.oldest + 1 == kept ? 0 : history.oldest + 1;
    finish(t);
    while (save < state.save_count && state.saves[save].count == index + 1)
      write_history(m, state.saves[save++].slot, c, history);
  }
  write_history(m, state.slot, c, history);
}

// Convolves one head of q, k or v.
template <int kKept>
void convolve_head(StateMixer const& m, int64_t chunk, int64_t item) {
  int64_t const keys = int64_t(m.key_heads) * m.key_size;
  bool const is_q = item < m.key_heads, is_key = item < 2 * m.key_heads;
  int64_t const first = is_key ? item * m.key_size : 2 * keys + (item - 2 * m.key_heads) * m.value_size;
  Channels const c{first, is_key ? m.key_size : m.value_size};
  float* const column = m.in + (is_key ? first : m.v_column + first - 2 * keys);
  bool const is_unit = m.is_delta && is_key;
  float const scale = is_q ? 1.0f / std::sqrt(float(m.key_size)) : 1.0f;
  f32x16 squares = zero();
  convolve<kKept, true>(
      m, chunk, c,
      [&](int64_t t, int64_t i, int64_t)
          __attribute__((always_inline)) { return load(column + t * m.ldin + i); },
      [&](int64_t t, int64_t i, int64_t, f32x16 sum) __attribute__((always_inline)) {
        f32x16 const y = silu(sum);
        squares = fma(y, y, squares);
        store(column + t * m.ldin + i, y);
      },
      [&](int64_t t) __attribute__((always_inline)) {
        if (is_unit) {
          f32x16 const factor = set1(scale / std::sqrt(sum(squares) + 1e-6f));
          float* const row = column + t * m.ldin;
          for (int64_t i = 0; i < c.count; i += 16) store(row + i, load(row + i) * factor);
        }
        squares = zero();
      });
}

// Convolves channels of a short convolution.
void convolve_short(StateMixer const& m, int64_t chunk, int64_t item) {
  int64_t const first = item * StateMixer::kConvChannels, left = m.channels - first;
  Channels const c{first, left < StateMixer::kConvChannels ? left : StateMixer::kConvChannels};
  float const *const q = m.in + first, *const k = q + m.v_column / 2, *const v = q + m.v_column;
  convolve<0, false>(
      m, chunk, c,
      [&](int64_t t, int64_t i, int64_t n) __attribute__((always_inline)) {
        return load_first(q + t * m.ldin + i, n) * load_first(v + t * m.ldin + i, n);
      },
      [&](int64_t t, int64_t i, int64_t n, f32x16 sum) __attribute__((always_inline)) {
        store_first(m.out + t * m.ldout + first + i, load_first(k + t * m.ldin + i, n) * sum, n);
      },
      [](int64_t) {});
}

}  // namespace

void state_conv(StateMixer const& m, int64_t item_begin, int64_t item_end) {
  int64_t const items = m.conv_items();
  for (int64_t item = item_begin; item < item_end; ++item) {
    int64_t const chunk = item / items, index = item % items;
    if (m.heads == 0)
      convolve_short(m, chunk, index);
    else if (m.taps == 4)
      convolve_head<3>(m, chunk, index);
    else
      convolve_head<0>(m, chunk, index);
  }
}

void state_gates(StateMixer const& m, StateGates const& g, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float const* const a = g.in + t * g.ldin;
    for (int64_t h = 0; h < m.heads; h += 16) {
      int64_t const n = m.heads - h;
      f32x16 step = softplus(load_first(a + h, n) + load_first(g.dt_bias + h, n));
      f32x16 write;
      if (m.is_delta)
        write = sigmoid(load_first(a + g.b_column + h, n));
      else
        write = step = min(max(step, set1(g.dt_min)), set1(g.dt_max));
      store_first(m.decay + t * m.heads + h, exp(step * load_first(g.rates + h, n)), n);
      store_first(m.write + t * m.heads + h, write, n);
    }
    if (!m.is_delta) continue;
    float const *const q = m.in + t * m.ldin, *const k = q + int64_t(m.key_heads) * m.key_size;
    for (int64_t h = 0; h < m.key_heads; ++h) {
      f32x16 total = zero();
      for (int64_t i = h * m.key_size; i < (h + 1) * m.key_size; i += 16)
        total = fma(load(q + i), load(k + i), total);
      m.products[t * m.key_heads + h] = sum(total);
    }
  }
}

void state_output(StateOutput const& o, int64_t begin, int64_t end) {
  int64_t const part = o.norm_width > 0 ? o.norm_width : o.width;
  for (int64_t t = begin; t < end; ++t) {
    float* const row = o.y + t * o.ldy;
    float const* const z = o.z + t * o.ldz;
    for (int64_t first = 0; first < o.width; first += part) {
      f32x16 squares = zero();
      for (int64_t i = first; i < first + part; i += 16) {
        f32x16 y = load(row + i);
        if (o.is_gate_first || o.norm_width == 0) {
          y = y * silu(load(z + i));
          store(row + i, y);
        }
        squares = fma(y, y, squares);
      }
      if (o.norm_width == 0) continue;
      f32x16 const scale = set1(1.0f / std::sqrt(sum(squares) / float(part) + o.epsilon));
      for (int64_t i = first; i < first + part; i += 16) {
        f32x16 const y = load(row + i) * scale * load(o.norm + (o.norm_repeats ? i - first : i));
        store(row + i, o.is_gate_first ? y : y * silu(load(z + i)));
      }
    }
  }
}

void gate_output(void* y, Dtype dtype, int64_t ldy, float const* g, int64_t ldg, int64_t n, int64_t begin,
                 int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float const* const gate = g + t * ldg;
    for (int64_t i = 0; i < n; i += 16) {
      f32x16 const factor = sigmoid(load(gate + i));
      if (dtype == Dtype::f32) {
        float* const to = static_cast<float*>(y) + t * ldy + i;
        store(to, load(to) * factor);
      } else {
        bf16* const to = static_cast<bf16*>(y) + t * ldy + i;
        store_bf16(to, load_bf16(to) * factor);
      }
    }
  }
}

}  // namespace bunting::BUNTING_ISA
