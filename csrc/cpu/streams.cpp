// streams.cpp - the residual streams of a model with several (AltUp, arXiv:2301.13310): a layer predicts all
// of them, computes the first, and corrects all by the difference.
#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/forward.h"
#include "cpu/kernels/row_stride.h"

namespace bunting {
namespace {

constexpr int32_t kStreamsMax = 8;

// Sum over a row in one order that compilers can vectorize.
template <class Term>
float sum_of(int64_t count, Term const& term) {
  std::array<float, 16> sums{};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (size_t lane = 0; lane < 16; lane++) sums[lane] += term(i + int64_t(lane));
  for (; i < count; i++) sums[0] += term(i);
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
  return sums[0];
}

float mean_square(float const* row, int64_t hidden) {
  return sum_of(hidden, [&](int64_t i) { return row[i] * row[i]; }) / float(hidden);
}

}  // namespace

float* Forward::stream(int32_t index) const {
  return work_.streams + int64_t(index) * int64_t(limits_.step_tokens_max) * hidden_stride_;
}

// Returns rows of a stream as the operand of a matrix.
Operand Forward::rows_of(float const* rows, int64_t count, PackedMatrix const& next) {
  Operand const to = operand(next, work_.normed, normed_stride_);
  share_rows(count, model_.shape().hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(to, rows, hidden_stride_, {NormKind::none, nullptr, 0, nullptr}, model_.shape().hidden,
                  begin, end);
  });
  return to;
}

// Scales each row to the root mean square of the row of `like`.
void Forward::scale_like(float* rows, float const* like, int64_t count) {
  constexpr float kLeast = 1e-5f;  // of a mean square
  int64_t const hidden = model_.shape().hidden;
  share_rows(count, hidden, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      float* const to = rows + row * hidden_stride_;
      float const target = std::sqrt(mean_square(like + row * hidden_stride_, hidden));
      float const scale = target / std::sqrt(std::max(mean_square(to, hidden), kLeast));
      for (int64_t i = 0; i < hidden; i++) to[i] *= scale;
    }
  });
}

// Computes all streams from x, which is the embedding here.
void Forward::make_streams(int64_t rows) {
  int32_t const streams = model_.streams();
  std::copy_n(work_.x, rows * hidden_stride_, stream(0));
  for (int32_t i = 1; i < streams; i++) {
    PackedMatrix const& w = model_.layer(i - 1).stream_in;
    multiply({.w = &w, .y = stream(i), .ldy = hidden_stride_, .tokens = rows}, rows_of(work_.x, rows, w));
    scale_like(stream(i), work_.x, rows);
  }
}

// Replaces x by the mean of all streams, the others projected and scaled to the first.
void Forward::join_streams(int64_t rows) {
  int32_t const streams = model_.streams();
  int64_t const hidden = model_.shape().hidden;
  std::copy_n(stream(0), rows * hidden_stride_, work_.x);
  for (int32_t i = 1; i < streams; i++) {
    PackedMatrix const& w = model_.layer(i - 1).stream_out;
    multiply({.w = &w, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows}, rows_of(stream(i), rows, w));
    scale_like(work_.delta, stream(0), rows);
    add_normed(work_.x, work_.delta, nullptr, 1, rows);
  }
  share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
    kernels_.scale_and_cap(work_.x, hidden_stride_, hidden, 1 / float(streams), 0, begin, end);
  });
}

// Computes tanh(router(norm(x) / H)) of one row.
void Forward::route(LayerWeights const& weights, float const* x, float* modalities) const {
  bunting_model_shape const& shape = model_.shape();
  int64_t const hidden = shape.hidden;
  float const scale = 1 / (std::sqrt(mean_square(x, hidden) + shape.norm_epsilon) * float(hidden));
  for (int32_t i = 0; i < model_.streams(); i++) {
    float const* const router = weights.stream_router + i * hidden;
    modalities[i] = std::tanh(
        scale * sum_of(hidden, [&](int64_t k) { return x[k] * weights.stream_norm[k] * router[k]; }));
  }
}

// Adds to each stream a mix of all, and makes x the first.
void Forward::predict_streams(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  int32_t const streams = model_.streams();
  int64_t const hidden = model_.shape().hidden;
  share_rows(rows, hidden * streams * streams, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      std::array<float*, kStreamsMax> at{};
      for (int32_t i = 0; i < streams; i++) at[size_t(i)] = stream(i) + row * hidden_stride_;
      std::array<float, kStreamsMax> modalities{};
      route(weights, at[0], modalities.data());
      // Weight of stream `from` in stream `to`.
      std::array<float, kStreamsMax * kStreamsMax> mix{};
      for (int32_t to = 0; to < streams; to++)
        for (int32_t from = 0; from < streams; from++) {
          float const* const coefficients = weights.stream_predict + (to * streams + from) * streams;
          float sum = from == to ? 1.0f : 0.0f;
          for (int32_t i = 0; i < streams; i++) sum += coefficients[i] * modalities[size_t(i)];
          mix[size_t(to * streams + from)] = sum;
        }
      float* const x = work_.x + row * hidden_stride_;
      for (int64_t k = 0; k < hidden; k++) {
        std::array<float, kStreamsMax> old{};
        for (size_t from = 0; from < size_t(streams); from++) old[from] = at[from][k];
        for (size_t to = 0; to < size_t(streams); to++) {
          float sum = 0;
          for (size_t from = 0; from < size_t(streams); from++)
            sum += mix[to * size_t(streams) + from] * old[from];
          at[to][k] = sum;
        }
        x[k] = at[0][k];
      }
    }
  });
}

// Adds the difference of x and the first stream to all streams, and makes x the first, scaled.
void Forward::correct_streams(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  int32_t const streams = model_.streams();
  int64_t const hidden = model_.shape().hidden;
  share_rows(rows, hidden * streams, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      float* const x = work_.x + row * hidden_stride_;
      std::array<float, kStreamsMax> modalities{};
      route(weights, x, modalities.data());
      float* const first = stream(0) + row * hidden_stride_;
      for (int64_t k = 0; k < hidden; k++) x[k] -= first[k];
      for (int32_t i = 0; i < streams; i++) {
        float scale = 1;
        for (int32_t j = 0; j < streams; j++)
          scale += weights.stream_correct[i * streams + j] * modalities[size_t(j)];
        float* const to = stream(i) + row * hidden_stride_;
        for (int64_t k = 0; k < hidden; k++) to[k] += scale * x[k];
      }
      for (int64_t k = 0; k < hidden; k++) x[k] = first[k] * weights.stream_scale[k];
    }
  });
}

// Sets work_.laurel = n + norm(out(in(n))) with n = norm(x), before the attention is added to x.
void Forward::make_laurel(int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  int64_t const hidden = model_.shape().hidden, rank = weights.laurel_in.n;
  multiply({.w = &weights.laurel_in, .y = work_.laurel_ranks, .ldy = rank, .tokens = rows},
           normalise(weights.attention_norm, rows, weights.laurel_in));
  Operand const ranks{work_.laurel_operand, row_stride(model_.dtype(), rank), model_.dtype()};
  Operand const laurel{work_.laurel, hidden_stride_, Dtype::f32};
  share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
    kernels_.norm(ranks, work_.laurel_ranks, rank, {NormKind::none, nullptr, 0, nullptr}, rank, begin, end);
    kernels_.norm(laurel, work_.x, hidden_stride_, norm_by(weights.attention_norm), hidden, begin, end);
  });
  multiply({.w = &weights.laurel_out, .y = work_.delta, .ldy = hidden_stride_, .tokens = rows}, ranks);
  add_normed(work_.laurel, work_.delta, weights.laurel_norm, 1, rows);
}

// Sets x = (x + work_.laurel) / sqrt(2).
void Forward::add_laurel(int64_t rows) {
  int64_t const hidden = model_.shape().hidden;
  add_normed(work_.x, work_.laurel, nullptr, 1, rows);
  share_rows(rows, hidden, [&](int64_t begin, int64_t end) {
    kernels_.scale_and_cap(work_.x, hidden_stride_, hidden, std::sqrt(0.5f), 0, begin, end);
  });
}

// Returns activation(max(0, gate - mean - cutoff * deviation)) . up of the first `rows` rows of `normed`, in
// the input type of `down`. A row's mean and deviation need all its gates, so they go through memory.
Operand Forward::multiply_sparse(Operand const& normed, int32_t layer, int64_t rows) {
  LayerWeights const& weights = model_.layer(layer);
  PackedMatrix const &gate_up = weights.gate_up, &down = weights.down;
  int64_t const width = model_.feed_forward(layer), padded = model_.padded_feed_forward(layer);
  float const cutoff = model_.layer_shape(layer).gate_cutoff;
  Operand const to = activated_rows(down);
  for (int64_t first = 0; first < rows; first += kSparseRows) {
    int64_t const count = std::min(kSparseRows, rows - first);
    Operand part = normed, out = to;
    part.rows = normed.row(first);
    out.rows = to.row(first);
    multiply({.w = &gate_up,
              .bias = weights.gate_up_bias,
              .y = work_.sparse_gates,
              .ldy = 2 * padded,
              .tokens = count},
             part);
    share_rows(count, 2 * width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        float* const gates = work_.sparse_gates + row * 2 * padded;
        float const mean = sum_of(width, [&](int64_t i) { return gates[i]; }) / float(width);
        float const variance =
            sum_of(width, [&](int64_t i) { return (gates[i] - mean) * (gates[i] - mean); }) / float(width);
        float const least = mean + cutoff * std::sqrt(variance);
        for (int64_t i = 0; i < width; i++) gates[i] = std::max(0.0f, gates[i] - least);
      }
      kernels_.gate(out, work_.sparse_gates, 2 * padded, padded, Activation(model_.shape().activation), begin,
                    end);
    });
  }
  return to;
}

}  // namespace bunting
