// state_scan.cpp: the recurrence of a recurrent mixer, token by token, for some columns of a head's matrix S.
//
//   delta: S = g S;  S = S + k (write (v - S^T k))^T;  y = S^T q        (arXiv:2412.06464, eq. 10)
//   ssm:   S = g S + k (write v)^T;  y = S^T q                          (arXiv:2405.21060, eq. 1)
//   both:  y + skip v with skip factors
//
// A token of delta reads S once. With u = S^T k and w = S^T q of the matrix before the token, its change is
// d = write (v - g u) and its output is y = g w + (k q) d. The next token's pass first makes S = g S + k d,
// so that the pass loads and stores each number once. At the end of a chunk, and before a save, a pass of its
// own does so. Both orders give the same bits.
//
// Sums over the rows of S run over even rows and odd rows in rising order, then add the two, whatever the
// number of columns beside them.
//
// Work:     items: 32 columns (or 16) of one value head over all tokens of a chunk; their part of S, up to
//           32 KiB, stays in L1.
// Roofline: compute bound: 4 vector operations per 16 numbers of S and token; a decode reads and writes S
// once. Checked:  against reference::state_mixer in double, 1e-4 of the largest output; bits for any chunks.
#include "cpu/kernels/simd.h"

namespace bunting::BUNTING_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectors = 2;  // of sixteen columns at a time
#else
constexpr int kVectors = 1;
#endif

// Columns of S in memory: rows of `stride` numbers.
struct Matrix {
  float* at;
  int64_t stride, rows;
};

// A token's rank-one change of S that is still to be made: S = g S + k d.
template <int V>
struct Change {
  float const* k = nullptr;  // null: there is none
  f32x16 g, d[V];
};

template <int V>
struct Sums {
  f32x16 u[V], w[V];
};

// Makes a change and returns u = S^T k and w = S^T q of the changed S.
template <int V, bool kIsChanged>
BUNTING_INLINE Sums<V> pass(Matrix const& s, Change<V> const& change, float const* k, float const* q) {
  f32x16 u[2][V], w[2][V];
  for (int odd = 0; odd < 2; ++odd)
    for (int v = 0; v < V; ++v) u[odd][v] = w[odd][v] = zero();
  for (int64_t i = 0; i < s.rows; i += 2) {
    float* const row = s.at + i * s.stride;
    f32x16 x[2][V];
    for (int odd = 0; odd < 2; ++odd)
      for (int v = 0; v < V; ++v) x[odd][v] = load(row + odd * s.stride + 16 * v);
    if constexpr (kIsChanged) {
      for (int odd = 0; odd < 2; ++odd)
        for (int v = 0; v < V; ++v)
          x[odd][v] = fma(set1(change.k[i + odd]), change.d[v], change.g * x[odd][v]);
      for (int odd = 0; odd < 2; ++odd)
        for (int v = 0; v < V; ++v) store(row + odd * s.stride + 16 * v, x[odd][v]);
    }
    for (int odd = 0; odd < 2; ++odd)
      for (int v = 0; v < V; ++v) {
        u[odd][v] = fma(set1(k[i + odd]), x[odd][v], u[odd][v]);
        w[odd][v] = fma(set1(q[i + odd]), x[odd][v], w[odd][v]);
      }
  }
  Sums<V> sums;
  for (int v = 0; v < V; ++v) {
    sums.u[v] = u[0][v] + u[1][v];
    sums.w[v] = w[0][v] + w[1][v];
  }
  return sums;
}

// Makes S = g S + k d and returns S^T q.
template <int V>
BUNTING_INLINE Sums<V> change_and_read(Matrix const& s, Change<V> const& change, float const* q) {
  f32x16 w[2][V];
  for (int odd = 0; odd < 2; ++odd)
    for (int v = 0; v < V; ++v) w[odd][v] = zero();
  for (int64_t i = 0; i < s.rows; i += 2) {
    float* const row = s.at + i * s.stride;
    f32x16 x[2][V];
    for (int odd = 0; odd < 2; ++odd)
      for (int v = 0; v < V; ++v) x[odd][v] = load(row + odd * s.stride + 16 * v);
    for (int odd = 0; odd < 2; ++odd)
      for (int v = 0; v < V; ++v) {
        x[odd][v] = fma(set1(change.k[i + odd]), change.d[v], change.g * x[odd][v]);
        w[odd][v] = fma(set1(q[i + odd]), x[odd][v], w[odd][v]);
      }
    for (int odd = 0; odd < 2; ++odd)
      for (int v = 0; v < V; ++v) store(row + odd * s.stride + 16 * v, x[odd][v]);
  }
  Sums<V> sums;
  for (int v = 0; v < V; ++v) sums.w[v] = w[0][v] + w[1][v];
  return sums;
}

// Makes a change alone.
template <int V>
BUNTING_INLINE void make(Matrix const& s, Change<V>& change) {
  if (!change.k) return;
  for (int64_t i = 0; i < s.rows; ++i)
    for (int v = 0; v < V; ++v) {
      float* const at = s.at + i * s.stride + 16 * v;
      store(at, fma(set1(change.k[i]), change.d[v], change.g * load(at)));
    }
  change.k = nullptr;
}

// Copies columns of S between blocks of the same layout.
template <int V>
BUNTING_INLINE void copy(Matrix const& s, float* to) {
  for (int64_t i = 0; i < s.rows; ++i)
    for (int v = 0; v < V; ++v) store(to + i * s.stride + 16 * v, load(s.at + i * s.stride + 16 * v));
}

// Runs columns [column, column + 16 V) of a head over the tokens of a chunk. `block_at` is the place of these
// columns in a slot.
template <int V>
void scan(StateMixer const& m, int64_t chunk_index, int64_t head, int64_t column, int64_t block_at) {
  ChunkView const& chunk = m.chunks[chunk_index];
  ChunkState const& state = m.states[chunk_index];
  auto const place = [&](int32_t slot) __attribute__((always_inline)) {
    return m.memory.slots + slot * m.memory.stride + block_at;
  };
  Matrix const s{place(state.slot), state_columns(m.value_size), m.key_size};
  if (state.from < 0) {
    for (int64_t i = 0; i < s.rows; ++i)
      for (int v = 0; v < V; ++v) store(s.at + i * s.stride + 16 * v, zero());
  } else if (state.from != state.slot) {
    copy<V>({place(state.from), s.stride, s.rows}, s.at);
  }
  int64_t const key_head = m.has_tiled_heads ? head % m.key_heads : head / (m.heads / m.key_heads);
  int64_t const keys = int64_t(m.key_heads) * m.key_size, column_of_head = head * m.value_size + column;
  Change<V> change{};
  int32_t save = 0;
  for (int32_t index = 0; index < chunk.count; ++index) {
    int64_t const t = chunk.first_token + index;
    float const *const row = m.in + t * m.ldin, *const q = row + key_head * m.key_size, *const k = q + keys;
    float const* const values = row + m.v_column + column_of_head;
    f32x16 const g = set1(m.decay[t * m.heads + head]), write = set1(m.write[t * m.heads + head]);
    if (index + 1 < chunk.count) {
      for (int64_t i = 0; i < m.key_size; i += 16) {
        __builtin_prefetch(q + m.ldin + i);
        __builtin_prefetch(k + m.ldin + i);
      }
      for (int v = 0; v < V; ++v) __builtin_prefetch(values + m.ldin + 16 * v);
    }
    f32x16 x[V], y[V];
    for (int v = 0; v < V; ++v) x[v] = load(values + 16 * v);
    if (m.is_delta) {
      Sums<V> const sums = change.k ? pass<V, true>(s, change, k, q) : pass<V, false>(s, change, k, q);
      f32x16 const product = set1(m.products[t * m.key_heads + key_head]);
      change.k = k;
      change.g = g;
      for (int v = 0; v < V; ++v) {
        change.d[v] = write * (x[v] - g * sums.u[v]);
        y[v] = fma(product, change.d[v], g * sums.w[v]);
      }
    } else {
      Change<V> now{};
      now.k = k;
      now.g = g;
      for (int v = 0; v < V; ++v) now.d[v] = write * x[v];
      Sums<V> const sums = change_and_read<V>(s, now, q);
      for (int v = 0; v < V; ++v) y[v] = sums.w[v];
    }
    float* const out = m.out + t * m.ldout + column_of_head;
    for (int v = 0; v < V; ++v) store(out + 16 * v, m.skip ? fma(set1(m.skip[head]), x[v], y[v]) : y[v]);
    while (save < state.save_count && state.saves[save].count == index + 1) {
      make<V>(s, change);
      copy<V>(s, place(state.saves[save++].slot));
    }
  }
  make<V>(s, change);
}

}  // namespace

void state_scan(StateMixer const& m, int64_t item_begin, int64_t item_end) {
  int64_t const width = state_columns(m.value_size), blocks = m.value_size / width, items = m.scan_items();
  for (int64_t item = item_begin; item < item_end; ++item) {
    int64_t const head = item % items / blocks, block = item % blocks;
    int64_t const block_at = m.memory.matrices_at + (head * blocks + block) * m.key_size * width;
    for (int64_t column = 0; column < width;) {
      if (width - column >= 16 * kVectors) {
        scan<kVectors>(m, item / items, head, block * width + column, block_at + column);
        column += 16 * kVectors;
      } else {
        scan<1>(m, item / items, head, block * width + column, block_at + column);
        column += 16;
      }
    }
  }
}

}  // namespace bunting::BUNTING_ISA
