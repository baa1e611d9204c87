// device_test.h - common parts of the kernel tests: arrays on the device, one stream, comparisons, sabotage.
//
// With BUNTING_ON_GPU the tests run on a GPU, without sabotage; there the hardware chooses the order of
// threads in each run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "boundary/error.h"
#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"
#include "cuda/tests/races.h"
#include "emulator/grid.h"
#include "reference/kv_value.h"
#include "tests/test.h"
#if !defined(BUNTING_ON_GPU)
#include "cuda/runtime_emulated.h"
#endif

namespace bunting::test {

inline constexpr double kKernelDeadlineMs = 60'000;

// Error bound of sums of products in f32, relative to the sum of magnitudes. The emulator adds as Hopper
// does; other GPUs keep fewer bits.
#if defined(BUNTING_ON_GPU)
inline constexpr double kSumError = 1e-6;
#else
inline constexpr double kSumError = 3e-7;
#endif

// Array of `count` values on the device, which the host reads and writes by copies. Values that were never
// written are NaN.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count)
      : memory_((count ? count : 1) * sizeof(T), "a test"),
        staging_(memory_.bytes(), "a test"),
        count_(count) {
    std::memset(staging_.data(), 0xff, staging_.bytes());
    upload();
  }
  explicit DeviceArray(std::vector<T> const& values) : DeviceArray(values.size()) { set(values); }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  size_t size() const { return count_; }
  void set(std::vector<T> const& values) {
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(staging_.data()));
    upload();
  }
  std::vector<T> get() const {
    cuda::Stream stream;
    stream.copy(staging_.data(), memory_.data(), count_ * sizeof(T));
    if (!stream.wait(kKernelDeadlineMs)) fail(BUNTING_LOST, "a copy takes too long");
    T const* const values = reinterpret_cast<T const*>(staging_.data());
    return std::vector<T>(values, values + count_);
  }

 private:
  void upload() {
    cuda::Stream stream;
    stream.copy(memory_.data(), staging_.data(), staging_.bytes());
    if (!stream.wait(kKernelDeadlineMs)) fail(BUNTING_LOST, "a copy takes too long");
  }
  cuda::DeviceMemory memory_;
  cuda::MappedMemory staging_;
  size_t count_;
};

// Scratch of a product of few tokens.
struct GemmScratch {
  DeviceArray<float> partial;
  DeviceArray<int32_t> arrived{std::vector<int32_t>(cuda::kGemmArrived)};
  explicit GemmScratch(size_t results) : partial(8 * results) {}
  bool is_at_rest() const { return arrived.get() == std::vector<int32_t>(cuda::kGemmArrived); }
};

// Sets the seed of the order of threads, and clears all mishaps.
inline void set_order([[maybe_unused]] uint64_t seed) {
#if !defined(BUNTING_ON_GPU)
  cuda::set_mishaps({.seed = seed});
#endif
}

// Runs the work that `work` queues; returns "" or why the device was lost. The device is usable again
// afterwards.
inline std::string fault_of(std::function<void(cuda::Stream&)> const& work, uint64_t seed = 1) {
  set_order(seed);
  std::string text;
  try {
    cuda::Stream stream;
    work(stream);
    if (!stream.wait(kKernelDeadlineMs)) text = "it does not end";
  } catch (Error const& error) {
    text = error.what();
  }
  set_order(1);
  return text;
}

#define RUNS(work)                                                           \
  do {                                                                       \
    std::string const fault = fault_of([&](cuda::Stream& stream) { work; }); \
    REQUIRE(fault.empty(), "%s", fault.c_str());                             \
  } while (0)

// Checks that every wait in the kernels of `work` is needed, and that every copy into shared memory needs its
// place. Without one of them the emulator, ThreadSanitizer or `is_right` must fail for one of a few orders of
// threads.
inline void every_wait_is_needed(std::function<void(cuda::Stream&)> const& work,
                                 std::function<bool()> const& is_right) {
  [[maybe_unused]] constexpr uint64_t kSeeds = 3;
  [[maybe_unused]] static constexpr char const* kKinds[] = {"block barrier", "warp barrier", "copy_wait",
                                                            "copy_async"};
  emulator::take_sites();
  std::string const fault = fault_of(work);
  REQUIRE(fault.empty() && is_right(), "unharmed: %s", fault.c_str());
#if !defined(BUNTING_ON_GPU)
  std::vector<emulator::Site> const sites = emulator::take_sites();
  CHECK(!sites.empty(), "nothing waits");
  std::string silent;
  for (emulator::Site const site : sites) {
    emulator::sabotage(site);
    bool noticed = false;
    for (uint64_t seed = 1; seed <= kSeeds && !noticed; ++seed) {
      int const races = races_of([&] { noticed = !fault_of(work, seed).empty(); });
      noticed = noticed || races > 0 || !is_right();
    }
    emulator::sabotage({});
    if (!noticed)
      silent += std::string(" ") + kKinds[int(site.kind)] + " of line " + std::to_string(site.line);
  }
  CHECK(silent.empty(), "no check notices if these are gone or wrong:%s", silent.c_str());
#endif
}

inline std::vector<float> random_floats(Random& random, size_t count, float limit = 1) {
  std::vector<float> x(count);
  for (float& value : x) value = random.uniform(-limit, limit);
  return x;
}

inline std::vector<uint16_t> random_halves(Random& random, size_t count, float limit = 1) {
  std::vector<uint16_t> x(count);
  for (uint16_t& value : x) value = reference::narrow(random.uniform(-limit, limit));
  return x;
}

// Allows one rounding to bf16, and `slack` for f32 sums and fast functions.
inline bool is_rounded(uint16_t got, double want, double slack = 1e-6) {
  return std::fabs(double(reference::widen(got)) - want) <= std::fabs(want) * 0x1.01p-8 + slack;
}

}  // namespace bunting::test
