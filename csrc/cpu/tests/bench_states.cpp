// Benchmark of recurrent layers in the shape of Qwen3.5-0.8B, with weights in int8.
//
//   bunting_bench_states [1,512]
//
// It prints the processor time of a step of one sequence on one thread, the times of the recurrence's kernels
// per value head and token, and their share of the step. All weights are zeros, which no kernel computes
// faster. The argument is the numbers of tokens.
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "cpu/forward.h"
#include "cpu/tests/bench.h"

namespace bunting::bench {
namespace {

constexpr int32_t kContext = 1024;

// Owns the arrays that a shape points to.
struct Shape {
  std::vector<bunting_layer_shape> layers;
  std::vector<double> frequencies = std::vector<double>(32, 0.01);
  bunting_rope rope{64, 1, frequencies.data(), 0, 0, 0, 0};
  std::vector<uint8_t> formats;
  bunting_model_shape shape{};

  Shape() {
    for (int32_t i = 0; i < 24; ++i) {
      bunting_layer_shape layer{};
      layer.norms = BUNTING_NORM_ATTN | BUNTING_NORM_MLP;
      layer.mixer = i % 4 == 3 ? int32_t{BUNTING_MIXER_ATTENTION} : int32_t{BUNTING_MIXER_DELTA};
      layer.qk_norm = i % 4 == 3 ? BUNTING_QK_NORM_HEAD : BUNTING_QK_NORM_NONE;
      layer.gated_output = i % 4 == 3;
      layers.push_back(layer);
    }
    formats.assign(3 + 10 * layers.size(), BUNTING_FORMAT_INT8);
    shape.layers = int32_t(layers.size()), shape.layer = layers.data();
    shape.hidden = 1024, shape.feed_forward = 3584;
    shape.query_heads = 8, shape.kv_heads = 2, shape.head_size = 256;
    shape.vocab = 248320, shape.context_max = kContext, shape.tied_embeddings = 1;
    shape.ropes = 1, shape.rope = &rope;
    shape.compute = BUNTING_BF16, shape.isa = BUNTING_ISA_AUTO, shape.threads = 1;
    shape.norm_epsilon = 1e-6f, shape.attention_scale = 1.0f / 16;
    shape.embedding_scale = shape.residual_scale = shape.logit_scale = 1;
    shape.formats = formats.data();
    shape.state_key_heads = shape.state_heads = 16;
    shape.state_key_size = shape.state_value_size = 128, shape.state_conv = 4;
    shape.state_options = BUNTING_STATE_NORM_HEADS;
  }
};

// Step of one chunk, with one draw at its end.
struct Step {
  std::vector<int32_t> tokens, pages;
  StepPlan plan;

  explicit Step(int32_t count) : tokens(size_t(count), 1) {
    for (int32_t i = 0; i < (count + kPageTokens - 1) / kPageTokens; ++i) pages.push_back(i);
    plan.tokens = count, plan.chunks = plan.rows = plan.draws = 1;
    plan.token = tokens.data();
    plan.chunk.push_back({0, count, 0, pages.data(), 0});
    plan.state.push_back({0, -1, nullptr, 0});
    for (int32_t i = 0; i < count; ++i) {
      plan.position.push_back(i);
      plan.token_page.push_back(i / kPageTokens);
    }
    plan.row.push_back({count - 1, true, 0});
    SampleRow greedy{};
    greedy.top_p = greedy.repetition = 1, greedy.top_logprobs = -1;
    plan.draw.push_back(greedy);
    plan.shared.resize(1);
  }
};

// Seconds of the kernels of one layer's recurrence on one thread.
struct Recurrence {
  double conv, gates, scan, output;
  double all() const { return conv + gates + scan + output; }
};

Recurrence time_kernels(Model const& model, Step const& step) {
  bunting_model_shape const& s = model.shape();
  int64_t const tokens = step.plan.tokens, width = model.state_in_width(), values = model.state_value_width();
  std::vector<float> in(size_t(tokens * width), 0.1f), ab(size_t(tokens * 32), 0.1f),
      out(size_t(tokens * model.state_out_width()));
  std::vector<float> gates(size_t(tokens * 48)), conv(size_t(4 * model.conv_channels()), 0.1f);
  std::vector<float> per_head(128, 0.5f), rates(16, -0.5f), slot(size_t(model.layer_state_numbers()));
  StateMixer m;
  m.in = in.data(), m.ldin = width, m.v_column = model.state_v_column();
  m.key_heads = s.state_key_heads, m.heads = s.state_heads;
  m.key_size = s.state_key_size, m.value_size = s.state_value_size, m.is_delta = true;
  m.chunks = step.plan.chunk.data(), m.states = step.plan.state.data();
  m.memory = {slot.data(), int64_t(slot.size()), model.conv_state_numbers()};
  m.taps = s.state_conv, m.channels = model.conv_channels(), m.conv = conv.data();
  m.decay = gates.data(), m.write = gates.data() + tokens * 16, m.products = gates.data() + tokens * 32;
  m.out = out.data(), m.ldout = model.state_out_width();
  StateGates const g{ab.data(), 32, 16, per_head.data(), rates.data(), 0, 1};
  StateOutput const o{
      out.data(), values, in.data() + model.state_z_column(), width, values, 128, per_head.data(), true,
      false,      1e-6f};
  Kernels const& kernels = model.kernels();
  // The convolution works in place, so each run begins with the same numbers.
  auto const best = [&](auto const& run) {
    double least = 1e9;
    for (int round = 0; round < 20; ++round) {
      std::fill(in.begin(), in.end(), 0.1f);
      std::fill(out.begin(), out.end(), 0.1f);
      double const before = seconds();
      run();
      least = std::min(least, seconds() - before);
    }
    return least;
  };
  return {best([&] { kernels.state_conv(m, 0, m.conv_items()); }),
          best([&] { kernels.state_gates(m, g, 0, tokens); }),
          best([&] { kernels.state_scan(m, 0, m.scan_items()); }),
          best([&] { kernels.state_output(o, 0, tokens); })};
}

void bench(std::vector<int32_t> const& tokens_of) {
  Shape const shape;
  Model model(shape.shape);
  model.allocate();
  bunting_engine_limits limits{};
  limits.threads = 1, limits.pages = kContext / kPageTokens, limits.page_tokens = kPageTokens;
  limits.step_tokens_max = kContext, limits.step_chunks_max = limits.step_draws_max = 1, limits.states = 1;
  ThreadPool pool(limits.threads, ThreadPool::Cores::own);
  Forward forward(model, limits, pool);
  std::vector<uint32_t> result(64);
  std::printf("Qwen3.5-0.8B, int8, %s, 1 thread\n", model.kernels().name);
  std::printf("%7s %12s %28s %10s\n", "tokens", "step", "conv gates scan output", "share");
  for (int32_t const tokens : tokens_of) {
    Step const step(tokens);
    double const best = best_seconds(3, [&] { forward.run(step.plan, result.data(), nullptr); });
    Recurrence const r = time_kernels(model, step);
    double const ns = 1e9 / (16.0 * tokens);
    std::printf("%7d %9.2f ms   %5.0f %5.0f %5.0f %5.0f ns %8.1f %%\n", tokens, best * 1e3, r.conv * ns,
                r.gates * ns, r.scan * ns, r.output * ns, 100 * 18 * r.all() / best);
  }
}

}  // namespace
}  // namespace bunting::bench

int main(int count, char** arguments) {
  std::vector<int32_t> tokens;
  std::stringstream list(count > 1 ? arguments[1] : "1,512");
  for (std::string each; std::getline(list, each, ',');) tokens.push_back(std::atoi(each.c_str()));
  bunting::bench::bench(tokens);
  return 0;
}
