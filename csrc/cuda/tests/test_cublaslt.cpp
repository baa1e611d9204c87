// Tests of loading, checking and calling cuBLASLt, against a fake that follows its documentation.
#include <dlfcn.h>

#include <cstdlib>

#include "cuda/cublaslt.h"
#include "cuda/tests/device_test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

// Returns why the library is not used; "" if it is used.
std::string refusal(std::string const& path) {
  try {
    cuda::CublasLt const library(path);
    return "";
  } catch (Error const& error) {
    return error.status() == BUNTING_INVALID ? error.what() : "another status";
  }
}

bool contains(std::string const& text, char const* part) {
  return text.find(part) != std::string::npos;
}

float furthest(std::vector<float> const& x, std::vector<float> const& y) {
  float most = x.size() == y.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) most = std::max(most, std::fabs(x[i] - y[i]));
  return most;
}

// Sets a fault of the fake for its own lifetime.
class Fault {
 public:
  explicit Fault(int fault) : library_(dlopen(BUNTING_FAKE_CUBLASLT, RTLD_NOW)) {
    fault_ = static_cast<int*>(dlsym(library_, "fake_cublaslt_fault"));
    set(fault);
  }
  ~Fault() { set(0); }

 private:
  // A thread of the fake that hangs reads it at the same time.
  void set(int fault) { __atomic_store_n(fault_, fault, __ATOMIC_RELAXED); }

  void* library_;
  int* fault_;
};

std::vector<float> product(cuda::CublasLt* library, int32_t tokens, bool bias) {
  Random random{41};
  constexpr int32_t kN = 40, kK = 72;
  DeviceArray<uint16_t> const x(random_halves(random, size_t(tokens * kK))),
      w(random_halves(random, size_t(kN * kK)));
  DeviceArray<float> const biases(random_floats(random, kN)), y(size_t(tokens * kN));
  cuda::Gemm const g{x.data(), w.data(), bias ? biases.data() : nullptr, y.data(), tokens, kN, kK};
  std::string const fault =
      fault_of([&](cuda::Stream& stream) { library ? library->multiply(stream, g) : cuda::gemm(stream, g); });
  CHECK(fault.empty(), "%s", fault.c_str());
  return y.get();
}

}  // namespace

TEST(cuda_cublaslt_multiplies_as_our_kernels_do) {
  cuda::CublasLt library(BUNTING_FAKE_CUBLASLT);
  CHECK(contains(library.description(), "cuBLASLt 13.1.2"), "%s", library.description().c_str());
  for (int32_t tokens : {1, 70})
    for (bool bias : {false, true}) {
      std::vector<float> const ours = product(nullptr, tokens, bias),
                               theirs = product(&library, tokens, bias);
      for (size_t i = 0; i < ours.size(); ++i)
        CHECK(std::fabs(ours[i] - theirs[i]) <= 1e-4f, "T=%d bias=%d: %g and %g", tokens, bias,
              double(ours[i]), double(theirs[i]));
    }
}

TEST(cuda_cublaslt_is_not_used_unless_it_is_right) {
  CHECK(contains(refusal("/nowhere/libcublasLt.so.13"), "/nowhere/libcublasLt.so.13"), "%s",
        refusal("/nowhere/libcublasLt.so.13").c_str());
  CHECK(contains(refusal("libm.so.6"), "libm.so.6 has no cublasLtCreate"), "%s",
        refusal("libm.so.6").c_str());
  Fault const wrong(1);
  CHECK(contains(refusal(BUNTING_FAKE_CUBLASLT), "is not used: it makes"), "%s",
        refusal(BUNTING_FAKE_CUBLASLT).c_str());
}

TEST(cuda_cublaslt_leaves_to_us_what_it_has_no_algorithm_for) {
  Fault const none(2);
  cuda::CublasLt library(BUNTING_FAKE_CUBLASLT);
  CHECK(product(&library, 70, true) == product(nullptr, 70, true), "other bits");
}

TEST(cuda_cublaslt_that_hangs_loses_its_device) {
  std::string said;
  cuda::set_mishaps({.call_deadline_ms = 150});
  {
    Fault const hang(3);
    try {
      cuda::CublasLt const library(BUNTING_FAKE_CUBLASLT);
    } catch (Error const& error) {
      said = error.what();
    }
  }
  CHECK(said == "GPU 0 is lost: starting cuBLASLt: the driver has not answered after 150 ms", "%s",
        said.c_str());
  cuda::set_mishaps({});
  std::optional<cuda::CublasLt> library(BUNTING_FAKE_CUBLASLT);
  cuda::set_mishaps({.call_deadline_ms = 150});
  {
    Fault const hang(4);
    library.reset();
  }
  said.clear();
  try {
    cuda::DeviceMemory(8, "two numbers");
  } catch (Error const& error) {
    said = error.what();
  }
  CHECK(said == "GPU 0 is lost: closing cuBLASLt: the driver has not answered after 150 ms", "%s",
        said.c_str());
  cuda::set_mishaps({});
}

// Runs a prompt of more than 64 tokens, then a decode, through the C boundary.
TEST(cuda_cublaslt_multiplies_for_an_engine_that_was_asked_to) {
  setenv("BUNTING_CUBLASLT", BUNTING_FAKE_CUBLASLT, 1);
  TinyFile const file(tiny_shape());
  ModelPointer const model = load_model(tiny_shape(), file);
  bunting_engine_limits limits = tiny_limits();
  std::vector<int32_t> const prompt = random_tokens(1, 100, tiny_shape().vocab);
  StepSpec const steps[] = {{{}, {{0, prompt, pages_from(0, 7)}}}, {{}, {{100, {5}, pages_from(0, 7)}}}};
  EnginePointer const own = open_engine(model.get(), limits);
  limits.gemm = BUNTING_GEMM_CUBLASLT;
  EnginePointer const theirs = open_engine(model.get(), limits);
  REQUIRE(own && theirs, "%s", bunting_last_error());
  for (StepSpec const& step : steps) {
    std::vector<float> const want = run_step(own.get(), step).logits,
                             got = run_step(theirs.get(), step).logits;
    CHECK(furthest(want, got) < 0.1f, "%zu tokens: off by %g", step.chunks[0].tokens.size(),
          double(furthest(want, got)));
  }
  char description[64];
  CHECK(bunting_cublaslt_probe(0, description, sizeof description) == BUNTING_OK &&
            contains(description, "cuBLASLt 13.1.2"),
        "%s", bunting_last_error());
  Fault const wrong(1);  // affects new handles only: a handle opened before still works
  std::vector<float> const want = run_step(own.get(), steps[0]).logits;
  CHECK(furthest(want, run_step(theirs.get(), steps[0]).logits) > 0.1f, "it is not used");
  bunting_engine* none = nullptr;
  CHECK(bunting_engine_open(model.get(), nullptr, &limits, nullptr, &none) == BUNTING_INVALID &&
            contains(bunting_last_error(), "is not used: it makes"),
        "%s", bunting_last_error());
  unsetenv("BUNTING_CUBLASLT");
}

}  // namespace bunting::test
