#include "reference/state.h"

#include <algorithm>
#include <cmath>

namespace bunting::reference {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// Returns the convolution's outputs [T, channels] of inputs [T, channels], and keeps the last inputs.
std::vector<double> convolve(StateMixer const& m, std::vector<double> const& in, int64_t tokens,
                             State& state) {
  size_t const channels = size_t(m.channels), kept = size_t(m.taps - 1);
  std::vector<double> all = state.inputs, out(in.size());
  all.insert(all.end(), in.begin(), in.end());
  for (size_t t = 0; t < size_t(tokens); ++t)
    for (size_t c = 0; c < channels; ++c) {
      double sum = m.conv_bias ? double(m.conv_bias[c]) : 0;
      for (size_t j = 0; j <= kept; ++j)
        sum += double(m.conv[j * channels + c]) * all[(t + j) * channels + c];
      out[t * channels + c] = sum;
    }
  state.inputs.assign(all.end() - int64_t(kept * channels), all.end());
  return out;
}

void make_unit(double* x, int64_t n, double scale) {
  double squares = 1e-6;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  for (int64_t i = 0; i < n; ++i) x[i] *= scale / std::sqrt(squares);
}

}  // namespace

std::vector<double> state_mixer(StateMixer const& m, StateGates const& g, int64_t tokens, State& state) {
  int64_t const dk = m.key_size, dv = m.value_size, keys = m.key_heads * dk, channels = m.channels;
  std::vector<double> in;
  for (int64_t t = 0; t < tokens; ++t) {
    float const* const row = m.in + t * m.ldin;
    for (int64_t c = 0; c < channels; ++c)
      in.push_back(m.heads == 0 ? double(row[c]) * double(row[m.v_column + c])
                                : double(c < 2 * keys ? row[c] : row[m.v_column + c - 2 * keys]));
  }
  std::vector<double> conv = convolve(m, in, tokens, state);
  if (m.heads == 0) {
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t c = 0; c < channels; ++c)
        conv[size_t(t * channels + c)] *= double(m.in[t * m.ldin + m.v_column / 2 + c]);
    return conv;
  }
  for (double& x : conv) x *= sigmoid(x);
  std::vector<double> out(size_t(tokens * m.heads * dv));
  for (int64_t t = 0; t < tokens; ++t) {
    double* const row = conv.data() + t * channels;
    for (int64_t h = 0; m.is_delta && h < 2 * m.key_heads; ++h)
      make_unit(row + h * dk, dk, h < m.key_heads ? 1 / std::sqrt(double(dk)) : 1);
    for (int64_t h = 0; h < m.heads; ++h) {
      int64_t const key = m.has_tiled_heads ? h % m.key_heads : h / (m.heads / m.key_heads);
      double const *const q = row + key * dk, *const k = q + keys, *const v = row + 2 * keys + h * dv;
      double const a = double(g.in[t * g.ldin + h]) + double(g.dt_bias[h]);
      double step = std::log1p(std::exp(-std::abs(a))) + std::max(a, 0.0), write = 0;
      if (m.is_delta)
        write = sigmoid(double(g.in[t * g.ldin + g.b_column + h]));
      else
        write = step = std::clamp(step, double(g.dt_min), double(g.dt_max));
      double const decay = std::exp(step * double(g.rates[h]));
      for (int64_t j = 0; j < dv; ++j) {
        double* const s = state.matrices.data() + h * dk * dv + j;
        double read = 0, y = 0;
        for (int64_t i = 0; i < dk; ++i) read += (s[i * dv] *= decay) * k[i];
        double const d = write * (m.is_delta ? v[j] - read : v[j]);
        for (int64_t i = 0; i < dk; ++i) y += (s[i * dv] += k[i] * d) * q[i];
        out[size_t((t * m.heads + h) * dv + j)] = y + (m.skip ? double(m.skip[h]) * v[j] : 0);
      }
    }
  }
  return out;
}

std::vector<double> state_output(StateOutput const& o, int64_t tokens) {
  std::vector<double> out;
  int64_t const part = o.norm_width > 0 ? o.norm_width : o.width;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < o.width; ++i) {
      auto const gated = [&](int64_t at) {
        double const y = double(o.y[t * o.ldy + at]), z = double(o.z[t * o.ldz + at]);
        return o.is_gate_first || o.norm_width == 0 ? y * z * sigmoid(z) : y;
      };
      double squares = 0;
      int64_t const first = i / part * part;
      for (int64_t at = first; at < first + part; ++at) squares += gated(at) * gated(at);
      double y = gated(i);
      if (o.norm_width > 0)
        y *= double(o.norm[o.norm_repeats ? i - first : i]) /
             std::sqrt(squares / double(part) + double(o.epsilon));
      double const z = double(o.z[t * o.ldz + i]);
      out.push_back(o.is_gate_first || o.norm_width == 0 ? y : y * z * sigmoid(z));
    }
  return out;
}

}  // namespace bunting::reference
