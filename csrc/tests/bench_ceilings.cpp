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
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "cpu_features.h"
#include "include/engine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bunting {
namespace {

constexpr double kSeconds = 0.5;
constexpr int kRounds = 1 << 16, kChains = 12;

double now() {
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
    double const start = now();
    int64_t const before = done;
    while (now() - start < kSeconds) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    double const elapsed = now() - start;
    int64_t const after = done;
    over = true;
    for (std::thread& thread : pool) thread.join();
    best = std::max(best, double(after - before) * amount / elapsed);
  }
  return best;
}

double read_rate(int threads) {
  constexpr size_t kBytes = size_t{256} << 20, kPiece = size_t{4} << 20, kWords = kPiece / 8;
  std::vector<uint64_t*> memory;
  for (int t = 0; t < threads; ++t) {
    memory.push_back(static_cast<uint64_t*>(std::aligned_alloc(size_t{2} << 20, kBytes)));
    std::memset(memory.back(), t + 1, kBytes);
  }
  std::vector<size_t> at(size_t(threads) * 8, 0);  // a line apart
  std::atomic<uint64_t> sink{0};
  double const bytes = rate(threads, double(kPiece), [&](int t) {
    size_t& piece = at[size_t(t) * 8];
    uint64_t const* const words = memory[size_t(t)] + piece * kWords;
    piece = (piece + 1) % (kBytes / kPiece);
    uint64_t sums[4][8] = {};
    constexpr size_t kStream = kWords / 4;
    for (size_t i = 0; i < kStream; i += 8)
      for (size_t stream = 0; stream < 4; ++stream) {
        uint64_t const* const line = words + stream * kStream + i;
        __builtin_prefetch(line + 128);
        for (size_t lane = 0; lane < 8; ++lane) sums[stream][lane] += line[lane];
      }
    uint64_t total = 0;
    for (auto const& stream : sums)
      for (uint64_t sum : stream) total += sum;
    sink += total;
  });
  for (uint64_t* words : memory) std::free(words);
  return bytes;
}

#if defined(__x86_64__)
// The empty asm keeps the compiler from merging rounds, and every chain in a register of its own.
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
      asm volatile("" : "+v"(sum));
    }
}
__attribute__((target("avx512f,avx512bf16"))) void dot_bf16() {
  __m512 sums[kChains] = {};
  __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, x, x);
      asm volatile("" : "+v"(sum));
    }
}
__attribute__((target("avx512f,avx512vnni"))) void dot_int8() {
  __m512i sums[kChains] = {}, x = _mm512_set1_epi32(0x01010101);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, x, x);
      asm volatile("" : "+v"(sum));
    }
}
// Six sums, so that products do not wait for one another.
void tiles(bool is_int8) {
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
    if (is_int8)
      asm volatile(
          "tdpbusd %tmm7, %tmm6, %tmm0\n\ttdpbusd %tmm7, %tmm6, %tmm1\n\ttdpbusd %tmm7, %tmm6, %tmm2\n\t"
          "tdpbusd %tmm7, %tmm6, %tmm3\n\ttdpbusd %tmm7, %tmm6, %tmm4\n\ttdpbusd %tmm7, %tmm6, %tmm5");
    else
      asm volatile(
          "tdpbf16ps %tmm7, %tmm6, %tmm0\n\ttdpbf16ps %tmm7, %tmm6, %tmm1\n\ttdpbf16ps %tmm7, %tmm6, "
          "%tmm2\n\t"
          "tdpbf16ps %tmm7, %tmm6, %tmm3\n\ttdpbf16ps %tmm7, %tmm6, %tmm4\n\ttdpbf16ps %tmm7, %tmm6, %tmm5");
  }
  asm volatile("tilerelease");
}
#endif

struct Peaks {
  double f32 = 0, bf16 = 0, int8 = 0;  // operations per second: a multiplication and an addition are two
};

Peaks peaks([[maybe_unused]] int threads) {
  Peaks best;
#if defined(__x86_64__)
  int32_t const isa = best_isa();
  auto const vector = [&](void (*rounds)(), double operations) {
    return rate(threads, operations * kRounds * kChains, [=](int) { rounds(); });
  };
  if (isa >= BUNTING_ISA_AVX512)
    best.f32 = vector(fma_avx512, 32);
  else if (isa >= BUNTING_ISA_AVX2)
    best.f32 = vector(fma_avx2, 16);
  best.bf16 = best.f32;
  if (isa == BUNTING_ISA_AVX512_BF16) best.bf16 = std::max(best.f32, vector(dot_bf16, 64));
  if (isa >= BUNTING_ISA_AVX512_BF16) best.int8 = vector(dot_int8, 128);
  if (isa == BUNTING_ISA_AMX_BF16) {
    best.bf16 = rate(threads, 16.0 * 16 * 64 * 6 * kRounds, [](int) { tiles(false); });
    best.int8 = rate(threads, 16.0 * 16 * 128 * 6 * kRounds, [](int) { tiles(true); });
  }
#endif
  return best;
}

}  // namespace
}  // namespace bunting

int main(int count, char** arguments) {
  int const threads =
      std::max(1, count > 1 ? std::atoi(arguments[1]) : int(std::thread::hardware_concurrency()));
  double const read = bunting::read_rate(threads);
  bunting::Peaks const peaks = bunting::peaks(threads);
  std::printf("{\"threads\": %d, \"readBytes\": %.4g, \"f32\": %.4g, \"bf16\": %.4g, \"int8\": %.4g}\n",
              threads, read, peaks.f32, peaks.bf16, peaks.int8);
}
