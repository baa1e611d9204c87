// Tests of ThreadPool: each piece runs once, its writes are visible afterwards, and idle threads use no
// processor.
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#include "host/right_of_way.h"
#include "host/thread_pool.h"
#include "tests/test.h"

namespace bunting::test {
namespace {

double process_cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

}  // namespace

TEST(thread_pool_runs_every_piece_once) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads, "%d threads, not %d", pool.threads(), threads);
    for (int64_t total : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 2000}) {
        std::vector<int> seen(size_t(total), 0);  // plain ints: run() must make them visible
        pool.run(total, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) seen[size_t(i)]++;
        });
        for (int count : seen)
          CHECK(count == 1, "%d threads, %d by %d: %d times", threads, int(total), int(grain), count);
      }
    }
  }
}

// A load gives way: the caller runs every piece itself while an engine computes, and rests.
TEST(thread_pool_yields_to_steps) {
  ThreadPool pool(3, ThreadPool::Cores::any, ThreadPool::Manner::yielding);
  ComputedStep const step;
  std::vector<int> seen(100, 0);
  std::atomic<int> of_helpers{0};
  double const before = process_cpu_seconds();
  auto const start = std::chrono::steady_clock::now();
  pool.run(100, 1, [&](int64_t begin, int64_t, int thread) {
    if (thread != 0) of_helpers++;
    seen[size_t(begin)]++;
    double const from = process_cpu_seconds();
    while (process_cpu_seconds() - from < 0.0005) {
    }
  });
  double const cpu = process_cpu_seconds() - before;
  double const took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(of_helpers == 0, "helpers ran %d pieces", of_helpers.load());
  for (int count : seen) CHECK(count == 1, "%d times", count);
  CHECK(took > 3 * cpu, "%.3f s of work took %.3f s", cpu, took);  // rests are four times the work
}

// Thread numbers index scratch memory, so no number may be in use twice at once.
TEST(thread_pool_numbers_are_exclusive) {
  ThreadPool pool(4);
  std::atomic<int> busy[4] = {};
  std::atomic<int> clashes{0};
  ThreadPool::Step step(pool);
  for (int round = 0; round < 200; ++round) {
    pool.run(16, 1, [&](int64_t, int64_t, int thread) {
      if (thread < 0 || thread >= 4 || busy[thread].exchange(1) != 0) clashes++;
      for (int spin = 0; spin < 50; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
      busy[thread].store(0);
    });
  }
  CHECK(clashes == 0, "%d times", clashes.load());
}

// Runs thousands of sections of microseconds, like a step; each reads the results of the one before.
TEST(thread_pool_many_short_sections) {
  for (int threads : {2, 5}) {
    ThreadPool pool(threads);
    std::vector<int64_t> a(97, 1), b(97, 0);
    auto const start = std::chrono::steady_clock::now();
    for (int step = 0; step < 20; ++step) {
      ThreadPool::Step awake(pool);
      for (int section = 0; section < 100; ++section) {
        pool.run(97, 10, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) b[size_t(i)] = a[size_t(96 - i)] + 1;
        });
        a.swap(b);
      }
    }
    int64_t const sum = std::accumulate(a.begin(), a.end(), int64_t{0});
    CHECK(sum == 97 * 2001, "%d threads: %lld", threads, (long long)sum);
    double const took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(took < 30, "%d threads: 2000 sections took %.1f s", threads,
          took);  // a lost wake would hang or be very slow
  }
}

TEST(thread_pool_parts_run_once_each) {
  for (int threads : {1, 4}) {
    ThreadPool pool(threads);
    std::vector<int> seen(size_t(threads), 0);
    for (int round = 0; round < 50; ++round) pool.run_parts([&](int32_t part) { seen[size_t(part)]++; });
    for (int count : seen) CHECK(count == 50, "%d threads: a part ran %d times", threads, count);
  }
}

TEST(thread_pool_idle_uses_no_processor) {
  ThreadPool pool(4);
  {
    ThreadPool::Step step(pool);
    pool.run(64, 1, [](int64_t, int64_t) {});
  }
  // Helpers may spin until they see the end of the step.
  timespec const moment{0, 20'000'000}, while_idle{0, 200'000'000};
  nanosleep(&moment, nullptr);
  double const before = process_cpu_seconds();
  nanosleep(&while_idle, nullptr);
  double const used = process_cpu_seconds() - before;
  CHECK(used < 0.005, "%.1f ms of processor time in 200 ms of idling", used * 1e3);
}

TEST(thread_pool_comes_and_goes) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(1 + round % 5);
    if (round % 2 == 0) pool.run(10, 1, [](int64_t, int64_t) {});
  }
}

// With as many threads as cores each helper is bound to its own core, and the caller to none.
TEST(thread_pool_binds_helpers_to_cores) {
  cpu_set_t usable;
  REQUIRE(sched_getaffinity(0, sizeof usable, &usable) == 0, "no mask");
  int const cores = CPU_COUNT(&usable);
  if (cores < 2) SKIP("one core");
  for (auto const which : {ThreadPool::Cores::any, ThreadPool::Cores::own}) {
    ThreadPool pool(cores, which);
    std::vector<cpu_set_t> masks(static_cast<size_t>(cores));
    std::atomic<int> begun{0};
    // No thread ends a piece before all have started, so each thread has one.
    pool.run(cores, 1, [&](int64_t, int64_t, int thread) {
      sched_getaffinity(0, sizeof(cpu_set_t), &masks[size_t(thread)]);
      for (++begun; begun < cores;) sched_yield();
    });
    CHECK(CPU_EQUAL(&masks[0], &usable), "the caller is bound");
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (size_t thread = 1; thread < masks.size(); ++thread) {
      int const may_use = CPU_COUNT(&masks[thread]);
      CHECK(may_use == (which == ThreadPool::Cores::own ? 1 : cores), "a helper may use %d cores", may_use);
      CPU_OR(&taken, &taken, &masks[thread]);
    }
    CHECK(CPU_COUNT(&taken) == (which == ThreadPool::Cores::own ? cores - 1 : cores), "helpers share cores");
  }
}

}  // namespace bunting::test
