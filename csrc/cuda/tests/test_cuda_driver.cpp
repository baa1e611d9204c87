// Tests of the runtime on CUDA's calls, with a fake CUDA runtime that hangs, faults, or has no memory.
#include <cstdlib>
#include <functional>
#include <memory>

#include "boundary/error.h"
#include "cuda/device_use.h"
#include "cuda/runtime.h"
#include "cuda/tests/fake_cudart/fake_cudart.h"
#include "tests/test.h"

namespace bunting::cuda::driver {
extern Deadlines cuda_deadlines;
}

namespace bunting::test {
namespace {

using namespace cuda;

constexpr double kSoonMs = 20'000, kCallMs = 150;

// As a build for users has them; begin() replaces them.
driver::Deadlines const shipped = driver::cuda_deadlines;

struct Nothing {};
void kernel(Nothing) {}

// Makes the fake and the runtime's memory of it whole again.
void begin(FakeCuda const& plan) {
  set_fake_cuda(plan);
  double const call_ms = plan.hang_in.empty() ? kSoonMs : kCallMs;
  driver::cuda_deadlines = {.call_ms = call_ms, .open_ms = call_ms, .step_ms = call_ms};
  forget_loss(0);
  forget_loss(1);
}

bunting_status status_of(std::function<void()> const& run, std::string& text) {
  text.clear();
  try {
    run();
  } catch (Error const& error) {
    text = error.what();
    return error.status();
  }
  return BUNTING_OK;
}

// Uses all kinds of objects and work, and frees them.
void use(int32_t device) {
  (void)device_info(device);
  DeviceMemory memory(8, "two numbers");
  MappedMemory host(8, "two numbers");
  CHECK(resident_blocks(kernel, {1, 32, 80 * 1024}) == 2, "blocks that fit");
  Stream stream;
  stream.begin_recording();
  stream.copy(memory.data(), host.data(), 8);
  stream.launch("first", kernel, {1, 32, 50 * 1024}, Nothing{});
  Graph const graph = stream.end_recording();
  stream.launch(graph);
  stream.fill(host.data(), 1, 8);
  stream.launch("second", kernel, {1, 32, 0}, Nothing{});
  stream.copy(memory.data(), host.data(), 8);
  stream.finish(step_deadline_ms(), "has not ended");
  CHECK(memory.data()[7] == 1, "nothing was copied");
}

}  // namespace

TEST(cuda_driver_frees_all_that_it_makes) {
  begin({});
  int const before = fake_cuda_objects();
  use(0);
  use(1);
  CHECK(fake_cuda_objects() == before, "%d objects are left", fake_cuda_objects() - before);
}

TEST(cuda_driver_gives_up_calls_that_hang_and_blames_their_device) {
  for (char const* call :
       {"cudaMemGetInfo", "cudaMalloc", "cudaMemset", "cudaHostAlloc", "cudaStreamCreateWithFlags",
        "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamEndCapture", "cudaGraphLaunch", "cudaEventQuery",
        "cudaFree", "cudaFreeHost", "cudaStreamDestroy", "cudaGraphExecDestroy"}) {
    begin({.hang_in = call});
    std::string text;
    bunting_status status = status_of([] { use(0); }, text);
    if (status == BUNTING_OK) status = status_of([] { DeviceMemory(8, "two numbers"); }, text);
    CHECK(status == BUNTING_LOST && text.starts_with("GPU 0 is lost: "), "%s: status %d, %s", call, status,
          text.c_str());
    driver::cuda_deadlines = {
        .call_ms = kSoonMs, .open_ms = kSoonMs, .step_ms = kSoonMs};  // nothing else hangs
    CHECK(status_of([] { use(1); }, text) == BUNTING_OK, "%s: GPU 1: %s", call, text.c_str());
    set_fake_cuda({});  // ends the hang
    CHECK(status_of([] { use(0); }, text) == BUNTING_OK, "%s: again: %s", call, text.c_str());
    CHECK(fake_cuda_resets() == std::vector<int>{0}, "%s: other resets", call);
  }
}

TEST(cuda_driver_gives_up_a_reset_that_hangs) {
  begin({.hang_in = "cudaDeviceReset"});
  std::string text;
  status_of([] { lose_device(0, "a kernel hangs"); }, text);
  CHECK(status_of([] { use(0); }, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(text.ends_with("; only a new process gets it back"), "%s", text.c_str());
  CHECK(status_of([] { use(1); }, text) == BUNTING_OK, "%s", text.c_str());
  begin({});
}

// The replacement of a lost device, of which nothing is freed, waits for one call, the reset, after a pause of 1 s
// (server/engines/supervisor.ts).
TEST(cuda_driver_replaces_a_lost_device_within_ten_seconds) {
  begin({});
  CHECK(1000 + shipped.call_ms < 10'000, "%g ms for the reset", shipped.call_ms);
  int const before = fake_cuda_objects();
  std::string text;
  auto memory = std::make_unique<DeviceMemory>(8, "two numbers");
  status_of([] { lose_device(0, "a kernel hangs"); }, text);
  set_fake_cuda({.hang_in = "cudaFree"});
  memory.reset();  // would hang
  CHECK(fake_cuda_objects() == before + 1, "it was freed");
  CHECK(status_of([] { use_device(0); }, text) == BUNTING_OK, "%s", text.c_str());
  CHECK(fake_cuda_resets() == std::vector<int>{0}, "other resets");
  begin({});
}

TEST(cuda_driver_resets_the_device_of_a_fault_and_no_other) {
  std::string text;
  begin({.faulty_launch = 1});
  use(1);
  CHECK(status_of([] { use(0); }, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(text.find("an illegal memory access was encountered (cudaErrorIllegalAddress)") != text.npos, "%s",
        text.c_str());
  CHECK(status_of([] { use(0); }, text) == BUNTING_OK, "%s", text.c_str());
  CHECK(fake_cuda_resets() == std::vector<int>{0}, "other resets");
}

TEST(cuda_driver_names_the_kernel_of_a_fault_step_by_step) {
  std::string text;
  setenv("BUNTING_CUDA_SYNC", "1", 1);
  begin({.faulty_launch = 1});
  CHECK(status_of([] { use(0); }, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(text.starts_with("GPU 0 is lost: second: running kernels: an illegal memory access"), "%s",
        text.c_str());
  unsetenv("BUNTING_CUDA_SYNC");
  begin({});
}

TEST(cuda_driver_says_what_has_no_memory) {
  for (char const* call : {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithFlags"}) {
    begin({.no_memory_in = call});
    int const before = fake_cuda_objects();
    std::string text;
    CHECK(status_of([] { use(0); }, text) == BUNTING_NO_MEMORY, "%s: %s", call, text.c_str());
    CHECK(fake_cuda_objects() == before, "%s: %d objects are left", call, fake_cuda_objects() - before);
  }
  begin({.no_memory_in = "cudaGraphInstantiate"});
  int const before = fake_cuda_objects();
  std::string text;
  CHECK(status_of([] { use(0); }, text) == BUNTING_INVALID, "%s", text.c_str());
  CHECK(fake_cuda_objects() == before, "%d objects are left", fake_cuda_objects() - before);
  begin({});
}

}  // namespace bunting::test
