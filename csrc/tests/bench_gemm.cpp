// bench_gemm.cpp - how near the GEMM comes to what this machine can do, one thread, per level, format and
// shape.
//
//   bunting_bench_gemm [--level avx2] [--format bf16|f32|q8|q4] [--tokens 1] [--shape 8192x2048]
//
// Without an option: all there are. A row says time, GFLOP/s (for q8 and q4 billions of integer operations:
// one multiplication and one addition per weight and row) and GB/s of packed weights, each with its share of
// the ceiling. For q8 and q4 the time includes the rounding of the rows.
//
// The ceilings are measured in the same run, because hosts are shared: a plain read of memory, and a loop of
// independent multiply-adds in registers for the instruction a level lives on; 0 where that is not measured.
// Not a test: nothing here passes or fails.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
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
__attribute__((target("avx512f,avx512vnni"))) void bytes_avx512_vnni() {
  __m512i sums[kChains] = {}, x = _mm512_set1_epi32(0x01010101);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, x, x);
      KEEP(sum);
    }
}
// Without a fused form: two of 16 bits, then added to 32.
__attribute__((target("avx512f,avx512bw"))) void bytes_avx512() {
  __m512i sums[kChains] = {}, x = _mm512_set1_epi32(0x01010101), ones = _mm512_set1_epi16(1);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(x, x), ones));
      KEEP(sum);
      KEEP(x);
    }
}
__attribute__((target("avx2"))) void bytes_avx2() {
  __m256i sums[kChains] = {}, x = _mm256_set1_epi32(0x01010101), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < kRounds; ++i)
    for (auto& sum : sums) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
      asm volatile("" : "+x"(sum));
      asm volatile("" : "+x"(x));
    }
}
#endif

// Billions of operations per second of the level's multiply-add; 0 where it is not measured.
double peak_gflops(int32_t isa, Dtype dtype) {
#if defined(__x86_64__)
  auto const measure = [](void (*rounds)(), double flops) {
    return flops * kRounds * kChains / best_seconds(0.3, rounds) * 1e-9;
  };
  if (dtype == Dtype::q8 || dtype == Dtype::q4) {
    if (isa == BUNTING_ISA_AVX512_BF16) return measure(bytes_avx512_vnni, 128);
    if (isa == BUNTING_ISA_AVX512) return measure(bytes_avx512, 128);
    return isa == BUNTING_ISA_AVX2 ? measure(bytes_avx2, 64) : 0;
  }
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

// What is asked for; an empty choice is everything.
struct Options {
  std::string level, format;
  int64_t tokens = 0;
  Shape shape{0, 0};
};

constexpr struct {
  Dtype dtype;
  char const* name;
} kFormats[] = {{Dtype::bf16, "bf16"}, {Dtype::f32, "f32"}, {Dtype::q8, "q8"}, {Dtype::q4, "q4"}};

double gemm_seconds(Kernels const& kernels, PackedMatrix w, Buffer const& weights, int64_t copies,
                    int64_t tokens) {
  int64_t const ldx = w.grouped() ? w.kp() / kGroup : w.kp();
  Buffer const rows(size_t(tokens * w.kp()) * 2), x(size_t(tokens * ldx * input_bytes(w.dtype))),
      y(size_t(tokens * w.n) * 4);
  Gemm const g{
      .x = x.data, .ldx = ldx, .w = &w, .y = reinterpret_cast<float*>(y.data), .ldy = w.n, .tokens = tokens};
  int64_t copy = 0;
  return best_seconds(0.3, [&] {
    w.data = weights.data + size_t(copy++ % copies) * w.bytes();
    if (w.grouped())
      kernels.quantise(reinterpret_cast<InputGroup*>(x.data), ldx, rows.data, Dtype::bf16, w.kp(), w.k, 0,
                       tokens);
    kernels.gemm(g, 0, w.panels());
  });
}

void bench(Kernels const& kernels, int32_t isa, Dtype dtype, char const* format, double read,
           Options const& options) {
  double const peak = peak_gflops(isa, dtype);
  std::printf("\n%s %s: multiply-add peak %.0f GFLOP/s, memory %.1f GB/s\n", kernels.name, format, peak,
              read);
  std::printf("     T     N     K         us   GFLOP/s  of peak   GB/s  of memory\n");
  std::vector<Shape> shapes = {{8192, 2048}, {2048, 8192}, {1024, 1024}};
  if (options.shape.n > 0) shapes = {options.shape};
  for (Shape const shape : shapes) {
    PackedMatrix const w{.dtype = dtype, .n = shape.n, .k = shape.k};
    // Several copies in turn, so that no cache holds the weights from one run to the next.
    int64_t const copies = std::max<int64_t>(1, (int64_t{256} << 20) / int64_t(w.bytes()));
    Buffer const weights(w.bytes() * size_t(copies));
    for (int64_t tokens : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
      if (options.tokens != 0 ? tokens != options.tokens : tokens > 512) continue;
      double const time = gemm_seconds(kernels, w, weights, copies, tokens);
      double const gflops = 2.0 * double(tokens) * double(shape.n) * double(shape.k) / time * 1e-9;
      double const gbytes = double(w.bytes()) / time * 1e-9;
      std::printf("%6d %5d %5d %10.1f %9.1f %6.0f %% %6.1f %8.0f %%\n", int(tokens), int(shape.n),
                  int(shape.k), time * 1e6, gflops, peak > 0 ? 100 * gflops / peak : 0, gbytes,
                  100 * gbytes / read);
      std::fflush(stdout);
    }
  }
}

// False for an option that does not exist or lacks its value.
bool parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; i += 2) {
    std::string const name = arguments[i];
    if (i + 1 == count) return false;
    char const* const value = arguments[i + 1];
    if (name == "--level")
      options.level = value;
    else if (name == "--format")
      options.format = value;
    else if (name == "--tokens")
      options.tokens = std::atoi(value);
    else if (name != "--shape" || std::sscanf(value, "%ldx%ld", &options.shape.n, &options.shape.k) != 2)
      return false;
  }
  return true;
}

}  // namespace
}  // namespace bunting

int main(int count, char** arguments) {
  using namespace bunting;
  Options options;
  if (!parse(count, arguments, options)) {
    std::fprintf(stderr,
                 "bunting_bench_gemm [--level name] [--format bf16|f32|q8|q4] [--tokens T] [--shape NxK]\n");
    return 2;
  }
  double const read = read_gb_per_second();
  for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= best_isa(); ++isa) {
    Kernels const* kernels = kernels_for(isa);
    if (kernels == nullptr || (!options.level.empty() && options.level != kernels->name)) continue;
    for (auto const& [dtype, format] : kFormats)
      if (options.format.empty() || options.format == format)
        bench(*kernels, isa, dtype, format, read, options);
  }
  return 0;
}
