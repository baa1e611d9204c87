// dense_test.h - common parts of the tests of pack, gemm, embed, norm and gate: levels, aligned buffers,
// values.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/stored_block.h"
#include "host/cpu_features.h"
#include "include/engine.h"
#include "reference/dense.h"
#include "reference/kv_value.h"
#include "tests/test.h"

namespace bunting {
namespace amx_emulated {
extern Kernels const kernels;  // the AMX kernels over a software model of the tiles
}
// Levels without VPDPBUSD, SDOT or USMMLA.
namespace portable {
extern Kernels const kernels;
}
namespace avx2 {
extern Kernels const kernels;
}
namespace avx512 {
extern Kernels const kernels;
}

namespace test {

// Returns every table that this machine can run, including real AMX if present, and always the emulated AMX
// table.
inline std::vector<Kernels const*> dense_levels() {
  std::vector<Kernels const*> all;
  for (int32_t isa = BUNTING_ISA_PORTABLE; isa <= best_isa(); ++isa)
    if (Kernels const* kernels = kernels_for(isa)) all.push_back(kernels);
#if defined(BUNTING_HAS_PORTABLE_DOTPROD) || defined(BUNTING_HAS_PORTABLE_I8MM)
  if (has_dotprod() || has_i8mm()) all.push_back(&portable::kernels);
#endif
#ifdef BUNTING_HAS_AVX2_VNNI
  if (has_avx_vnni()) all.push_back(&avx2::kernels);
#endif
#ifdef BUNTING_HAS_AVX512_VNNI
  if (has_avx512_vnni()) all.push_back(&avx512::kernels);
#endif
  all.push_back(&amx_emulated::kernels);
  return all;
}

inline char const* name_of(Dtype dtype) {
  return weight_format(dtype).name;
}
// Types of weights in memory.
inline std::vector<Dtype> const kWeightTypes = [] {
  std::vector<Dtype> types = {Dtype::bf16, Dtype::f32};
  types.insert(types.end(), std::begin(kGroupedFormats), std::end(kGroupedFormats));
  return types;
}();
inline bool is_from_files_alone(Dtype dtype) {
  return is_grouped(dtype) && !is_rounded_to(dtype);
}

// Returns the nearest width that a matrix of a type may have; types of files' blocks need whole blocks.
inline int64_t width_for(Dtype dtype, int64_t k) {
  return is_from_files_alone(dtype) ? round_up(k, stored_block_length(dtype)) : k;
}

inline int64_t bytes_of(Dtype dtype) {
  return dtype == Dtype::f32 ? 4 : 2;
}

// Buffer, 64-byte aligned, with every byte 0xff: floats and bf16 values that were never written are NaN.
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

// Returns rows of blocks with random integers and finite scales of similar size.
inline Bytes random_blocks(Random& random, Dtype dtype, int64_t rows, int64_t k) {
  int64_t const size = stored_block_bytes(dtype), count = rows * k / stored_block_length(dtype);
  int const halves = scale_halves(dtype);
  int64_t const first = stored_halves_at(dtype);
  Bytes blocks(count * size);
  for (int64_t i = 0; i < count; ++i) {
    char* const block = blocks.data.get() + i * size;
    for (int64_t j = 0; j < size; ++j) block[j] = char(random.next());
    for (int64_t j = 0; j < halves; ++j) {
      char& high = block[first + j * 2 + 1];
      high = char(0x20 + (high & 7));  // 2^-7 .. 2^-5
    }
    if (weight_format(dtype).scales == Scales::exponent) {
      char& exponent = block[weight_format(dtype).file.scale.at];
      exponent = char(120 + (exponent & 3));
    }
  }
  return blocks;
}

// Returns values in [-1, 1), rounded to the type, for `rows` rows of `cols` with zeros up to `ld`.
inline Bytes random_rows(Random& random, Dtype dtype, int64_t rows, int64_t cols, int64_t ld) {
  Bytes out(rows * ld * bytes_of(dtype));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < ld; ++c)
      reference::put(dtype, out.data.get(), size_t(r * ld + c), c < cols ? random.uniform(-1, 1) : 0.0f);
  return out;
}

// Matrix of random weights, packed by the reference; formats of files' blocks get whole blocks.
struct Weights {
  Weights(Random& random, Dtype type, int64_t n, int64_t k)
      : matrix{.dtype = type, .n = n, .k = width_for(type, k)}, bytes(int64_t(matrix.bytes())) {
    matrix.data = bytes.data.get();
    if (is_from_files_alone(type)) {
      Bytes const blocks = random_blocks(random, type, n, matrix.k);
      reference::pack(matrix, blocks.data.get(), type);
      return;
    }
    Dtype const source_type = matrix.grouped() ? Dtype::f32 : type;
    Bytes const source = random_rows(random, source_type, n, k, k);
    reference::pack(matrix, source.data.get(), source_type);
  }
  PackedMatrix matrix;
  Bytes bytes;
};

// Rows to multiply with a matrix, each with `spare` more numbers (whole groups) than needed.
struct Inputs {
  Inputs(PackedMatrix const& w, int64_t tokens, int64_t spare = 0)
      : row_bytes((w.kp() + spare) / (w.grouped() ? kGroup : 1) * input_bytes(w.dtype)),
        ldx(row_bytes / input_bytes(w.dtype)),
        bytes(tokens * row_bytes) {}
  void* row(int64_t t) { return bytes.data.get() + t * row_bytes; }
  void const* row(int64_t t) const { return bytes.data.get() + t * row_bytes; }
  int64_t row_bytes, ldx;
  Bytes bytes;
};

// Returns inputs from rows of f32 with zeros beyond K.
inline Inputs inputs_from(PackedMatrix const& w, Bytes& rows, int64_t ld, int64_t tokens, int64_t spare = 0) {
  Inputs inputs(w, tokens, spare);
  if (w.grouped()) {
    Operand const to{inputs.row(0), inputs.ldx, w.dtype};
    reference::quantise(to, rows.f32(), Dtype::f32, ld, w.k, tokens);
    return inputs;
  }
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < inputs.ldx; ++k)
      reference::put(w.dtype, static_cast<char*>(inputs.row(t)), size_t(k),
                     k < ld ? rows.f32()[t * ld + k] : 0.0f);
  return inputs;
}

// Returns random inputs; every third row has outliers, some of them adjacent.
inline Inputs random_inputs(Random& random, PackedMatrix const& w, int64_t tokens, int64_t spare = 0) {
  int64_t const ld = round_up(w.k, kGroup);
  Bytes rows = random_rows(random, Dtype::f32, tokens, w.k, ld);
  for (int64_t t = 1; t < tokens; t += 3)
    for (int64_t k = t % 32; k < w.k; k += 61 + t) {
      rows.f32()[t * ld + k] *= 300;
      if (t % 2 == 0 && k + 1 < w.k) rows.f32()[t * ld + k + 1] *= 90;
    }
  return inputs_from(w, rows, ld, tokens, spare);
}

}  // namespace test
}  // namespace bunting
