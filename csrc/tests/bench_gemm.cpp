// bench_gemm.cpp - how near the GEMM comes to what this machine can do, one thread, per level and shape.
//
//   bunting_bench_gemm [level] [T]     e.g. `bunting_bench_gemm avx512_bf16 1`
//
// The ceilings are measured in the same run, because hosts are shared: a plain read of memory, and a loop of
// independent multiply-adds in registers for the instruction a level lives on. Not a test: nothing here
// passes or fails.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu_features.h"
#include "include/engine.h"
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bunting {
namespace {

// Processor time of this thread: what other programs take from it does not count.
double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// The fastest of several runs: the others were disturbed.
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

struct Buffer {
  explicit Buffer(size_t bytes)
      : data(static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
    std::memset(data, 0, bytes);
  }
  ~Buffer() { std::free(data); }
  char* data;
};

double read_gb_per_second() {
  constexpr size_t kBytes = size_t{512} << 20, kWords = kBytes / 8;
  Buffer const buffer(kBytes);
  uint64_t const* words = reinterpret_cast<uint64_t const*>(buffer.data);
  uint64_t volatile sink = 0;
  double const time = best_seconds(1.0, [&] {
    uint64_t sums[4][8] = {};
    constexpr size_t kStream = kWords / 4;
    for (size_t i = 0; i < kStream; i += 8) {
      for (size_t stream = 0; stream < 4; ++stream) {
        uint64_t const* at = words + stream * kStream + i;
        __builtin_prefetch(at + 128);
        for (size_t lane = 0; lane < 8; ++lane) sums[stream][lane] += at[lane];
      }
    }
    for (auto const& stream : sums)
      for (uint64_t sum : stream) sink = sink + sum;
  });
  return double(kBytes) / time * 1e-9;
}

// GFLOP/s of `rounds` rounds that take `time`.
constexpr int kRounds = 1 << 20, kChains = 12;

#if defined(__x86_64__)
// The empty asm keeps the compiler from merging rounds, and every chain in a register of its own.
#define KEEP(x) asm volatile("" : "+v"(x))

__attribute__((target("avx2,fma"))) void fma_avx2() {
  __m256 sums[kChains] = {}, x = _mm256_set1_ps(1.0f);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(x, x, sum);
      asm volatile("" : "+x"(sum));
    }
}
__attribute__((target("avx512f"))) void fma_avx512() {
  __m512 sums[kChains] = {}, x = _mm512_set1_ps(1.0f);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(x, x, sum);
      KEEP(sum);
    }
}
__attribute__((target("avx512f,avx512bf16"))) void dot_avx512() {
  __m512 sums[kChains] = {};
  __m512bh const x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, x, x);
      KEEP(sum);
    }
}
#endif

// GFLOP/s of the level's multiply-add; 0 where it is not measured.
double peak_gflops(int32_t isa, Dtype dtype) {
#if defined(__x86_64__)
  auto const measure = [](void (*rounds)(), double flops) {
    return flops * kRounds * kChains / best_seconds(0.3, rounds) * 1e-9;
  };
  if (dtype == Dtype::bf16 && isa == BUNTING_ISA_AVX512_BF16) return measure(dot_avx512, 64);
  if (isa >= BUNTING_ISA_AVX512 && (dtype == Dtype::f32 || isa == BUNTING_ISA_AVX512))
    return measure(fma_avx512, 32);
  if (isa == BUNTING_ISA_AVX2) return measure(fma_avx2, 16);
#endif
  (void)isa, (void)dtype;
  return 0;
}

struct Shape {
  int64_t n, k;
};

void bench(Kernels const& kernels, int32_t isa, Dtype dtype, double read, int64_t only_tokens) {
  double const peak = peak_gflops(isa, dtype);
  std::printf("%s %s: multiply-add peak %.0f GFLOP/s, memory %.1f GB/s\n", kernels.name,
              dtype == Dtype::bf16 ? "bf16" : "f32", peak, read);
  for (Shape const shape : {Shape{8192, 2048}, Shape{2048, 8192}, Shape{1024, 1024}}) {
    PackedMatrix w{.dtype = dtype, .n = shape.n, .k = shape.k};
    // Several copies in turn, so that no cache holds the weights from one run to the next.
    int64_t const copies = std::max<int64_t>(1, (int64_t{256} << 20) / int64_t(w.bytes()));
    Buffer const weights(w.bytes() * size_t(copies));
    for (int64_t tokens : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
      if (only_tokens != 0 && tokens != only_tokens) continue;
      Buffer const x(size_t(tokens * w.kp()) * w.element()), y(size_t(tokens * shape.n) * 4);
      Gemm g{.x = x.data,
             .ldx = w.kp(),
             .w = &w,
             .y = reinterpret_cast<float*>(y.data),
             .ldy = shape.n,
             .tokens = tokens};
      int64_t copy = 0;
      double const time = best_seconds(0.3, [&] {
        w.data = weights.data + size_t(copy++ % copies) * w.bytes();
        kernels.gemm(g, 0, w.panels());
      });
      double const gflops = 2.0 * double(tokens) * double(shape.n) * double(shape.k) / time * 1e-9;
      double const gbytes = double(w.bytes()) / time * 1e-9;
      std::printf(
          "gemm T=%-4d N=%-5d K=%-5d %9.1f us %8.1f GFLOP/s (%3.0f %% of peak) %6.1f GB/s (%3.0f %%)\n",
          int(tokens), int(shape.n), int(shape.k), time * 1e6, gflops, peak > 0 ? 100 * gflops / peak : 0,
          gbytes, 100 * gbytes / read);
    }
  }
}

}  // namespace
}  // namespace bunting

int main(int count, char** arguments) {
  using namespace bunting;
  char const* const level = count > 1 ? arguments[1] : nullptr;
  int64_t const tokens = count > 2 ? std::atoi(arguments[2]) : 0;
  double const read = read_gb_per_second();
  for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= best_isa(); ++isa) {
    Kernels const* kernels = kernels_for(isa);
    if (kernels == nullptr || (level != nullptr && std::strcmp(level, kernels->name) != 0)) continue;
    bench(*kernels, isa, Dtype::bf16, read, tokens);
    bench(*kernels, isa, Dtype::f32, read, tokens);
  }
  return 0;
}
