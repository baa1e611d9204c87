// Tests of the runtime on an emulated device: streams keep their order, and each mishap ends as the header
// says.
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "boundary/error.h"
#include "cuda/architectures.h"
#include "cuda/gpu.h"
#include "cuda/runtime.h"
#include "cuda/runtime_emulated.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

using namespace cuda;

constexpr double kSoonMs = 20'000, kAtOnceMs = 20;

struct Add {
  int32_t* x;
  int32_t amount;
};
void add(Add const a) {
  if (gpu::thread_index() == 0) gpu::store(a.x, gpu::load(a.x) * 3 + a.amount);
}

struct AllMishapsEnd {
  ~AllMishapsEnd() { set_mishaps({}); }
};

bunting_status status_of(std::function<void()> const& run, std::string& text) {
  try {
    run();
  } catch (Error const& error) {
    text = error.what();
    return error.status();
  }
  text.clear();
  return BUNTING_OK;
}

}  // namespace

TEST(runtime_knows_on_which_gpus_kernels_run) {
  std::string const all = "80, 86, 89, 90a, 100, 120";
  for (int32_t capability : {80, 86, 87, 89, 90, 100, 103, 120, 121})
    CHECK(cuda::runs_on(all, capability), "not on %d", capability);
  for (int32_t capability : {75, 70, 110, 130}) CHECK(!cuda::runs_on(all, capability), "on %d", capability);
  CHECK(!cuda::runs_on("90a", 80) && !cuda::runs_on("90a", 91) && cuda::runs_on("90", 91), "of 9.x");
  CHECK(!cuda::runs_on("86", 80), "older than its code");
}

TEST(runtime_streams_keep_their_order) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    set_mishaps({.seed = seed});
    DeviceMemory memory(4, "a number");
    MappedMemory result(4, "a number");
    int32_t* const x = reinterpret_cast<int32_t*>(memory.data());
    Stream stream;
    int32_t wanted = 0;
    for (int i = 0; i < 20; ++i) {
      stream.launch("add", add, {1, 32, 0}, Add{x, i});
      wanted = int32_t(uint32_t(wanted) * 3 + uint32_t(i));
    }
    stream.copy(result.data(), x, 4);
    REQUIRE(stream.wait(kSoonMs), "not done in %g ms", kSoonMs);
    int32_t got;
    std::memcpy(&got, result.data(), 4);
    CHECK(got == wanted, "%d instead of %d", got, wanted);
    stream.fill(x, 0xff, 4);
    stream.copy(result.data(), x, 4);
    REQUIRE(stream.wait(kSoonMs), "not done in %g ms", kSoonMs);
    std::memcpy(&got, result.data(), 4);
    CHECK(got == -1, "filled with %d", got);
  }
}

TEST(runtime_reports_memory_that_is_not_there) {
  AllMishapsEnd const at_last;
  std::string text;
  set_mishaps({.fail_allocation = 1});
  DeviceMemory const first(64, "first");
  CHECK(status_of([] { DeviceMemory(128, "the pages"); }, text) == BUNTING_NO_MEMORY, "%s", text.c_str());
  CHECK(text == "GPU 0 has no 128 bytes left for the pages", "%s", text.c_str());
  CHECK(status_of([] { DeviceMemory(128, "the pages"); }, text) == BUNTING_OK, "%s", text.c_str());
  uint64_t const free = device_info(0).memory_free_bytes;
  CHECK(status_of([&] { DeviceMemory(free + 1, "all"); }, text) == BUNTING_NO_MEMORY, "%s", text.c_str());
  CHECK(device_info(0).memory_free_bytes == free, "%zu bytes are gone", size_t(free));
}

TEST(runtime_loses_a_device_for_good) {
  AllMishapsEnd const at_last;
  std::string text;
  set_mishaps({.lose_device = 1});
  DeviceMemory memory(4, "a number");
  Stream stream;
  for (int i = 0; i < 2; ++i) stream.fill(memory.data(), i, 4);
  CHECK(status_of([&] { (void)stream.wait(kSoonMs); }, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(status_of([&] { stream.fill(memory.data(), 0, 4); }, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(status_of([&] { DeviceMemory(4, "more"); }, text) == BUNTING_LOST, "%s", text.c_str());
}

TEST(runtime_loses_the_device_of_a_faulty_kernel) {
  AllMishapsEnd const at_last;
  std::string text;
  DeviceMemory memory(4, "a number");
  Stream stream;
  stream.launch("add", add, {1, 32, 0}, Add{reinterpret_cast<int32_t*>(memory.data()) + 1, 0});
  CHECK(status_of([&] { (void)stream.wait(kSoonMs); }, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(text.find("add, block 0, thread 0 (warp 0, lane 0): load of 4 bytes") != std::string::npos, "%s",
        text.c_str());
}

TEST(runtime_repeats_a_graph_on_what_lies_there_now) {
  AllMishapsEnd const at_last;
  DeviceMemory memory(8, "two numbers");
  MappedMemory host(8, "two numbers");
  int32_t* const numbers = reinterpret_cast<int32_t*>(host.data());
  int32_t* const on_device = reinterpret_cast<int32_t*>(memory.data());
  Stream stream;
  stream.begin_recording();
  stream.copy(memory.data(), host.data(), 4);
  stream.launch("add", add, {1, 32, 0}, Add{on_device, 5});
  stream.copy(host.data() + 4, memory.data(), 4);
  Graph const graph = stream.end_recording();
  REQUIRE(stream.wait(kSoonMs), "nothing is queued");
  CHECK(numbers[1] == 0, "recording runs the work");
  for (int32_t start : {1, 10}) {
    numbers[0] = start;
    stream.launch(graph);
    REQUIRE(stream.wait(kSoonMs), "the graph does not end");
    CHECK(numbers[1] == start * 3 + 5, "%d", numbers[1]);
  }
}

// Makes every driver call that hangs end soon, and each return to the caller before.
constexpr double kCallMs = 150;

// Uses memory of both kinds, a stream and a graph, and frees them.
void use_a_device() {
  use_device(0);
  DeviceMemory memory(8, "two numbers");
  MappedMemory host(8, "two numbers");
  Stream stream;
  stream.begin_recording();
  stream.copy(memory.data(), host.data(), 8);
  Graph const graph = stream.end_recording();
  stream.launch(graph);
  stream.finish(kCallMs, "has not ended");
}

TEST(runtime_gives_up_a_call_that_hangs_and_the_next_life_works) {
  AllMishapsEnd const at_last;
  for (char const* call :
       {"describe", "allocate", "allocate_mapped", "open_stream", "begin_recording", "end_recording",
        "finish", "release", "release_mapped", "close_stream", "close_graph"}) {
    set_mishaps({.hang_in = call, .call_deadline_ms = kCallMs});
    std::string text;
    bunting_status status = status_of(
        [] {
          (void)device_info(0);
          use_a_device();
        },
        text);
    // A call that hangs in a destructor is seen by the next one.
    if (status == BUNTING_OK) status = status_of([] { DeviceMemory(8, "two numbers"); }, text);
    CHECK(status == BUNTING_LOST, "%s hangs: status %d, %s", call, status, text.c_str());
    CHECK(text.starts_with("GPU 0 is lost: "), "%s hangs: %s", call, text.c_str());
    CHECK(status_of(use_a_device, text) == BUNTING_OK, "after %s: %s", call, text.c_str());
  }
}

TEST(runtime_gives_up_a_reset_that_hangs_and_names_the_device) {
  AllMishapsEnd const at_last;
  std::string text;
  set_mishaps({.hang_in = "reset", .call_deadline_ms = kCallMs});
  status_of([] { lose_device(0, "a kernel hangs"); }, text);
  CHECK(text == "GPU 0 is lost: a kernel hangs", "%s", text.c_str());
  for (int i = 0; i < 2; ++i) {
    CHECK(status_of(use_a_device, text) == BUNTING_LOST, "%s", text.c_str());
    CHECK(text ==
              "GPU 0 is lost: a kernel hangs; it cannot be reset: resetting it: the driver has not "
              "answered after 150 ms; only a new process gets it back",
          "%s", text.c_str());
  }
}

TEST(runtime_tries_a_reset_that_failed_again) {
  AllMishapsEnd const at_last;
  std::string text;
  set_mishaps({.fail_in = "reset"});
  status_of([] { lose_device(0, "a kernel hangs"); }, text);
  CHECK(status_of(use_a_device, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(text == "GPU 0 is lost: a kernel hangs; it cannot be reset: reset failed", "%s", text.c_str());
  CHECK(status_of(use_a_device, text) == BUNTING_OK, "%s", text.c_str());
}

TEST(runtime_blames_the_device_of_the_object) {
  AllMishapsEnd const at_last;
  std::string text;
  set_mishaps({.fail_in = "finish", .devices = 2});
  use_device(0);
  auto first = std::make_unique<Stream>();
  use_device(1);
  Stream second;
  CHECK(status_of([&] { (void)first->wait(kSoonMs); }, text) == BUNTING_LOST, "%s", text.c_str());
  CHECK(text == "GPU 0 is lost: finish failed", "%s", text.c_str());
  CHECK(second.wait(kSoonMs), "the other device does not work");
  first.reset();
  use_device(0);  // resets it
  Stream again;
  CHECK(again.wait(kSoonMs), "the lost device does not work again");
}

TEST(runtime_does_not_let_a_hang_of_one_device_stop_another) {
  AllMishapsEnd const at_last;
  std::string text;
  set_mishaps({.hang_in = "reset", .call_deadline_ms = kSoonMs, .devices = 2});
  status_of([] { lose_device(0, "a kernel hangs"); }, text);
  std::thread resets([&] { status_of(use_a_device, text); });
  use_device(1);
  for (int i = 0; i < 20; ++i) {
    DeviceMemory const memory(8, "two numbers");
    Stream stream;
    stream.fill(memory.data(), i, 8);
    CHECK(stream.wait(kSoonMs), "the other device does not work");
  }
  set_mishaps({.devices = 2});
  resets.join();
  use_device(0);
}

TEST(runtime_records_again_after_a_recording_failed) {
  AllMishapsEnd const at_last;
  std::string text;
  for (Mishaps const& mishaps : {Mishaps{.fail_in = "begin_recording"}, Mishaps{.fail_in = "end_recording"},
                                 Mishaps{.no_memory_in = "end_recording"}}) {
    set_mishaps(mishaps);
    CHECK(status_of(use_a_device, text) == BUNTING_INVALID, "%s", text.c_str());
    CHECK(status_of(use_a_device, text) == BUNTING_OK, "%s", text.c_str());
  }
}

TEST(runtime_notices_a_hang_at_its_deadline) {
  AllMishapsEnd const at_last;
  DeviceMemory memory(4, "a number");
  set_mishaps({.hang = 1});
  Stream stream;
  stream.fill(memory.data(), 1, 4);
  CHECK(stream.wait(kSoonMs), "the first fill hangs");
  stream.fill(memory.data(), 2, 4);
  CHECK(!stream.wait(kAtOnceMs), "the second fill does not hang");
  set_mishaps({});  // ends the hang, so that the stream can close
}

}  // namespace bunting::test
