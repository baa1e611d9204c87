// Whole steps on the emulated device against the CPU engine: the same model, the same step blocks.
#include <cmath>

#include "cuda/forward.h"
#include "cuda/tests/device_test.h"
#include "forward.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

// Both engines over one model.
struct Engines {
  TinyFile file;
  Model model;
  bunting_engine_limits limits = tiny_limits();
  std::optional<Forward> cpu;
  std::optional<cuda::Forward> gpu;
  std::optional<StepReader> reader;

  explicit Engines(bunting_model_shape const& shape) : file(shape), model(shape) {
    model.allocate();
    for (TinyFile::Tensor const& t : file.tensors())
      model.load(t.tensor, t.layer, file.path().c_str(), t.offset, file.dtype(), t.rows, t.cols);
    model.seal();
    cpu.emplace(model, limits);
    gpu.emplace(model, limits);
    reader.emplace(StepLimits{limits.pages, limits.page_tokens, limits.step_tokens_max,
                              limits.step_chunks_max, limits.top_logprobs_max, shape.vocab,
                              shape.context_max});
  }

  // The smallest cosine between the logits of a row.
  double agreement(StepSpec const& step) {
    std::vector<uint32_t> const block = encode(step);
    std::vector<uint32_t> wanted(2000), got(2000);
    StepPlan const& plan = reader->read(block.data(), block.size() * 4, wanted.size() * 4);
    cpu->run(plan, wanted.data());
    gpu->run(plan, got.data());
    size_t const vocab = size_t(model.shape().vocab);
    float const *a = cpu->logits(), *b = gpu->logits();
    double least = 1;
    for (int32_t r = 0; r < plan.rows; ++r) {
      double ab = 0, aa = 0, bb = 0;
      for (size_t i = size_t(r) * vocab; i < size_t(r + 1) * vocab; ++i) {
        ab += double(a[i]) * double(b[i]);
        aa += double(a[i]) * double(a[i]);
        bb += double(b[i]) * double(b[i]);
      }
      double const cosine = ab / std::sqrt(aa * bb);
      if (!(cosine >= least)) least = cosine;
    }
    return least;
  }
};

bunting_model_shape shape_for_gpu() {
  bunting_model_shape shape = tiny_shape();
  shape.head_size = 32;
  return shape;
}

constexpr double kCosineMin = 0.9995;

}  // namespace

TEST(cuda_forward_agrees_with_the_cpu_engine) {
  Engines engines(shape_for_gpu());
  int32_t const vocab = engines.model.shape().vocab;
  std::vector<int32_t> const first = random_tokens(1, 90, vocab), second = random_tokens(2, 20, vocab);
  auto const part = [](std::vector<int32_t> const& tokens, int begin, int end) {
    return std::vector<int32_t>(tokens.begin() + begin, tokens.begin() + end);
  };
  // A chunk that samples nothing beside a whole prompt, then the rest of it beside a decode, then decodes.
  StepSpec const steps[] = {
      {{}, {{0, part(first, 0, 70), pages_from(10, 5), false}, {0, part(second, 0, 18), pages_from(20, 2)}}},
      {{}, {{70, part(first, 70, 88), pages_from(10, 6)}, {18, part(second, 18, 19), pages_from(20, 2)}}},
      {{21, 30, 3}, {{88, part(first, 88, 89), pages_from(10, 6)}, {19, part(second, 19, 20), {20, 30}}}},
  };
  for (StepSpec const& step : steps) {
    double const cosine = engines.agreement(step);
    CHECK(cosine >= kCosineMin, "cosine %g", cosine);
  }
}

}  // namespace bunting::test
