// bench.h - common parts of the kernel benchmarks: timing, the machine's ceilings, and output.
//
// A level has two ceilings: Kernels::peak, and Kernels::read over more memory than any cache holds.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "cpu/kernels/kernels.h"
#include "host/machine.h"
#include "host/memory_region.h"

namespace bunting::bench {

// Returns the processor time of this thread, so time used by other programs does not count.
inline double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// Returns the time of the fastest of several runs, which is the least disturbed one.
template <class Run>
double best_seconds(double budget, Run run) {
  run();
  double const start = seconds();
  double best = 1e9;
  do {
    double const before = seconds();
    run();
    best = std::min(best, seconds() - before);
  } while (seconds() - start < budget);
  return best;
}

// Peak operations per second of one thread (Kernels::peak).
inline double peak_operations(int32_t isa, Dtype dtype) {
  double operations = 0;
  double const time = best_seconds(0.1, [&] { operations = kernels_for(isa)->peak(dtype); });
  return operations / time;
}

inline double peak_read_bytes() {
  constexpr size_t kBytes = size_t{512} << 20;
  MemoryRegion const memory(kBytes, "reading");
  std::memset(memory.data(), 1, kBytes);
  Kernels const& kernels = *kernels_for(usable_isa());
  uint64_t volatile sink = 0;
  double const time = best_seconds(1.0, [&] { sink = sink + kernels.read(memory.data(), kBytes); });
  return double(kBytes) / time;
}

// Result of one measurement. Operations or bytes are 0 if they do not matter for the kernel.
struct Result {
  char const* level;
  std::string kernel, what;
  double seconds = 0, operations = 0, bytes = 0, peak_operations = 0, peak_bytes = 0;
};

// Prints a readable line or a JSON object.
inline void tell(Result const& r, bool as_json) {
  double const rate = r.operations / r.seconds, read = r.bytes / r.seconds;
  double const of_peak = r.peak_operations > 0 ? rate / r.peak_operations : 0;
  double const of_memory = r.peak_bytes > 0 ? read / r.peak_bytes : 0;
  if (as_json)
    std::printf(
        "{\"level\": \"%s\", \"kernel\": \"%s\", \"what\": \"%s\", \"us\": %.4g, \"gflops\": %.4g, "
        "\"ofPeak\": %.3g, \"gbytes\": %.4g, \"ofMemory\": %.3g}\n",
        r.level, r.kernel.c_str(), r.what.c_str(), r.seconds * 1e6, rate * 1e-9, of_peak, read * 1e-9,
        of_memory);
  else
    std::printf("%-12s %-16s %-36s %10.1f us %8.1f GFLOP/s %4.0f %% %7.1f GB/s %4.0f %%\n", r.level,
                r.kernel.c_str(), r.what.c_str(), r.seconds * 1e6, rate * 1e-9, 100 * of_peak, read * 1e-9,
                100 * of_memory);
  std::fflush(stdout);
}

}  // namespace bunting::bench
