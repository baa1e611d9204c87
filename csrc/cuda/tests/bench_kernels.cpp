// bench_kernels.cpp - first contact with a GPU and benchmark of the CUDA kernels, in the shapes of an 8B
// model: H 4096, F 14336, 32 query and 8 KV heads of 128. It prints one line of JSON per measurement, which
// benchmarks/gpu-table.ts compares with this GPU's ceilings and with the model of the kernels' costs.
//
//   bunting_bench_cuda [--tiny] shard[=part] ...   see kShards; without one: all measurements
//   bunting_bench_emulated shard[=part] ...        the same program on the emulator, in tiny shapes
#include "cuda/tests/bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

namespace bunting::cuda::bench {
namespace {

constexpr Scale kLarge{.tiny = false,
                       .hidden = 4096,
                       .forward = 14336,
                       .query_heads = 32,
                       .kv_heads = 8,
                       .head_size = 128,
                       .vocab = 128256,
                       .layers = 32,
                       .square = 8192,
                       .far_more_than_cache = size_t(400) << 20,
                       .copied = size_t(2) << 30,
                       .long_enough = 0.02,
                       .runs = 5,
                       .few_launches = 40,
                       .many_launches = 10,
                       .shrink = 1};
constexpr Scale kTiny{.tiny = true,
                      .hidden = 128,
                      .forward = 256,
                      .query_heads = 4,
                      .kv_heads = 1,
                      .head_size = 64,
                      .vocab = 512,
                      .layers = 2,
                      .square = 128,
                      .far_more_than_cache = 1 << 16,
                      .copied = 1 << 16,
                      .long_enough = 0,
                      .runs = 1,
                      .few_launches = 2,
                      .many_launches = 1,
                      .shrink = 32};
#if !defined(BUNTING_BENCH_EMULATED)
Scale now = kLarge;
#else
Scale now = kTiny;
#endif

void probe(std::string const&) {
  DeviceInfo const info = device_info(0);
  std::printf(
      "{\"gpu\":\"%s\",\"capability\":%d,\"multiprocessors\":%d,\"memory_bytes\":%llu,\"note\":\"%s\"}\n",
      info.name.c_str(), info.capability, info.multiprocessors,
      static_cast<unsigned long long>(info.memory_bytes), info.note.c_str());
}

struct Shard {
  char const* name;
  void (*run)(std::string const& part);
  bool is_measurement;
};
constexpr Shard kShards[] = {
    {"probe", probe, true},                // names the GPU
    {"ceilings", measure_ceilings, true},  // copying, and a large product; the part is a path of libcublasLt
    {"few", bench_few, true},              // products of 1 to 64 tokens; the part is a format
    {"many", bench_many, true},            // products of 65 to 4,096 tokens; the part is a format
    {"cublaslt", bench_library, false},    // NVIDIA's products; the part is a path of libcublasLt
    {"attention", bench_attention, true},  // the part is `packed` or `engine`, the distance of pages
    {"experts", bench_experts, true},      // the part is a format
    {"rows", bench_rows, true},            // norm, RoPE, gate, sampling, and the cost of a launch in a graph
    {"bits", print_bits, false},           // hashes of seeded products; the part is `hopper` or `ampere`
    {"fault", fault_on_purpose, false},    // a kernel that reads where nothing is
    {"hang", hang_on_purpose, false},      // a kernel that does not end
};

int run(std::vector<std::string> const& arguments) {
  use_device(0);
  bool has_run = false;
  for (std::string const& argument : arguments) {
    if (argument == "--tiny") {
      be_tiny();
      continue;
    }
    size_t const equals = std::min(argument.find('='), argument.size());
    auto const shard = std::find_if(std::begin(kShards), std::end(kShards),
                                    [&](Shard const& s) { return argument.compare(0, equals, s.name) == 0; });
    if (shard == std::end(kShards)) {
      std::fprintf(stderr, "%s is no shard\n", argument.c_str());
      return 2;
    }
    shard->run(equals < argument.size() ? argument.substr(equals + 1) : "");
    has_run = true;
  }
  if (!has_run)
    for (Shard const& shard : kShards)
      if (shard.is_measurement) shard.run("");
  return 0;
}

}  // namespace

Scale const& scale() {
  return now;
}
void be_tiny() {
  now = kTiny;
}

void finish(Stream& stream) {
  if (!stream.wait(kDeadlineMs)) fail(BUNTING_LOST, "the GPU does not come to an end");
}

Buffer::Buffer(size_t bytes) : memory_(bytes, "a measurement") {
  MappedMemory staging(std::min(bytes, size_t(64) << 20), "a measurement");
  std::mt19937 random(1);
  uint16_t* const values = reinterpret_cast<uint16_t*>(staging.data());
  for (size_t i = 0; i < staging.bytes() / 2; ++i) values[i] = uint16_t((random() & 0x807e) | 0x3c00);
  Stream stream;
  stream.copy(memory_.data(), staging.data(), staging.bytes());
  for (size_t done = staging.bytes(); done < bytes; done *= 2)
    stream.copy(memory_.data() + done, memory_.data(), std::min(done, bytes - done));
  finish(stream);
}

DeviceMemory upload_bytes(void const* from, size_t bytes) {
  DeviceMemory memory(std::max<size_t>(1, bytes), "a measurement");
  MappedMemory staging(memory.bytes(), "a measurement");
  std::memcpy(staging.data(), from, bytes);
  Stream stream;
  stream.copy(memory.data(), staging.data(), bytes);
  finish(stream);
  return memory;
}

double seconds_of(int count, std::function<void(Stream&, int)> const& launch) {
  using Clock = std::chrono::steady_clock;
  Stream stream;
  stream.begin_recording();
  for (int i = 0; i < count; ++i) launch(stream, i);
  Graph const graph = stream.end_recording();
  auto const took = [&](int launches) {
    auto const start = Clock::now();
    for (int i = 0; i < launches; ++i) stream.launch(graph);
    finish(stream);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  took(1);  // warm-up
  int const launches = int(scale().long_enough / took(1)) + 1;
  double best = 1e9;
  for (int run = 0; run < scale().runs; ++run) best = std::min(best, took(launches));
  return best / launches / count;
}

void line(char const* kernel, std::string const& shape, double seconds, double bytes, double flops) {
  std::printf("{\"kernel\":\"%s\",%s,\"us\":%.3f,\"bytes\":%.0f,\"flops\":%.0f}\n", kernel, shape.c_str(),
              seconds * 1e6, bytes, flops);
  std::fflush(stdout);
}

}  // namespace bunting::cuda::bench

int main(int count, char** arguments) {
  try {
    return bunting::cuda::bench::run({arguments + 1, arguments + count});
  } catch (bunting::Error const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
