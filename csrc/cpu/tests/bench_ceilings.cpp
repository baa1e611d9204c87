// bench_ceilings.cpp - measures this machine's ceilings: reading memory, and multiply-adds in registers
// (tiles, on AMX), on several threads at once. Prints one line of JSON. It has no pass or fail.
//
//   bunting_bench_ceilings [threads] [--read]
//
// Rates are for all threads together, by wall time, so the machine should be idle. --read measures reading
// alone, once and briefly: the current speed of memory for another measurement right before or after.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cpu/tests/bench.h"
#include "host/cpu_features.h"

namespace bunting::bench {
namespace {

// Duration and number of tries; the best try counts, because the others were disturbed.
struct Effort {
  double seconds;
  int tries;
};
constexpr Effort kThorough = {0.5, 3}, kBrief = {0.3, 1};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs work(thread), `amount` per call, on all threads until time is up; returns the rate per second.
template <class Work>
double rate(int threads, Effort effort, double amount, Work const& work) {
  double best = 0;
  for (int attempt = 0; attempt < effort.tries; ++attempt) {
    std::atomic<int> ready{0};
    std::atomic<int64_t> done{0};
    std::atomic<bool> over{false};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&, t] {
        work(t);  // warm-up
        ++ready;
        while (ready < threads) std::this_thread::yield();
        while (!over.load(std::memory_order_relaxed)) {
          work(t);
          ++done;
        }
      });
    while (ready < threads) std::this_thread::yield();
    double const start = wall_seconds();
    int64_t const before = done;
    while (wall_seconds() - start < effort.seconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    double const elapsed = wall_seconds() - start;
    int64_t const after = done;
    over = true;
    for (std::thread& thread : pool) thread.join();
    best = std::max(best, double(after - before) * amount / elapsed);
  }
  return best;
}

double read_rate(int threads, Effort effort) {
  constexpr size_t kBytes = size_t{256} << 20, kPiece = size_t{4} << 20;
  std::vector<MemoryRegion> memory;
  for (int t = 0; t < threads; ++t) {
    memory.emplace_back(kBytes, "reading");
    std::memset(memory.back().data(), t + 1, kBytes);
  }
  std::vector<size_t> at(size_t(threads) * 8, 0);  // one cache line apart
  std::atomic<uint64_t> sink{0};
  return rate(threads, effort, double(kPiece), [&](int t) {
    size_t& piece = at[size_t(t) * 8];
    sink += read_once(memory[size_t(t)].data() + piece * kPiece, kPiece);
    piece = (piece + 1) % (kBytes / kPiece);
  });
}

// Peak rate of the best level; 0 if not measured.
double peak_rate(int threads, Dtype dtype) {
  PeakLoop const loop = peak_loop(best_isa(), dtype);
  return loop.run ? rate(threads, kThorough, loop.operations, [&](int) { loop.run(); }) : 0;
}

}  // namespace
}  // namespace bunting::bench

int main(int count, char** arguments) {
  using namespace bunting;
  int threads = std::max(1, int(std::thread::hardware_concurrency()));
  bool reads_only = false;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--read") == 0) {
      reads_only = true;
    } else if ((threads = std::atoi(arguments[i])) < 1) {
      std::fprintf(stderr, "%s: wanted a number of threads, 1 or more, or --read\n", arguments[i]);
      return 2;
    }
  }
  if (reads_only) {
    std::printf("{\"threads\": %d, \"readBytes\": %.4g}\n", threads,
                bench::read_rate(threads, bench::kBrief));
    return 0;
  }
  double const read = bench::read_rate(threads, bench::kThorough),
               f32 = bench::peak_rate(threads, Dtype::f32);
  std::printf("{\"threads\": %d, \"readBytes\": %.4g, \"f32\": %.4g, \"bf16\": %.4g, \"int8\": %.4g}\n",
              threads, read, f32, bench::peak_rate(threads, Dtype::bf16),
              bench::peak_rate(threads, Dtype::q8));
}
