// dense_test.h - what the tests of pack, gemm, embed, rmsnorm and swiglu share: levels, aligned buffers,
// values.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu_features.h"
#include "include/engine.h"
#include "kernels/kernels.h"
#include "reference/dense.h"
#include "reference/kv_value.h"
#include "tests/test.h"

namespace bunting {
namespace amx_emulated {
extern Kernels const kernels;  // the AMX kernels over a software model of the tiles
}

namespace test {

// Every table this machine can run, real AMX included where there is some, and always the emulated one.
inline std::vector<Kernels const*> dense_levels() {
  std::vector<Kernels const*> all;
  for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= best_isa(); ++isa)
    if (Kernels const* kernels = kernels_for(isa)) all.push_back(kernels);
  all.push_back(&amx_emulated::kernels);
  return all;
}

inline char const* name_of(Dtype dtype) {
  return dtype == Dtype::f32 ? "f32" : dtype == Dtype::f16 ? "f16" : "bf16";
}
inline int64_t bytes_of(Dtype dtype) {
  return dtype == Dtype::f32 ? 4 : 2;
}

// 64-byte aligned, every byte 0xff: floats and bf16 values nobody wrote are NaN.
struct Bytes {
  explicit Bytes(int64_t count)
      : size(size_t(count)),
        data(static_cast<char*>(std::aligned_alloc(64, size_t(round_up(count + 1, 64))))) {
    std::memset(data.get(), 0xff, size_t(round_up(count + 1, 64)));
  }
  float* f32() { return reinterpret_cast<float*>(data.get()); }
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  size_t size;
  std::unique_ptr<char, Free> data;
};

// Values in [-1, 1), rounded to the type, for `rows` rows of `cols` with zeros up to `ld`.
inline Bytes random_rows(Random& random, Dtype dtype, int64_t rows, int64_t cols, int64_t ld) {
  Bytes out(rows * ld * bytes_of(dtype));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < ld; ++c)
      reference::put(dtype, out.data.get(), size_t(r * ld + c), c < cols ? random.uniform(-1, 1) : 0.0f);
  return out;
}

// A packed matrix of random weights, packed by the reference.
struct Weights {
  Weights(Random& random, Dtype dtype, int64_t n, int64_t k)
      : matrix{.dtype = dtype, .n = n, .k = k}, bytes(int64_t(matrix.bytes())) {
    matrix.data = bytes.data.get();
    Bytes const source = random_rows(random, dtype, n, k, k);
    reference::pack(matrix, source.data.get(), dtype);
  }
  PackedMatrix matrix;
  Bytes bytes;
};

}  // namespace test
}  // namespace bunting
