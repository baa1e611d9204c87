// bench_kernels.h - common parts of the benchmark of the CUDA kernels: shapes, device memory, timing, lines.
//
// A measurement is a graph of many launches over more memory than L2 holds. The graph is launched until the
// time of starting and ending it is negligible. The fastest of several runs counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "boundary/error.h"
#include "cuda/kernels/kernels.h"
#include "cuda/runtime.h"

namespace bunting::cuda::bench {

inline constexpr double kDeadlineMs = 60'000;
inline constexpr int kLeftOut = 77;  // exit code of what cannot be measured here; see benchmarks/gpu.sh

// Shapes and repetitions of a run: those of an 8B model, or tiny ones that only show that everything runs.
struct Scale {
  bool tiny;
  int32_t hidden, forward, query_heads, kv_heads, head_size, vocab, layers, square;
  size_t far_more_than_cache, copied;
  double long_enough;  // in seconds
  int runs, few_launches, many_launches;
  int32_t shrink;  // divisor of steps
};
Scale const& scale();
void be_tiny();

// Waits for the stream; throws BUNTING_LOST if it takes too long.
void finish(Stream& stream);

// Device memory of harmless numbers: bf16, bytes and nibbles are all finite; f32 and f16 are small.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  template <class T>
  T* as(size_t byte = 0) const {
    return reinterpret_cast<T*>(memory_.data() + byte);
  }

 private:
  DeviceMemory memory_;
};

DeviceMemory upload_bytes(void const* from, size_t bytes);
template <class T>
DeviceMemory upload(std::vector<T> const& values) {
  return upload_bytes(values.data(), values.size() * sizeof(T));
}
template <class T>
T* at(DeviceMemory const& memory) {
  return reinterpret_cast<T*>(memory.data());
}

// Returns the seconds of one of `count` launches, which `launch` queues by index.
double seconds_of(int count, std::function<void(Stream&, int)> const& launch);

// Names of the formats of weights, in the order of Format.
inline constexpr char const* kFormatNames[] = {"bf16", "int8", "int8_32", "int4", "fp8", "mxfp4"};

// Line of JSON about one kernel: members of `shape` as JSON, such as "\"tokens\":8", and the bytes or the
// floating-point operations that a launch needs at least.
void line(char const* kernel, std::string const& shape, double seconds, double bytes, double flops);

// Shards, each a process of its own: one fault then loses only its own measurements. `argument` selects a
// part.
void bench_few(std::string const& argument);
void bench_many(std::string const& argument);
void bench_library(std::string const& path);
void bench_attention(std::string const& argument);
void bench_experts(std::string const& argument);
void bench_rows(std::string const& argument);
void measure_ceilings(std::string const& argument);
void print_bits(std::string const& argument);
void fault_on_purpose(std::string const& argument);
void hang_on_purpose(std::string const& argument);

}  // namespace bunting::cuda::bench
