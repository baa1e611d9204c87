// meter.h - measures the ceilings of this machine, and the rates of kernels on all threads at once.
//
// Rates are of all threads together, by wall time, so the machine should be idle. Threads claim pieces of a
// kernel's work from a counter, as in a step. The pieces walk through more memory than most caches hold.
#pragma once

#include <cstdint>
#include <functional>

#include "cpu/kernels/kernels.h"
#include "host/memory_region.h"
#include "host/thread_pool.h"

namespace bunting {

class Meter {
 public:
  // Operations and bytes per second. A multiplication and an addition are two operations.
  struct Rates {
    double operations = 0, bytes = 0;
  };
  // Heads of the attention that is measured: those of a common model of 8B.
  static constexpr int32_t kQueryHeads = 32, kKvHeads = 8, kHeadSize = 128;

  // `isa`: a level that this machine and this library have. Throws BUNTING_NO_MEMORY.
  Meter(int32_t isa, int32_t threads);

  // Bytes per second of a plain read.
  double read(double seconds);
  // Multiply-adds in registers (Kernels::peak), in operations per second.
  double peak(Dtype dtype, double seconds);
  // A matrix [columns, depth] times `rows` rows.
  Rates gemm(Dtype dtype, int64_t rows, int64_t columns, int64_t depth, double seconds);
  // `tokens` tokens behind `positions` keys in bf16. Throws BUNTING_INVALID for keys beyond the memory.
  Rates attention(int32_t tokens, int32_t positions, double seconds);

 private:
  // Adds up work(thread, piece), which returns its operations and bytes, per second. Pieces are numbered from
  // 0 on.
  Rates rates(double seconds, std::function<Rates(int, int64_t)> const& work);

  Kernels const& kernels_;
  ThreadPool pool_;
  MemoryRegion memory_;
};

}  // namespace bunting
