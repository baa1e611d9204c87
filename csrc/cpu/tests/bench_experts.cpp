// Benchmark of one mixture-of-experts layer, without router and norms, in shapes of published models.
//
//   bunting_bench_experts [--threads 2] [--format Q4_0] [--tokens 1,8,32,512]
//
// It prints the time, the multiply-adds per second and the read rate of the used experts. The read rate is a
// share of one thread's plain read speed times the threads. Rows choose experts at random.
#include <chrono>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cpu/experts.h"
#include "cpu/kernels/row_stride.h"
#include "cpu/tests/bench.h"

namespace bunting::bench {
namespace {

struct Shape {
  char const* name;
  RoutingRule rule;
  int64_t hidden, feed_forward;
};
constexpr Shape kShapes[] = {{"qwen3-30b-a3b", {128, 8, true}, 2048, 768},
                             {"gpt-oss-20b", {32, 4, true}, 2880, 2880},
                             {"mixtral-8x7b", {8, 2, true}, 4096, 14336}};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t row_length(PackedMatrix const& w) {
  return w.grouped() ? w.kp() / kGroup : row_stride(w.dtype, w.k);
}

void bench(Kernels const& kernels, Shape const& shape, Dtype dtype, ThreadPool& pool,
           std::vector<int64_t> const& tokens_of) {
  int64_t const experts = shape.rule.experts;
  PackedMatrix gate_up{.dtype = dtype, .n = experts * 2 * shape.feed_forward, .k = shape.hidden};
  PackedMatrix down{.dtype = dtype, .n = experts * shape.hidden, .k = shape.feed_forward};
  MemoryRegion const weights(gate_up.bytes() + down.bytes(), "experts");
  std::memset(weights.data(), 0, weights.bytes());
  gate_up.data = weights.data();
  down.data = weights.data() + gate_up.bytes();
  for (int64_t tokens : tokens_of) {
    int64_t const pairs = tokens * shape.rule.used;
    Operand x{nullptr, row_length(gate_up), dtype}, activated{nullptr, row_length(down), dtype}, gathered = x;
    size_t const x_bytes = size_t(round_up(tokens * x.ld * x.element_bytes(), 64));
    size_t const gathered_bytes = size_t(round_up(pairs * x.ld * x.element_bytes(), 64));
    size_t const activated_bytes = size_t(round_up(pairs * activated.ld * activated.element_bytes(), 64));
    size_t const y_bytes = size_t(tokens * shape.hidden) * sizeof(float);
    size_t const scratch_bytes = size_t(pool.threads() * kExpertScratch) * sizeof(float);
    MemoryRegion const work(x_bytes + gathered_bytes + activated_bytes + y_bytes + scratch_bytes, "rows");
    std::memset(work.data(), 0, work.bytes());
    x.rows = work.data();
    gathered.rows = work.data() + x_bytes;
    activated.rows = work.data() + x_bytes + gathered_bytes;
    float* const y = reinterpret_cast<float*>(work.data() + x_bytes + gathered_bytes + activated_bytes);

    std::minstd_rand random(1);
    ExpertPlan plan(shape.rule, tokens);
    std::vector<float> logits(size_t(tokens * experts));
    double best = 1e9, groups = 0;
    double const until = wall_seconds() + 0.5;
    for (int round = 0; round < 5 || wall_seconds() < until; ++round) {
      for (float& logit : logits) logit = float(random()) * 0x1p-31f;
      plan.choose(logits.data(), experts, nullptr, nullptr, 0, tokens);
      plan.group(tokens);
      ExpertsMlp const mlp{.plan = &plan,
                           .x = x,
                           .gate_up = &gate_up,
                           .down = &down,
                           .gathered = gathered,
                           .activated = activated,
                           .y = y,
                           .ldy = shape.hidden,
                           .hidden = shape.hidden,
                           .scratch = y + tokens * shape.hidden};
      double const before = wall_seconds();
      {
        ThreadPool::Step const step(pool);
        parallel_experts(pool, kernels, mlp);
      }
      double const taken = wall_seconds() - before;
      if (taken < best) best = taken, groups = double(plan.groups().size());
    }
    double const read = groups / double(experts) * double(weights.bytes());
    double const products = 3.0 * double(pairs) * double(shape.hidden) * double(shape.feed_forward);
    std::printf("%-14s %-7s rows %4d, experts %4.0f: %8.3f ms, %6.1f GB/s, %7.1f G multiply-adds/s\n",
                shape.name, kernels.name, int(tokens), groups, best * 1e3, read / best / 1e9,
                products / best / 1e9);
  }
}

}  // namespace
}  // namespace bunting::bench

int main(int count, char** arguments) {
  using namespace bunting;
  int threads = 2;
  Dtype dtype = Dtype::q4;
  std::vector<int64_t> tokens{1, 8, 32, 512};
  for (int i = 1; i + 1 < count; i += 2) {
    std::string const name = arguments[i], value = arguments[i + 1];
    if (name == "--threads") threads = std::atoi(value.c_str());
    if (name == "--format")
      for (WeightFormat const& format : kFormats)
        if (value == format.name) dtype = format.type;
    if (name == "--tokens") {
      tokens.clear();
      std::istringstream words(value);
      for (std::string word; std::getline(words, word, ',');) tokens.push_back(std::atoll(word.c_str()));
    }
  }
  ThreadPool pool(threads, ThreadPool::Cores::own);
  std::printf("one thread reads %.1f GB/s\n", bench::peak_read_bytes() / 1e9);
  for (bench::Shape const& shape : bench::kShapes)
    if (!(is_super(dtype) && (shape.hidden % kSuper != 0 || shape.feed_forward % kSuper != 0)))
      bench::bench(*kernels_for(usable_isa()), shape, dtype, pool, tokens);
  return 0;
}
