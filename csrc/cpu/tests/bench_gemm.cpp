// bench_gemm.cpp - benchmark of the GEMM against this machine's ceilings, one thread, per level, format and
// shape.
//
//   bunting_bench_gemm [--level avx2] [--format Q4_K] [--tokens 1,32] [--shape 8192x2048] [--json]
//
// Without an option it runs all values (block_formats.h). A row has the time, GFLOP/s and GB/s of packed
// weights. For integers GFLOP/s are billions of integer operations: one multiplication and one addition per
// weight and row. Both rates come with their share of the ceiling (bench.h), measured in the same run because
// hosts are shared. For integers the time includes the rounding of the rows. It has no pass or fail.
#include <sstream>
#include <vector>

#include "cpu/kernels/row_stride.h"
#include "cpu/tests/bench.h"
#include "host/cpu_features.h"

namespace bunting::bench {
namespace {

struct Shape {
  int64_t n, k;
};

struct Options {
  std::string level, format;
  std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
  std::vector<Shape> shapes = {{8192, 2048}, {2048, 8192}, {1024, 1024}};
  bool as_json = false;
};

double gemm_seconds(Kernels const& kernels, PackedMatrix w, MemoryRegion const& weights, int64_t copies,
                    int64_t tokens) {
  int64_t const ldx = w.grouped() ? w.kp() / kGroup : row_stride(w.dtype, w.kp());
  MemoryRegion const rows(size_t(tokens * w.kp()) * 2, "rows"),
      x(size_t(tokens * ldx * input_bytes(w.dtype)), "inputs"), y(size_t(tokens * w.n) * 4, "outputs");
  Gemm const g{.x = x.data(),
               .ldx = ldx,
               .w = &w,
               .y = reinterpret_cast<float*>(y.data()),
               .ldy = w.n,
               .tokens = tokens,
               .may_have_outliers = false};
  int64_t copy = 0;
  return best_seconds(0.3, [&] {
    w.data = weights.data() + size_t(copy++ % copies) * w.bytes();
    if (w.grouped())
      kernels.quantise({x.data(), ldx, w.dtype}, rows.data(), Dtype::bf16, w.kp(), w.k, 0, tokens);
    kernels.gemm(g, 0, w.panels());
  });
}

void bench(Kernels const& kernels, int32_t isa, Dtype dtype, char const* format, double read,
           Options const& options) {
  double const peak = peak_operations(isa, dtype);
  for (Shape const shape : options.shapes) {
    PackedMatrix const w{.dtype = dtype, .n = shape.n, .k = shape.k};
    // Alternates between copies, so that no cache holds the weights from one run to the next.
    int64_t const copies = std::max<int64_t>(1, (int64_t{256} << 20) / int64_t(w.bytes()));
    MemoryRegion const weights(w.bytes() * size_t(copies), "weights");
    std::memset(weights.data(), 0, weights.bytes());
    for (int64_t tokens : options.tokens) {
      std::ostringstream what;
      what << "N=" << shape.n << " K=" << shape.k << ", rows: " << tokens;
      tell({.level = kernels.name,
            .kernel = std::string("gemm ") + format,
            .what = what.str(),
            .seconds = gemm_seconds(kernels, w, weights, copies, tokens),
            .operations = 2.0 * double(tokens) * double(shape.n) * double(shape.k),
            .bytes = double(w.bytes()),
            .peak_operations = peak,
            .peak_bytes = read},
           options.as_json);
    }
  }
}

// Returns false for an unknown option or a missing value.
bool parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    std::string const name = arguments[i];
    if (name == "--json") {
      options.as_json = true;
      continue;
    }
    if (++i == count) return false;
    char const* const value = arguments[i];
    if (name == "--level") {
      options.level = value;
    } else if (name == "--format") {
      options.format = value;
    } else if (name == "--tokens") {
      options.tokens.clear();
      std::istringstream words(value);
      for (std::string word; std::getline(words, word, ',');)
        options.tokens.push_back(std::atoll(word.c_str()));
    } else if (name == "--shape") {
      options.shapes.resize(1);
      if (std::sscanf(value, "%ldx%ld", &options.shapes[0].n, &options.shapes[0].k) != 2) return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace bunting::bench

int main(int count, char** arguments) {
  using namespace bunting;
  bench::Options options;
  if (!bench::parse(count, arguments, options)) {
    std::fprintf(stderr,
                 "bunting_bench_gemm [--level name] [--format name] "
                 "[--tokens T,…] "
                 "[--shape NxK] [--json]\n");
    return 2;
  }
  double const read = bench::peak_read_bytes();
  for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= best_isa(); ++isa) {
    Kernels const* kernels = kernels_for(isa);
    if (kernels == nullptr || (!options.level.empty() && options.level != kernels->name)) continue;
    std::vector<Dtype> formats = {Dtype::bf16, Dtype::f32};
    formats.insert(formats.end(), std::begin(kGroupedFormats), std::end(kGroupedFormats));
    for (Dtype const dtype : formats)
      if (options.format.empty() || options.format == weight_format(dtype).name)
        bench::bench(*kernels, isa, dtype, weight_format(dtype).name, read, options);
  }
  return 0;
}
