// Tests of weights on their way to a device by CUDA's calls, on the fake CUDA runtime: copies are done as
// late as they may be, and every call hangs, faults, or has no memory, once at each time that it is made.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "boundary/error.h"
#include "cuda/device_use.h"
#include "cuda/tests/fake_cudart/fake_cudart.h"
#include "cuda/tests/models.h"
#include "cuda/uploader.h"
#include "cuda/weights.h"
#include "tests/test.h"

namespace bunting::cuda::driver {
extern Deadlines cuda_deadlines;
}

namespace bunting::test {
namespace {

using namespace cuda;

constexpr double kSoonMs = 20'000, kCallMs = 250;

// Sets the plan, and deadlines that are short if a call hangs. Ends hangs of the plan before.
void set_plan(FakeCuda const& plan) {
  double const call_ms = plan.hang_in.empty() ? kSoonMs : kCallMs;
  driver::cuda_deadlines = {.call_ms = call_ms, .open_ms = call_ms, .step_ms = call_ms};
  Staging::deadline_ms = call_ms;
  set_fake_cuda(plan);
}

// Makes the fake and the runtime's memory of it whole again.
void begin(FakeCuda const& plan) {
  set_plan(plan);
  forget_loss(0);
}

// Small model in files, in pieces so small that the slots take turns.
struct Loading {
  size_t const slot = std::exchange(Staging::slot_bytes, size_t(1) << 16);
  size_t const sent = std::exchange(Uploader::sent_bytes, size_t(3) << 13);
  double const deadline = Staging::deadline_ms;
  TinyFile const file;
  Model model;

  explicit Loading(Model::Loading loading = Model::Loading::deferred)
      : file(shape_for_gpu(), BUNTING_BF16), model(shape_for_gpu()) {
    load(file, model, loading);
  }
  ~Loading() {
    begin({});
    Staging::slot_bytes = slot;
    Uploader::sent_bytes = sent;
    Staging::deadline_ms = deadline;
  }

  // Loads, and returns the bytes on the device.
  std::vector<char> bytes() const {
    use_device(0);
    DeviceWeights const weights(model);
    return {weights.memory().data(), weights.memory().data() + weights.memory().bytes()};
  }
  bunting_status status(std::vector<char>& bytes_loaded, std::string& text) const {
    text.clear();
    try {
      bytes_loaded = bytes();
    } catch (Error const& error) {
      text = error.what();
      return error.status();
    }
    return BUNTING_OK;
  }
};

constexpr char const* kCalls[] = {"cudaMalloc",
                                  "cudaMemset",
                                  "cudaHostAlloc",
                                  "cudaStreamCreateWithFlags",
                                  "cudaEventCreateWithFlags",
                                  "cudaMemcpyAsync",
                                  "cudaEventRecord",
                                  "cudaEventQuery",
                                  "cudaStreamSynchronize",
                                  "cudaStreamDestroy",
                                  "cudaEventDestroy",
                                  "cudaFreeHost",
                                  "cudaFree"};

}  // namespace

TEST(cuda_loading_is_the_same_from_files_and_from_memory) {
  begin({});
  std::vector<char> const packed = Loading(Model::Loading::now).bytes();
  int const before = fake_cuda_objects();
  CHECK(Loading().bytes() == packed, "other bytes");
  CHECK(fake_cuda_objects() == before, "%d objects are left", fake_cuda_objects() - before);
}

TEST(cuda_loading_goes_by_ordinary_memory_where_none_can_be_pinned) {
  Loading const loading;
  begin({});
  std::vector<char> const wanted = loading.bytes();
  int const before = fake_cuda_objects();
  for (int slot : {0, 1}) {
    begin({.no_memory_in = "cudaHostAlloc", .calls_before = slot});
    std::vector<char> bytes;
    std::string text;
    CHECK(loading.status(bytes, text) == BUNTING_OK, "slot %d: %s", slot, text.c_str());
    CHECK(bytes == wanted, "slot %d: other bytes", slot);
    CHECK(fake_cuda_objects() == before, "slot %d: %d objects are left", slot, fake_cuda_objects() - before);
  }
}

// Each call may fail each time that it is made: the load is refused with a sentence, and the next one works.
TEST(cuda_loading_is_refused_whichever_call_fails) {
  Loading const loading;
  begin({});
  std::vector<char> const wanted = loading.bytes();
  for (char const* call : kCalls)
    for (bool has_memory : {true, false}) {
      int failures = 0;
      for (bool was_made = true; was_made && failures < 100; ++failures) {
        FakeCuda plan{.calls_before = failures, .is_once = true};
        (has_memory ? plan.fault_in : plan.no_memory_in) = call;
        begin(plan);
        int const before = fake_cuda_objects();
        std::vector<char> bytes;
        std::string text;
        bunting_status const status = loading.status(bytes, text);
        was_made = fake_cuda_calls() > failures;
        char const* const what = has_memory ? "faults" : "has no memory";
        CHECK((status == BUNTING_OK) == (bytes == wanted), "%s %s at %d: other bytes", call, what, failures);
        CHECK(status == BUNTING_OK || status == BUNTING_LOST || status == BUNTING_NO_MEMORY,
              "%s %s at %d: %s", call, what, failures, text.c_str());
        CHECK(status == BUNTING_OK || !text.empty(), "%s %s at %d: no sentence", call, what, failures);
        CHECK(status != BUNTING_NO_MEMORY || fake_cuda_objects() == before,
              "%s %s at %d: %d objects are left", call, what, failures, fake_cuda_objects() - before);
        set_plan({});
        CHECK(loading.status(bytes, text) == BUNTING_OK && bytes == wanted, "%s %s at %d, the next: %s", call,
              what, failures, text.c_str());
      }
      CHECK(failures > 1, "%s is not called", call);
    }
}

TEST(cuda_loading_gives_up_calls_that_hang) {
  Loading const loading;
  begin({});
  std::vector<char> const wanted = loading.bytes();
  for (char const* call : kCalls)
    for (int before : {0, 2}) {
      begin({.hang_in = call, .calls_before = before});
      std::vector<char> bytes;
      std::string text;
      bunting_status const status = loading.status(bytes, text);
      CHECK(status == BUNTING_LOST || (status == BUNTING_OK && bytes == wanted), "%s hangs at %d: %s", call,
            before, text.c_str());
      set_plan({});
      CHECK(loading.status(bytes, text) == BUNTING_OK && bytes == wanted, "%s at %d, the next: %s", call,
            before, text.c_str());
    }
}

}  // namespace bunting::test
