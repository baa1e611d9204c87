// Tests of the kernels of recurrent mixers against plain loops in double, and of the gate of attention.
#include <cmath>
#include <limits>

#include "cpu/tests/dense_test.h"
#include "reference/state.h"

namespace bunting::test {
namespace {

struct Shape {
  int32_t key_heads, heads, key_size, value_size, taps;
  bool is_delta, is_tiled = false, has_bias = false, has_skip = false;
  float dt_max = std::numeric_limits<float>::infinity();
  int64_t channels = 0;  // of a short convolution
};

std::vector<float> values(Random& random, int64_t count, float low, float high) {
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = random.uniform(low, high);
  return x;
}

// Largest difference in units of the largest expected magnitude.
double error_of(std::vector<float> const& got, std::vector<double> const& want) {
  double largest = 1e-30, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    double const each = std::fabs(double(got[i]) - want[i]);
    difference = std::isnan(each) ? INFINITY : std::max(difference, each);
  }
  return difference / largest;
}

// Runs `tokens` tokens as one chunk that begins from a random state and saves it on its way.
void check(Shape const& shape, int32_t tokens) {
  Random random{uint64_t(shape.heads * 31 + tokens)};
  bool const has_heads = shape.heads > 0;
  int64_t const dk = shape.key_size, dv = shape.value_size, keys = shape.key_heads * dk;
  int64_t const width = has_heads ? shape.heads * dv : shape.channels,
                channels = has_heads ? 2 * keys + width : shape.channels;
  int64_t const v_column = has_heads ? 2 * keys : 2 * round_up(shape.channels, 16),
                ldin = v_column + width + 16;
  std::vector<float> const input = values(random, tokens * ldin, -2, 2);
  std::vector<float> const gates_in = values(random, tokens * 2 * std::max(1, shape.heads), -3, 3);
  std::vector<float> const conv = values(random, shape.taps * channels, -0.5, 0.5);
  std::vector<float> const bias = values(random, channels, -0.5, 0.5), skip = values(random, width, -1, 1);
  std::vector<float> const dt_bias = values(random, width, -1, 1), rates = values(random, width, -2, -0.1f);
  int64_t const matrices_at = round_up((shape.taps - 1) * channels, 16),
                stride = matrices_at + width * dk + 16;
  std::vector<float> const state = values(random, stride, -1, 1);

  for (Kernels const* kernels : dense_levels()) {
    std::vector<float> in = input, out(size_t(tokens * width));
    std::vector<float> decay(size_t(tokens * width)), write = decay, products(size_t(tokens * (keys + 1)));
    std::vector<float> slots(size_t(3 * stride), 9);
    std::copy(state.begin(), state.end(), slots.begin() + 2 * stride);
    ChunkView const chunk{0, tokens, 5, nullptr, 0};
    StateSave const save{(tokens + 1) / 2, 1};
    ChunkState const of_chunk{0, 2, &save, 1};
    StateMixer m;
    m.in = in.data(), m.ldin = ldin, m.v_column = v_column;
    m.key_heads = shape.key_heads, m.heads = shape.heads;
    m.key_size = shape.key_size, m.value_size = shape.value_size;
    m.is_delta = shape.is_delta, m.has_tiled_heads = shape.is_tiled;
    m.chunks = &chunk, m.states = &of_chunk;
    m.memory = {slots.data(), stride, matrices_at};
    m.taps = shape.taps, m.channels = channels, m.conv = conv.data();
    m.conv_bias = shape.has_bias ? bias.data() : nullptr;
    m.skip = shape.has_skip ? skip.data() : nullptr;
    m.decay = decay.data(), m.write = write.data(), m.products = products.data();
    m.out = out.data(), m.ldout = width;
    StateGates const g{
        gates_in.data(), 2 * std::max(1, shape.heads), shape.heads, dt_bias.data(), rates.data(), 0.01f,
        shape.dt_max};

    reference::State expected;
    int64_t const columns = has_heads ? state_columns(dv) : 16;
    // Place of S[h][i][j] in a slot.
    auto const place = [&](int64_t h, int64_t i, int64_t j) {
      return matrices_at + ((h * (dv / columns) + j / columns) * dk + i) * columns + j % columns;
    };
    expected.inputs.assign(state.begin(), state.begin() + (shape.taps - 1) * channels);
    for (int64_t h = 0; h < shape.heads; ++h)
      for (int64_t i = 0; i < dk; ++i)
        for (int64_t j = 0; j < dv; ++j) expected.matrices.push_back(double(state[size_t(place(h, i, j))]));
    auto const state_error = [&](int64_t slot) {
      std::vector<float> got;
      std::vector<double> want = expected.inputs;
      want.insert(want.end(), expected.matrices.begin(), expected.matrices.end());
      float const* const from = slots.data() + slot * stride;
      got.assign(from, from + (shape.taps - 1) * channels);
      for (int64_t h = 0; h < shape.heads; ++h)
        for (int64_t i = 0; i < dk; ++i)
          for (int64_t j = 0; j < dv; ++j) got.push_back(from[place(h, i, j)]);
      return error_of(got, want);
    };

    kernels->state_conv(m, 0, m.conv_items());
    if (has_heads) {
      kernels->state_gates(m, g, 0, tokens);
      kernels->state_scan(m, 0, m.scan_items());
    }
    StateMixer raw = m;
    std::vector<float> const raw_in = input;
    raw.in = const_cast<float*>(raw_in.data());
    std::vector<double> want = reference::state_mixer(raw, g, save.count, expected);
    CHECK(state_error(1) < 2e-5, "%s heads %d tokens %d: saved state is off by %g", kernels->name,
          shape.heads, tokens, state_error(1));
    raw.in += save.count * ldin;
    StateGates rest = g;
    rest.in += save.count * g.ldin;
    std::vector<double> const second = reference::state_mixer(raw, rest, tokens - save.count, expected);
    want.insert(want.end(), second.begin(), second.end());
    CHECK(state_error(0) < 2e-5, "%s heads %d tokens %d: state is off by %g", kernels->name, shape.heads,
          tokens, state_error(0));
    CHECK(error_of(out, want) < 2e-5, "%s heads %d tokens %d: outputs are off by %g", kernels->name,
          shape.heads, tokens, error_of(out, want));
  }
}

TEST(state_mixers_match_reference) {
  Shape const shapes[] = {
      {1, 1, 16, 16, 4, true},
      {2, 4, 32, 64, 4, true},
      {2, 6, 128, 48, 2, true, true},
      {1, 2, 128, 128, 8, true, false, true, true},
      {1, 1, 16, 16, 4, false},
      {2, 4, 128, 64, 4, false, false, true, true},
      {3, 6, 64, 80, 3, false, true, true, true, 0.5f},
      {0, 0, 0, 0, 3, false, false, false, false, 0, 40},
      {0, 0, 0, 0, 3, false, false, true, false, 0, 200},
  };
  for (Shape const& shape : shapes)
    for (int32_t const tokens : {1, 2, 7, 40}) check(shape, tokens);
}

TEST(state_output_matches_reference) {
  constexpr int64_t kTokens = 3, kWidth = 96;
  Random random{5};
  std::vector<float> const y = values(random, kTokens * kWidth, -3, 3),
                           z = values(random, kTokens * kWidth, -9, 9);
  std::vector<float> const norm = values(random, kWidth, 0.5, 2);
  for (Kernels const* kernels : dense_levels())
    for (int64_t const part : {0, 16, 32, 96})
      for (bool const repeats : {false, true})
        for (bool const is_first : {false, true}) {
          std::vector<float> got = y;
          StateOutput o{got.data(), kWidth,      z.data(), kWidth,   kWidth,
                        part,       norm.data(), repeats,  is_first, 1e-6f};
          std::vector<double> const want = reference::state_output(o, kTokens);
          kernels->state_output(o, 0, kTokens);
          CHECK(error_of(got, want) < 1e-6, "%s part %d: off by %g", kernels->name, int(part),
                error_of(got, want));
        }
}

TEST(gate_output_matches_sigmoid) {
  constexpr int64_t kWidth = 48;
  Random random{6};
  std::vector<float> const y = values(random, kWidth, -3, 3), g = values(random, kWidth, -30, 30);
  std::vector<double> want;
  for (size_t i = 0; i < y.size(); ++i) want.push_back(double(y[i]) / (1 + std::exp(-double(g[i]))));
  for (Kernels const* kernels : dense_levels()) {
    std::vector<float> got = y;
    kernels->gate_output(got.data(), Dtype::f32, kWidth, g.data(), kWidth, kWidth, 0, 1);
    CHECK(error_of(got, want) < 1e-6, "%s: off by %g", kernels->name, error_of(got, want));
    std::vector<bf16> half;
    for (float const each : y) {
      uint32_t bits;
      std::memcpy(&bits, &each, 4);
      half.push_back(bf16(bits >> 16));
    }
    kernels->gate_output(half.data(), Dtype::bf16, kWidth, g.data(), kWidth, kWidth, 0, 1);
    for (size_t i = 0; i < half.size(); ++i) {
      uint32_t const bits = uint32_t(half[i]) << 16;
      std::memcpy(&got[i], &bits, 4);
    }
    CHECK(error_of(got, want) < 2e-2, "%s in bf16: off by %g", kernels->name, error_of(got, want));
  }
}

}  // namespace
}  // namespace bunting::test
