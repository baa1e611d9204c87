// Tests of two engines on two emulated devices, of which the first hangs in a driver call.
#include <atomic>
#include <functional>
#include <thread>

#include "cuda/runtime_emulated.h"
#include "cuda/tests/device_test.h"
#include "tests/tiny_model.h"

namespace bunting::test {
namespace {

constexpr double kSoonMs = 20'000;

struct AllMishapsEnd {
  ~AllMishapsEnd() { cuda::set_mishaps({}); }
};

EnginePointer open_on(int32_t device, bunting_model const* model) {
  bunting_engine_limits limits = tiny_limits();
  limits.device_count = 1;
  limits.devices[0] = device;
  bunting_engine* engine = nullptr;
  bunting_engine_open(model, nullptr, &limits, nullptr, &engine);
  return EnginePointer(engine);
}

// Driver call that hangs, and what the owner of the first device's engine does then.
struct Hang {
  char const* call;
  std::function<void(EnginePointer&, bunting_model const*)> act;
};

}  // namespace

TEST(two_devices_one_computes_while_the_other_hangs) {
  AllMishapsEnd const at_last;
  cuda::set_mishaps({.devices = 2});
  bunting_model_shape shape = tiny_shape();
  shape.head_size = 32;  // a size that GPUs have kernels for
  shape.rope = tiny_rope(32);
  TinyFile const file(shape);
  ModelPointer const model = load_model(shape, file);
  std::vector<uint32_t> const step = encode({{}, {{0, {1, 2, 3}, {4}}}});
  EnginePointer const healthy = open_on(1, model.get());
  std::vector<float> const logits = run_step(healthy.get(), step, 1).logits;
  REQUIRE(!logits.empty(), "%s", bunting_last_error());

  auto const compute = [&](EnginePointer& engine, bunting_model const*) { run_step(engine.get(), step, 1); };
  auto const free = [](EnginePointer& engine, bunting_model const*) { engine.reset(); };
  auto const replace = [](EnginePointer& engine, bunting_model const* of) {
    engine.reset();
    engine = open_on(0, of);
  };
  for (Hang const& hang : {Hang{"finish", compute}, Hang{"release", free}, Hang{"reset", replace}}) {
    EnginePointer engine = open_on(0, model.get());
    bool const is_lost = std::string(hang.call) == "reset";
    cuda::Mishaps mishaps{.hang_in = hang.call, .step_deadline_ms = kSoonMs, .devices = 2};
    mishaps.call_deadline_ms = kSoonMs;
    if (is_lost) mishaps.lose_device = 0;
    cuda::set_mishaps(mishaps);
    if (is_lost) CHECK(run_step(engine.get(), step, 1).status == BUNTING_LOST, "not lost");
    std::atomic<bool> has_returned = false;
    std::thread owner([&] {
      hang.act(engine, model.get());
      has_returned = true;
    });
    CHECK(cuda::wait_for_hang(kSoonMs), "%s does not hang", hang.call);
    for (int i = 0; i < 3; ++i)
      CHECK(run_step(healthy.get(), step, 1).logits == logits, "beside %s: %s", hang.call,
            bunting_last_error());
    CHECK(!has_returned, "%s has ended", hang.call);
    cuda::set_mishaps({.devices = 2});  // ends the hang
    owner.join();
    engine.reset();
    EnginePointer const again = open_on(0, model.get());
    REQUIRE(again, "after %s: %s", hang.call, bunting_last_error());
    CHECK(run_step(again.get(), step, 1).logits == logits, "after %s: %s", hang.call, bunting_last_error());
  }
}

}  // namespace bunting::test
