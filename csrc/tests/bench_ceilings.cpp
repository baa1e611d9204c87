// bench_ceilings.cpp - what this machine can do at most: reading memory, and multiply-adds in registers
// (tiles, on AMX), on several threads at once. Prints one line of JSON. Not a test: nothing here passes or
// fails.
//
//   bunting_bench_ceilings [threads]
//
// Rates are of all threads together, by wall time: the machine should be idle.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cpu_features.h"
#include "tests/bench.h"

namespace bunting::bench {
namespace {

constexpr double kSeconds = 0.5;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs work(thread), of `amount` each, on all threads until time is up; the best rate of three tries, per
// second.
template <class Work>
double rate(int threads, double amount, Work const& work) {
  double best = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::atomic<int> ready{0};
    std::atomic<int64_t> done{0};
    std::atomic<bool> over{false};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&, t] {
        work(t);  // warm
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
    while (wall_seconds() - start < kSeconds) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    double const elapsed = wall_seconds() - start;
    int64_t const after = done;
    over = true;
    for (std::thread& thread : pool) thread.join();
    best = std::max(best, double(after - before) * amount / elapsed);
  }
  return best;
}

double read_rate(int threads) {
  constexpr size_t kBytes = size_t{256} << 20, kPiece = size_t{4} << 20;
  std::vector<MemoryRegion> memory;
  for (int t = 0; t < threads; ++t) {
    memory.emplace_back(kBytes, "reading");
    std::memset(memory.back().data(), t + 1, kBytes);
  }
  std::vector<size_t> at(size_t(threads) * 8, 0);  // a line apart
  std::atomic<uint64_t> sink{0};
  return rate(threads, double(kPiece), [&](int t) {
    size_t& piece = at[size_t(t) * 8];
    sink += read_once(memory[size_t(t)].data() + piece * kPiece, kPiece);
    piece = (piece + 1) % (kBytes / kPiece);
  });
}

// Of the best level; 0 where it is not measured.
double peak_rate(int threads, Dtype dtype) {
  PeakLoop const loop = peak_loop(best_isa(), dtype);
  return loop.run ? rate(threads, loop.operations, [&](int) { loop.run(); }) : 0;
}

}  // namespace
}  // namespace bunting::bench

int main(int count, char** arguments) {
  using namespace bunting;
  int const threads =
      std::max(1, count > 1 ? std::atoi(arguments[1]) : int(std::thread::hardware_concurrency()));
  double const read = bench::read_rate(threads), f32 = bench::peak_rate(threads, Dtype::f32);
  std::printf("{\"threads\": %d, \"readBytes\": %.4g, \"f32\": %.4g, \"bf16\": %.4g, \"int8\": %.4g}\n",
              threads, read, f32, bench::peak_rate(threads, Dtype::bf16),
              bench::peak_rate(threads, Dtype::q8));
}
