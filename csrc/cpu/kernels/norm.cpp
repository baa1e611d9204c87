// norm.cpp: norms of rows of the residual stream before a matrix reads them, and of results that are added to
// it.
//
//   norm:      y[t] = n(x[t]); n of kind rms:    x / sqrt(mean(x^2) + eps) * w
//                                     layer:  the same of x - mean(x)
//                                     none:   x
//              a layer norm may add a bias
//   add_normed: x[t] += scale * n(d[t])
//   scale_and_cap: x = s(x * scale), s(x) = cap * tanh(x / cap) if there is a cap
//
//   x [T, ldx] f32      w [H] f32       d [T, ldd] f32
//   y [T, ld] f32 or bf16, columns H .. ld-1 zeroed (the GEMM reads them); may alias x if f32 and
//             ldx == ld == H; or q8: InputGroup, round_up(H, 64) / 32 of them written
//
// Work:     token rows [begin, end); a row two or three times through L1.
// Roofline: memory bound, T*H*(4 + 4 or 2) bytes.
// Checked:  against reference::norm and reference::add_normed; bf16 rounding is the whole difference (2^-8
//           relative). Groups bit for bit against those of the f32 output.
#include <cmath>

#include "cpu/kernels/group.h"

namespace bunting::BUNTING_ISA {
namespace {

// Affine map of a row's numbers: (x - centre) * scale * w.
struct Moments {
  f32x16 centre, scale;
};

Moments moments_of(float const* row, Norm const& n, int64_t h) {
  float mean = 0;
  if (n.kind == NormKind::layer) {
    f32x16 total = zero();
    for (int64_t i = 0; i < h; i += 16) total = total + load_first(row + i, h - i);
    mean = sum(total) / float(h);
  }
  f32x16 const centre = set1(mean);
  f32x16 squares = zero();
  for (int64_t i = 0; i < h; i += 16) {
    f32x16 v = load_first(row + i, h - i);
    if (n.kind == NormKind::layer) {
      v = v - centre;
      float lanes[16];
      store(lanes, v);
      v = load_first(lanes, h - i);  // keeps lanes beyond the row zero
    }
    squares = fma(v, v, squares);
  }
  return {centre, set1(1.0f / std::sqrt(sum(squares) / float(h) + n.epsilon))};
}

template <class Values>
BUNTING_INLINE void write_row(Operand const& y, int64_t t, int64_t h, Values const& values) {
  if (is_grouped(y.dtype)) {
    quantise_row(y, t, h, values);
  } else if (y.dtype == Dtype::f32) {
    float* const to = reinterpret_cast<float*>(y.row(t));
    for (int64_t i = 0; i < h; i += 16) store_first(to + i, values(i), h - i);
    for (int64_t i = h; i < y.ld; ++i) to[i] = 0;
  } else {
    bf16* const to = reinterpret_cast<bf16*>(y.row(t));
    for (int64_t i = 0; i < h; i += 16) store_bf16_first(to + i, values(i), h - i);
    for (int64_t i = h; i < y.ld; ++i) to[i] = 0;
  }
}

}  // namespace

void norm(Operand const& y, float const* x, int64_t ldx, Norm const& n, int64_t h, int64_t begin,
          int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float const* const row = x + t * ldx;
    if (n.kind == NormKind::none) {
      write_row(y, t, h,
                [&](int64_t i) __attribute__((always_inline)) { return load_first(row + i, h - i); });
      continue;
    }
    Moments const m = moments_of(row, n, h);
    if (n.kind == NormKind::layer && n.bias)
      write_row(y, t, h, [&](int64_t i) __attribute__((always_inline)) {
        return fma((load_first(row + i, h - i) - m.centre) * m.scale, load_first(n.weight + i, h - i),
                   load_first(n.bias + i, h - i));
      });
    else if (n.kind == NormKind::layer)
      write_row(y, t, h, [&](int64_t i) __attribute__((always_inline)) {
        return (load_first(row + i, h - i) - m.centre) * m.scale * load_first(n.weight + i, h - i);
      });
    else
      write_row(y, t, h, [&](int64_t i) __attribute__((always_inline)) {
        return load_first(row + i, h - i) * m.scale * load_first(n.weight + i, h - i);
      });
  }
}

void add_normed(float* x, int64_t ldx, float const* d, int64_t ldd, Norm const& n, float scale, int64_t h,
                int64_t begin, int64_t end) {
  f32x16 const by = set1(scale);
  for (int64_t t = begin; t < end; ++t) {
    float* const to = x + t * ldx;
    float const* const row = d + t * ldd;
    Moments const m = n.kind == NormKind::none ? Moments{} : moments_of(row, n, h);
    for (int64_t i = 0; i < h; i += 16) {
      f32x16 v = load_first(row + i, h - i);
      if (n.kind == NormKind::layer) v = v - m.centre;
      if (n.kind != NormKind::none) v = v * m.scale * load_first(n.weight + i, h - i);
      if (n.bias) v = v + load_first(n.bias + i, h - i);
      store_first(to + i, load_first(to + i, h - i) + v * by, h - i);
    }
  }
}

void scale_and_cap(float* x, int64_t ldx, int64_t n, float scale, float cap, int64_t begin, int64_t end) {
  f32x16 const by = set1(scale);
  for (int64_t t = begin; t < end; ++t) {
    float* const row = x + t * ldx;
    for (int64_t i = 0; i < n; i += 16) {
      f32x16 v = load_first(row + i, n - i) * by;
      if (cap > 0) v = soft_cap(v, cap);
      store_first(row + i, v, n - i);
    }
  }
}

}  // namespace bunting::BUNTING_ISA
