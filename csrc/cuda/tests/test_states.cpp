// Tests of the kernels of recurrent mixers against the reference loops, and bit for bit in chunks of any
// size.
#include <array>

#include "cuda/kernels/states.h"
#include "cuda/tests/device_test.h"
#include "reference/state.h"

namespace bunting::test {
namespace {

constexpr int32_t kTokens = 23, kSlots = 6;

struct Kind {
  int32_t key_heads, heads, key_size, value_size, taps;  // a short convolution has no heads
  bool is_delta, has_tiled_heads, has_bias, has_skip;
  int32_t hidden = 0;  // channels of a short convolution
};
constexpr Kind kKinds[] = {
    {2, 4, 32, 16, 4, true, false, false, false},    {1, 1, 16, 48, 2, true, false, true, false},
    {2, 4, 128, 32, 4, true, true, false, false},    {1, 2, 256, 16, 8, true, false, false, true},
    {1, 3, 48, 32, 4, false, false, true, true},     {2, 4, 64, 16, 3, false, true, false, false},
    {1, 1, 128, 256, 4, false, false, true, true},   {0, 0, 0, 0, 3, false, false, false, false, 40},
    {0, 0, 0, 0, 2, false, false, true, false, 136},
};

// A mixer with random weights, and the projections of kTokens tokens of one sequence.
struct Mixer {
  Kind kind;
  int32_t keys, values, channels, in_width, gate_width;
  std::vector<float> in, gates, conv, conv_bias, dt_bias, rates, skip;
  int64_t matrices_at, stride;

  Mixer(Kind const& k, uint64_t seed)
      : kind(k),
        keys(k.key_heads * k.key_size),
        values(k.heads * k.value_size),
        channels(k.heads > 0 ? 2 * keys + values : k.hidden),
        in_width(k.heads > 0 ? channels + 16 : 3 * channels),
        gate_width((k.is_delta ? 2 : 1) * k.heads) {
    Random random{seed};
    in = random_floats(random, size_t(kTokens * in_width), 2);
    gates = random_floats(random, size_t(kTokens * gate_width), 3);
    Random weights{1};
    conv = random_floats(weights, size_t(k.taps * channels));
    conv_bias = random_floats(weights, size_t(channels));
    dt_bias = random_floats(weights, size_t(k.heads));
    rates = random_floats(weights, size_t(k.heads));
    for (float& rate : rates) rate = -std::exp(rate);
    skip = random_floats(weights, size_t(k.heads));
    matrices_at = ((k.taps - 1) * channels + 15) / 16 * 16;
    stride = matrices_at + int64_t(k.key_size) * values;
  }
  int32_t outputs() const { return kind.heads > 0 ? values : channels; }
  cuda::StateSizes sizes() const {
    return {kind.key_heads, kind.heads, kind.key_size, kind.value_size,
            kind.taps,      channels,   kind.is_delta, kind.has_tiled_heads};
  }
  // Returns the exact outputs, and the state after the first `tokens`.
  std::vector<double> exact(int64_t tokens, reference::State& state) const {
    StateMixer m;
    m.in = const_cast<float*>(in.data());
    m.ldin = in_width;
    m.v_column = 2 * (kind.heads > 0 ? keys : channels);
    m.key_heads = kind.key_heads, m.heads = kind.heads;
    m.key_size = kind.key_size, m.value_size = kind.value_size;
    m.is_delta = kind.is_delta, m.has_tiled_heads = kind.has_tiled_heads;
    m.taps = kind.taps, m.channels = channels;
    m.conv = conv.data();
    m.conv_bias = kind.has_bias ? conv_bias.data() : nullptr;
    m.skip = kind.has_skip ? skip.data() : nullptr;
    StateGates const g{gates.data(), gate_width, kind.heads, dt_bias.data(), rates.data(), kDtMin, kDtMax};
    state.inputs.assign(size_t((kind.taps - 1) * channels), 0);
    state.matrices.assign(size_t(kind.key_size * values), 0);
    return reference::state_mixer(m, g, tokens, state);
  }
  static constexpr float kDtMin = 0.1f, kDtMax = 2.5f;
};

// Chunk of the step of one or several sequences, as in engine.h.
struct Part {
  int32_t sequence, begin, end, slot, from;
  std::vector<cuda::StateCopy> saves = {};
};

// Device that runs steps of sequences of one kind, with slots of NaN at the beginning.
struct Device {
  std::vector<Mixer> const& sequences;
  Mixer const& of;
  DeviceArray<float> conv, conv_bias, dt_bias, rates, skip, slots;

  explicit Device(std::vector<Mixer> const& all)
      : sequences(all),
        of(all[0]),
        conv(of.conv),
        conv_bias(of.conv_bias),
        dt_bias(of.dt_bias),
        rates(of.rates),
        skip(of.skip),
        slots(size_t(kSlots * of.stride)) {}

  // Returns the outputs of the parts, one after the other; those of a short convolution are widened bf16.
  // `padding` chunks of one token each end the step.
  std::vector<float> run(std::vector<Part> const& parts, int32_t padding = 0) {
    std::vector<float> in, gates;
    std::vector<int32_t> chunk_of_token;
    std::vector<cuda::StateChunk> chunks;
    std::vector<cuda::StateCopy> saves;
    for (Part const& part : parts) {
      Mixer const& from = sequences[size_t(part.sequence)];
      auto const add = [&](std::vector<float>& to, std::vector<float> const& rows, int32_t width) {
        to.insert(to.end(), rows.begin() + part.begin * width, rows.begin() + part.end * width);
      };
      chunks.push_back({int32_t(chunk_of_token.size()), part.end - part.begin, part.slot, part.from,
                        int32_t(saves.size()), int32_t(part.saves.size())});
      add(in, from.in, of.in_width);
      add(gates, from.gates, of.gate_width);
      chunk_of_token.insert(chunk_of_token.end(), size_t(part.end - part.begin), int32_t(chunks.size()) - 1);
      saves.insert(saves.end(), part.saves.begin(), part.saves.end());
    }
    size_t const real = chunk_of_token.size(), all = real + size_t(padding);
    for (int32_t i = 0; i < padding; ++i) {
      chunks.push_back({0, 0, -1, -1, 0, 0});
      chunk_of_token.push_back(-1);
      in.insert(in.end(), size_t(of.in_width), NAN);
      gates.insert(gates.end(), size_t(of.gate_width), NAN);
    }
    DeviceArray<float> const device_in(in), device_gates(gates), convolved(all * size_t(of.channels)),
        decay(all * size_t(of.kind.heads)), factor(all * size_t(of.kind.heads)),
        out(all * size_t(of.outputs()));
    DeviceArray<uint16_t> const short_out(all * size_t(of.outputs()));
    DeviceArray<int32_t> const device_tokens(chunk_of_token);
    DeviceArray<cuda::StateChunk> const device_chunks(chunks);
    DeviceArray<cuda::StateCopy> const device_saves(saves);
    cuda::StateStep const step{device_chunks.data(), device_tokens.data(), device_saves.data(),
                               int32_t(chunks.size()), int32_t(all)};
    cuda::StateLayer const memory{slots.data(), of.stride, of.matrices_at};
    float const* const bias = of.kind.has_bias ? conv_bias.data() : nullptr;
    bool const is_short = of.kind.heads == 0;
    std::string const fault = fault_of([&](cuda::Stream& stream) {
      if (is_short)
        cuda::short_conv(stream,
                         {device_in.data(), short_out.data(), conv.data(), bias, of.sizes(), memory, step});
      else
        cuda::state_conv(stream, {.in = device_in.data(),
                                  .in_stride = of.in_width,
                                  .out = convolved.data(),
                                  .weights = conv.data(),
                                  .bias = bias,
                                  .sizes = of.sizes(),
                                  .memory = memory,
                                  .step = step,
                                  .gates = device_gates.data(),
                                  .dt_bias = dt_bias.data(),
                                  .rates = rates.data(),
                                  .dt_min = Mixer::kDtMin,
                                  .dt_max = Mixer::kDtMax,
                                  .decay = decay.data(),
                                  .factor = factor.data()});
      cuda::state_history(stream, {device_in.data(), of.in_width, is_short, of.sizes(), memory, step});
      if (!is_short)
        cuda::state_scan(
            stream, {convolved.data(), decay.data(), factor.data(), of.kind.has_skip ? skip.data() : nullptr,
                     out.data(), of.sizes(), memory, step});
    });
    CHECK(fault.empty(), "%s", fault.c_str());
    std::vector<float> values;
    if (is_short)
      for (uint16_t const half : short_out.get()) values.push_back(reference::widen(half));
    else
      values = out.get();
    values.resize(real * size_t(of.outputs()));
    return values;
  }

  std::vector<float> slot(int32_t index) const {
    std::vector<float> const all = slots.get();
    return {all.begin() + index * of.stride, all.begin() + (index + 1) * of.stride};
  }
};

// Bits, because numbers that were never written are NaN.
bool same_bits(std::vector<float> const& x, std::vector<float> const& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

bool is_near(float got, double want) {
  return std::fabs(double(got) - want) <= 3e-5 * (1 + std::fabs(want));
}

}  // namespace

TEST(cuda_states_match_the_reference) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    std::vector<Mixer> const sequences{Mixer(kKinds[i], 7)};
    Mixer const& of = sequences[0];
    Device device(sequences);
    std::vector<float> const got = device.run({{0, 0, kTokens, 2, -1}});
    reference::State state;
    std::vector<double> const want = of.exact(kTokens, state);
    REQUIRE(got.size() == want.size(), "kind %zu: %zu outputs", i, got.size());
    for (size_t at = 0; at < got.size(); ++at) {
      bool const is_right = of.kind.heads > 0 ? is_near(got[at], want[at])
                                              : is_rounded(reference::narrow(got[at]), want[at], 1e-5);
      CHECK(is_right, "kind %zu output %zu: %g, wanted %g", i, at, double(got[at]), want[at]);
    }
    std::vector<float> const slot = device.slot(2);
    for (size_t at = 0; at < state.inputs.size(); ++at)
      CHECK(is_near(slot[at], state.inputs[at]), "kind %zu input %zu: %g", i, at, double(slot[at]));
    for (int32_t j = 0; j < of.values; ++j)
      for (int32_t row = 0; row < of.kind.key_size; ++row) {
        int32_t const head = j / of.kind.value_size, column = j % of.kind.value_size;
        float const number = slot[size_t(of.matrices_at + j * of.kind.key_size + row)];
        double const exact =
            state.matrices[size_t((head * of.kind.key_size + row) * of.kind.value_size + column)];
        CHECK(is_near(number, exact), "kind %zu column %d row %d: %g, wanted %g", i, j, row, double(number),
              exact);
      }
  }
}

TEST(cuda_states_do_not_depend_on_chunks_or_company) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    std::vector<Mixer> const sequences{Mixer(kKinds[i], 7), Mixer(kKinds[i], 8)};
    int32_t const width = sequences[0].outputs();
    Device whole(sequences);
    std::vector<float> const want = whole.run({{0, 0, kTokens, 0, -1}});
    std::vector<float> const want_slot = whole.slot(0);

    for (int32_t size : {1, 7}) {
      Device device(sequences);
      std::vector<float> got;
      for (int32_t begin = 0; begin < kTokens; begin += size) {
        int32_t const end = std::min(begin + size, kTokens);
        // Another sequence is before this one, and padding behind it.
        std::vector<float> const both =
            device.run({{1, 0, 3, 4, -1}, {0, begin, end, 1, begin > 0 ? 1 : -1}}, 2);
        got.insert(got.end(), both.begin() + 3 * width, both.end());
      }
      CHECK(same_bits(got, want), "kind %zu, chunks of %d: other outputs", i, size);
      CHECK(same_bits(device.slot(1), want_slot), "kind %zu, chunks of %d: another state", i, size);
    }

    // Saves within a chunk, and a chunk that begins from one of them.
    Device saving(sequences);
    std::vector<float> const saved = saving.run({{0, 0, kTokens, 0, -1, {{2, 3}, {9, 4}, {kTokens, 5}}}});
    CHECK(same_bits(saved, want) && same_bits(saving.slot(0), want_slot), "kind %zu: saves change bits", i);
    CHECK(same_bits(saving.slot(5), want_slot), "kind %zu: the last save is another state", i);
    for (auto [count, slot] : {std::pair(2, 3), std::pair(9, 4)}) {
      Device shorter(sequences);
      shorter.run({{0, 0, count, 0, -1}});
      CHECK(same_bits(saving.slot(slot), shorter.slot(0)), "kind %zu: the state after %d tokens differs", i,
            count);
      std::vector<float> const before = saving.slot(slot);
      std::vector<float> const rest = saving.run({{0, count, kTokens, 1, slot}});
      CHECK(std::equal(rest.begin(), rest.end(), want.begin() + count * width),
            "kind %zu: other outputs from %d on", i, count);
      CHECK(same_bits(saving.slot(1), want_slot), "kind %zu: another state from %d on", i, count);
      CHECK(same_bits(saving.slot(slot), before), "kind %zu: a chunk writes the slot that it begins from", i);
    }
  }
}

namespace {

struct Output {
  int32_t width, part;  // a part of 0: no norm
  bool repeats, gate_first;
};
constexpr Output kOutputs[] = {{64, 16, true, false},    {48, 48, true, true},       {96, 48, false, false},
                               {1040, 520, false, true}, {1040, 1040, false, false}, {64, 0, false, false}};

}  // namespace

TEST(cuda_state_output_matches_the_reference) {
  Random random{3};
  for (Output const& of : kOutputs) {
    int32_t const tokens = 3, z_stride = of.width + 8;
    std::vector<float> x = random_floats(random, size_t(tokens * of.width), 3);
    std::vector<float> const z = random_floats(random, size_t(tokens * z_stride), 3),
                             norm = random_floats(random, size_t(of.width), 2);
    bool const has_norm = of.part > 0;
    std::vector<double> const want =
        reference::state_output({x.data(), of.width, z.data(), z_stride, of.width, of.part,
                                 has_norm ? norm.data() : nullptr, of.repeats, of.gate_first, 1e-5f},
                                tokens);
    DeviceArray<float> const device_x(x), device_z(z), device_norm(norm);
    DeviceArray<uint16_t> const y(x.size());
    auto const work = [&](cuda::Stream& stream) {
      stream.fill(y.data(), 0xff, x.size() * sizeof(uint16_t));
      cuda::state_output(stream, {.x = device_x.data(),
                                  .z = device_z.data(),
                                  .z_stride = z_stride,
                                  .y = y.data(),
                                  .norm = has_norm ? device_norm.data() : nullptr,
                                  .tokens = tokens,
                                  .width = of.width,
                                  .part = has_norm ? of.part : of.width,
                                  .norm_repeats = of.repeats,
                                  .gate_first = of.gate_first,
                                  .epsilon = 1e-5f});
    };
    RUNS(work(stream));
    auto const is_right = [&](size_t i) { return is_rounded(y.get()[i], want[i], 2e-5); };
    std::vector<uint16_t> const got = y.get();
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(is_rounded(got[i], want[i], 2e-5), "width %d part %d number %zu: %g, wanted %g", of.width,
            of.part, i, double(reference::widen(got[i])), want[i]);
    if (of.part == of.width && of.width > 1000) every_wait_is_needed(work, [&] { return is_right(5); });
  }
}

TEST(cuda_gate_output_multiplies_by_sigmoids) {
  Random random{4};
  int32_t const tokens = 3, width = 720;
  std::vector<uint16_t> const values = random_halves(random, size_t(tokens * width), 3);
  std::vector<float> const gates = random_floats(random, values.size(), 5);
  DeviceArray<uint16_t> const x(values);
  DeviceArray<float> const gate(gates);
  RUNS(cuda::gate_output(stream, {x.data(), gate.data(), tokens, width}));
  std::vector<uint16_t> const got = x.get();
  for (size_t i = 0; i < got.size(); ++i) {
    double const want = double(reference::widen(values[i])) / (1 + std::exp(-double(gates[i])));
    CHECK(is_rounded(got[i], want), "number %zu: %g, wanted %g", i, double(reference::widen(got[i])), want);
  }
}

}  // namespace bunting::test
