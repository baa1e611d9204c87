#include "host/right_of_way.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace bunting {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
// Longest time between two steps of a stream; after that the stream has ended or its client is slow.
constexpr int64_t kBetweenStepsNs = 50 * kMillisecond;
constexpr int64_t kWorkNs = kMillisecond, kRests = 4;

std::atomic<int> steps{0};
std::atomic<int64_t> last_end_ns{INT64_MIN / 2};

int64_t now_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t(now.tv_sec) * 1000 * kMillisecond + now.tv_nsec;
}

}  // namespace

ComputedStep::ComputedStep() {
  steps.fetch_add(1, std::memory_order_relaxed);
}

ComputedStep::~ComputedStep() {
  last_end_ns.store(now_ns(CLOCK_MONOTONIC), std::memory_order_relaxed);
  steps.fetch_sub(1, std::memory_order_relaxed);
}

bool steps_are_computed() {
  return steps.load(std::memory_order_relaxed) > 0 ||
         now_ns(CLOCK_MONOTONIC) - last_end_ns.load(std::memory_order_relaxed) < kBetweenStepsNs;
}

YieldingWork::YieldingWork() : begun_ns_(now_ns(CLOCK_THREAD_CPUTIME_ID)) {}

YieldingWork::~YieldingWork() {
  thread_local int64_t worked_ns = 0;
  worked_ns += now_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns_;
  if (worked_ns < kWorkNs) return;
  if (steps_are_computed()) std::this_thread::sleep_for(std::chrono::nanoseconds(kRests * worked_ns));
  worked_ns = 0;
}

}  // namespace bunting
