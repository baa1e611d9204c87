// bench.h - common parts of the kernel benchmarks: timing, the machine's ceilings, and output.
//
// A level has two ceilings. The first is a loop of independent multiply-adds in registers with the level's
// main instruction. The second is a plain read of more memory than any cache holds.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "cpu/kernels/kernels.h"
#include "host/cpu_features.h"
#include "host/memory_region.h"
#include "include/engine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

// Reads `bytes`, a multiple of 256, in four streams with prefetch a kilobyte ahead; returns the sum of the
// words.
#define BUNTING_READ(name, Vector)                                 \
  inline uint64_t name(char const* from, size_t bytes) {           \
    Vector sums[4] = {};                                           \
    size_t const stream_bytes = bytes / 4;                         \
    for (size_t i = 0; i < stream_bytes; i += 64)                  \
      for (size_t stream = 0; stream < 4; ++stream) {              \
        char const* const line = from + stream * stream_bytes + i; \
        __builtin_prefetch(line + 1024);                           \
        for (size_t at = 0; at < 64; at += sizeof(Vector)) {       \
          Vector words;                                            \
          std::memcpy(&words, line + at, sizeof words);            \
          sums[stream] += words;                                   \
        }                                                          \
      }                                                            \
    uint64_t total = 0;                                            \
    for (auto const& sum : sums)                                   \
      for (size_t i = 0; i < sizeof sum / 8; ++i) total += sum[i]; \
    return total;                                                  \
  }
typedef uint64_t words2 __attribute__((vector_size(16)));
typedef uint64_t words8 __attribute__((vector_size(64)));
BUNTING_READ(read_plain, words2)
#if defined(__x86_64__)
__attribute__((target("avx512f"))) BUNTING_READ(read_avx512, words8)
#endif
#undef BUNTING_READ

    inline uint64_t read_once(char const* from, size_t bytes) {
#if defined(__x86_64__)
  if (best_isa() >= BUNTING_ISA_AVX512) return read_avx512(from, bytes);
#endif
  return read_plain(from, bytes);
}

constexpr int kRounds = 1 << 16, kChains = 12;

#if defined(__x86_64__)
// The empty asm keeps the compiler from merging rounds and keeps every chain in its own register.
#define BUNTING_KEEP(x) asm volatile("" : "+v"(x))

__attribute__((target("avx2,fma"))) inline void fma_avx2() {
  __m256 sums[kChains] = {}, x = _mm256_set1_ps(1.0f);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(x, x, sum);
      asm volatile("" : "+x"(sum));
    }
}
__attribute__((target("avx512f"))) inline void fma_avx512() {
  __m512 sums[kChains] = {}, x = _mm512_set1_ps(1.0f);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(x, x, sum);
      BUNTING_KEEP(sum);
    }
}
__attribute__((target("avx512f,avx512bf16"))) inline void pairs_avx512() {
  __m512 sums[kChains] = {};
  __m512bh const x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, x, x);
      BUNTING_KEEP(sum);
    }
}
__attribute__((target("avx512f,avx512vnni"))) inline void bytes_avx512_vnni() {
  __m512i sums[kChains] = {}, x = _mm512_set1_epi32(0x01010101);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, x, x);
      BUNTING_KEEP(sum);
    }
}
// Without a fused form: two products added in 16 bits, then to 32.
__attribute__((target("avx512f,avx512bw"))) inline void bytes_avx512() {
  __m512i sums[kChains] = {}, x = _mm512_set1_epi32(0x01010101), ones = _mm512_set1_epi16(1);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(x, x), ones));
      BUNTING_KEEP(sum);
      BUNTING_KEEP(x);
    }
}
__attribute__((target("avx2"))) inline void bytes_avx2() {
  __m256i sums[kChains] = {}, x = _mm256_set1_epi32(0x01010101), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
      asm volatile("" : "+x"(sum));
      asm volatile("" : "+x"(x));
    }
}
__attribute__((target("avx2,avxvnni"))) inline void bytes_avx2_vnni() {
  __m256i sums[kChains] = {}, x = _mm256_set1_epi32(0x01010101);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm256_dpbusd_avx_epi32(sum, x, x);
      asm volatile("" : "+x"(sum));
    }
}
// Six sums, so that products do not wait for each other.
template <bool kBytes>
void tiles() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Config config;
  asm volatile("ldtilecfg %0" ::"m"(config));
  asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3\n\ttilezero %tmm4");
  asm volatile("tilezero %tmm5\n\ttilezero %tmm6\n\ttilezero %tmm7");
  for (int i = 0; i < kRounds; ++i) {
    if (kBytes)
      asm volatile(
          "tdpbusd %tmm7, %tmm6, %tmm0\n\ttdpbusd %tmm7, %tmm6, %tmm1\n\ttdpbusd %tmm7, %tmm6, %tmm2\n\t"
          "tdpbusd %tmm7, %tmm6, %tmm3\n\ttdpbusd %tmm7, %tmm6, %tmm4\n\ttdpbusd %tmm7, %tmm6, %tmm5");
    else
      asm volatile(
          "tdpbf16ps %tmm7, %tmm6, %tmm0\n\ttdpbf16ps %tmm7, %tmm6, %tmm1\n\t"
          "tdpbf16ps %tmm7, %tmm6, %tmm2\n\ttdpbf16ps %tmm7, %tmm6, %tmm3\n\t"
          "tdpbf16ps %tmm7, %tmm6, %tmm4\n\ttdpbf16ps %tmm7, %tmm6, %tmm5");
  }
  asm volatile("tilerelease");
}
#undef BUNTING_KEEP
#endif

// Loop of multiply-adds and its number of operations, where a multiplication and an addition are two. run is
// null if the peak is not measured.
struct PeakLoop {
  void (*run)() = nullptr;
  double operations = 0;
};

// Returns the loop for the instruction with which a level multiplies a format.
inline PeakLoop peak_loop([[maybe_unused]] int32_t isa, [[maybe_unused]] Dtype dtype) {
#if defined(__x86_64__)
  constexpr double kSums = double(kRounds) * kChains, kTileRounds = double(kRounds) * 6 * 16 * 16;
  bool const is_bytes = integer_bits(dtype) > 0, is_bf16 = dtype == Dtype::bf16;
  switch (isa) {
    case BUNTING_ISA_AMX_BF16:
      if (is_bytes) return {tiles<true>, kTileRounds * 128};
      return is_bf16 ? PeakLoop{tiles<false>, kTileRounds * 64} : PeakLoop{fma_avx512, kSums * 32};
    case BUNTING_ISA_AVX512_BF16:
      if (is_bytes) return {bytes_avx512_vnni, kSums * 128};
      return is_bf16 ? PeakLoop{pairs_avx512, kSums * 64} : PeakLoop{fma_avx512, kSums * 32};
    case BUNTING_ISA_AVX512:
      if (!is_bytes) return {fma_avx512, kSums * 32};
      return {has_avx512_vnni() ? bytes_avx512_vnni : bytes_avx512, kSums * 128};
    case BUNTING_ISA_AVX2:
      if (!is_bytes) return {fma_avx2, kSums * 16};
      return {has_avx_vnni() ? bytes_avx2_vnni : bytes_avx2, kSums * 64};
    default:
      break;
  }
#endif
  return {};
}

// Peak operations per second of one thread; 0 if not measured.
inline double peak_operations(int32_t isa, Dtype dtype) {
  PeakLoop const loop = peak_loop(isa, dtype);
  return loop.run ? loop.operations / best_seconds(0.1, loop.run) : 0;
}

inline double peak_read_bytes() {
  constexpr size_t kBytes = size_t{512} << 20;
  MemoryRegion const memory(kBytes, "reading");
  std::memset(memory.data(), 1, kBytes);
  uint64_t volatile sink = 0;
  double const time = best_seconds(1.0, [&] { sink = sink + read_once(memory.data(), kBytes); });
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
